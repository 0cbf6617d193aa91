"""Streams a chat model's answer as events, and makes the message for the graph's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import uuid4

import msgspec
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from interlock.models import ReasoningDelta, TextDelta, Usage
from interlock.models.whole_deltas import WholeDeltas
from interlock.text.quoting import replace_surrogates
from interlock.text.surrogates import has_halves, repair_json

MAX_MALFORMED = 500  # characters of malformed arguments that the model is shown

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode

Write = Callable[[Any], None]


def deltas(chunk: BaseMessage) -> Iterator[TextDelta | ReasoningDelta]:
    """Yield events for the text and the reasoning in one piece of an answer."""
    if isinstance(chunk.content, str):
        if chunk.content:
            yield TextDelta(chunk.content)
        reasoning = chunk.additional_kwargs.get("reasoning_content")
        if isinstance(reasoning, str) and reasoning:
            yield ReasoningDelta(reasoning)
        return
    for block in chunk.content:
        if isinstance(block, str):
            yield TextDelta(block)
            continue
        kind = block.get("type")
        if kind == "text" and block.get("text"):
            yield TextDelta(block["text"])
        elif kind in ("reasoning", "thinking"):
            text = block.get("reasoning") or block.get("thinking") or _summary(block)
            if text:
                yield ReasoningDelta(text)


def _summary(block: dict[str, Any]) -> str:
    parts = block.get("summary") or ()
    return "".join(each.get("text", "") for each in parts if isinstance(each, dict))


async def ask(model: Any, messages: list[Any], write: Write | None) -> AIMessage:
    """Send a request to a model and return its answer.

    Args:
        model: A chat model with its tools.
        messages: The messages of the request.
        write: Called with each delta; None, which is cheaper, if nobody reads the deltas.
    """
    if write is None:
        answer: AIMessage = await model.ainvoke(messages)
        return answer
    pieces: list[AIMessageChunk] = []
    whole_deltas = WholeDeltas()
    async for chunk in model.astream(messages):
        pieces.append(chunk)
        for delta in deltas(chunk):
            if (text := whole_deltas.add(delta)) is not None:
                write(text)
    for rest in whole_deltas.end():
        write(rest)
    if not pieces:
        return AIMessage("")
    first, *others = pieces
    # Adding all chunks at once takes linear time.
    whole = first.__add__(others) if others else first
    if not isinstance(whole, AIMessageChunk):
        return whole
    calls, broken = _parsed(whole)
    members = {
        key: each for key, each in whole.model_dump().items() if key in AIMessage.model_fields
    }
    members |= {"type": "ai", "tool_calls": calls, "invalid_tool_calls": broken}
    return AIMessage(**members)


def _parsed(whole: AIMessageChunk) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a streamed answer's valid calls, and its calls whose arguments are no JSON object.

    LangChain's own parser is not used, because it completes cut-off JSON: `{"path": "/` would
    become a call with a wrong path.
    """
    calls: list[dict[str, Any]] = []
    broken: list[dict[str, Any]] = []
    for each in whole.tool_call_chunks:
        text = each["args"] or "{}"
        call = {"name": each["name"] or "", "id": each["id"], "args": text}
        try:
            calls.append({**call, "args": _decode_object(_repaired(text)), "type": "tool_call"})
        except msgspec.MsgspecError:
            broken.append({**call, "error": None, "type": "invalid_tool_call"})
    return calls, broken


def _repaired(text: str) -> bytes:
    return repair_json(text.encode("utf-8", "surrogatepass"))


def normalized(message: AIMessage, used: Iterable[str]) -> AIMessage:
    """Return the answer with each call in a form that can be answered.

    A call without an id, or with another call's id, gets a new id. A call whose arguments are not
    JSON becomes a call without arguments; `additional_kwargs` keeps the text of the arguments.
    """
    if has_halves([message.content, message.tool_calls]):
        message = message.model_copy(
            update={
                "content": replace_surrogates(message.content),
                "tool_calls": replace_surrogates(message.tool_calls),
            }
        )
    taken = set(used)
    malformed: dict[str, str] = {}
    calls: list[dict[str, Any]] = []
    renamed: list[str] = []
    for each in (*message.tool_calls, *message.invalid_tool_calls):
        id = each.get("id") or ""
        if not id or id in taken:
            id = f"call_{uuid4().hex[:24]}"
        taken.add(id)
        renamed.append(id)
        call: dict[str, Any] = {
            "name": each.get("name") or "unknown",
            "args": {},
            "id": id,
            "type": "tool_call",
        }
        arguments: Any = each.get("args")
        if isinstance(arguments, dict):
            call["args"] = arguments
        else:
            malformed[id] = str(arguments or "")[:MAX_MALFORMED]
        calls.append(call)
    same = [each["id"] for each in message.tool_calls] == renamed
    if same and not message.invalid_tool_calls:
        return message
    extra = {key: each for key, each in message.additional_kwargs.items() if key != "tool_calls"}
    if malformed:
        extra["interlock"] = {"malformed": malformed}
    return AIMessage(
        content=_renumbered(message.content, iter(renamed)),
        additional_kwargs=extra,
        response_metadata=message.response_metadata,
        id=message.id,
        name=message.name,
        tool_calls=calls,
        usage_metadata=message.usage_metadata,
    )


def _renumbered(content: Any, ids: Iterator[str]) -> Any:
    if not isinstance(content, list):
        return content
    return [
        {**block, "id": next(ids, block.get("id")), "input": _object(block.get("input"))}
        if isinstance(block, dict) and block.get("type") == "tool_use"
        else block
        for block in content
    ]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def usage_of(messages: Iterable[BaseMessage]) -> Usage:
    """Return the total tokens of all answers."""
    found = [
        each.usage_metadata
        for each in messages
        if isinstance(each, AIMessage) and each.usage_metadata
    ]
    return Usage(
        sum(each["input_tokens"] for each in found), sum(each["output_tokens"] for each in found)
    )
