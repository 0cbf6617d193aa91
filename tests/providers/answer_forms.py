"""How providers write answers: the events of their streams.

Each form has a report of a client that did not expect it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from interlock.messages import SEARCH_TOOLS
from interlock.models import ToolDefinition
from tests.providers.fake_provider import EVERY, Call, Request, Says

USED = (20, 7, 4)  # tokens of each request, of each answer, and those from the cache
Part = dict[str, Any]


def data(*events: Any) -> list[bytes]:
    return [f"data: {json.dumps(each)}\n\n".encode() for each in events]


def named(*events: Part) -> list[bytes]:
    return [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]


def pieces(text: str) -> list[str]:
    """Return a text in pieces, which end anywhere, also between the halves of a character."""
    units = text.encode("utf-16-le", "surrogatepass")
    cut = [units[start : start + 10] for start in range(0, len(units), 10)]
    return [each.decode("utf-16-le", "surrogatepass") for each in cut]


def arguments(call: Call, request: Request) -> str:
    """Return the arguments of a call, with the names that the model was offered."""
    if call.arguments != EVERY:
        return call.arguments
    offered = _schemas(request).get(call.name, {})
    return json.dumps(dict.fromkeys(offered.get("properties", ()), "v"))


def input_of(call: Call, tools: Sequence[ToolDefinition]) -> dict[str, Any]:
    """Return the arguments of a call, with the names of the server."""
    if call.arguments != EVERY:
        given: dict[str, Any] = json.loads(call.arguments)
        return given
    schema = next(each.input_schema for each in tools if each.name == call.name)
    return dict.fromkeys(json.loads(schema)["properties"], "v")


def _schemas(request: Request) -> dict[str, Part]:
    tools = [each.get("function", each) for each in request.body.get("tools", ())]
    return {
        each["name"]: each["input_schema"] if "input_schema" in each else each["parameters"]
        for each in tools
    }


# Chat completions


class ChatForm(NamedTuple):
    """How a provider streams chat completions.

    Attributes:
        reasoning: The member of a delta with reasoning; "content" for parts of a list; "" for none.
        id: Makes the id of a call from a number.
        repeats_ids: Whether the numbers begin again with each answer.
        is_whole: Whether a call comes in one piece.
        index: Whether each call has its own index; else all have 0.
        called: The reason to stop with calls.
        usage: Where the usage is: in a "chunk" of its own, or in the "last" chunk.
        cached: The member with cached tokens.
        first: What the stream begins with.
        refusal: The reason to stop of a refusal.
        sign: Adds what must come back to the message and its calls; returns it.
    """

    reasoning: str = ""
    id: Callable[[int], str] = "call_{:024d}".format
    repeats_ids: bool = False
    is_whole: bool = False
    index: bool = True
    called: str = "tool_calls"
    usage: str = "chunk"
    cached: str = "prompt_tokens_details"
    first: tuple[bytes, ...] = ()
    refusal: str = "content_filter"
    sign: Callable[[Part, list[Part], str], None] | None = None


def chat(form: ChatForm) -> Callable[[Says, Request, Iterator[int]], list[bytes]]:
    """Return what writes answers in a form of chat completions."""

    def write(says: Says, request: Request, numbers: Iterator[int]) -> list[bytes]:
        chunk = _Chunks(form, request)
        deltas: list[Part] = [{"role": "assistant", "content": ""}]
        for piece in pieces(says.thought) if form.reasoning else ():
            deltas.append(_thinking(form, piece))
        deltas += [{"content": piece} for piece in pieces(says.text)]
        ids = count() if form.repeats_ids else numbers
        calls = [_call(form, call, request, next(ids)) for call in says.calls]
        extra: Part = {}
        if form.sign and says.thought:
            token = f"signed-{next(numbers)}"
            form.sign(extra, calls, token)
            request.issued |= {call["id"]: token for call in calls}
            request.issued[token] = says.thought
        elif says.thought:
            request.issued |= {call["id"]: says.thought for call in calls}
        deltas += [extra] if extra else []
        deltas += [each for place, call in enumerate(calls) for each in _parts(form, place, call)]
        reason = form.called if calls else "stop"
        reason = {"length": "length", "refusal": form.refusal}.get(says.stop, reason)
        events = [*form.first, *(chunk.event(delta) for delta in deltas), *chunk.end(reason)]
        return [*events, b"data: [DONE]\n\n"]

    return write


class _Chunks:
    def __init__(self, form: ChatForm, request: Request) -> None:
        self._form = form
        options = request.body.get("stream_options") or {}
        self._with_usage = bool(options.get("include_usage")) or form.usage == "last"
        self._common = {"id": "gen-1", "object": "chat.completion.chunk", "model": request.model}

    def event(self, delta: Part, reason: str | None = None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return data({**self._common, "choices": [choice], **more})[0]

    def end(self, reason: str) -> list[bytes]:
        read, written, cached = USED
        usage: Part = {"prompt_tokens": read, "completion_tokens": written}
        if self._form.cached == "prompt_tokens_details":
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        elif self._form.cached:
            usage[self._form.cached] = cached
        if self._form.usage == "last":
            return [self.event({}, reason, usage=usage)]
        last = [self.event({}, reason)]
        return last + (
            data({**self._common, "choices": [], "usage": usage}) if self._with_usage else []
        )


def _thinking(form: ChatForm, piece: str) -> Part:
    if form.reasoning == "content":
        return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]}]}
    return {form.reasoning: piece}


def _call(form: ChatForm, call: Call, request: Request, number: int) -> Part:
    function = {"name": call.name, "arguments": arguments(call, request)}
    return {"id": form.id(number), "type": "function", "function": function}


def _parts(form: ChatForm, place: int, call: Part) -> list[Part]:
    index = place if form.index else 0
    if form.is_whole:
        return [{"tool_calls": [{"index": index, **call}]}]
    function = call["function"]
    first = {**call, "function": {**function, "arguments": ""}}
    return [
        {"tool_calls": [{"index": index, **first}]},
        *(
            {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            for piece in pieces(function["arguments"])
        ),
    ]


def sign_google(message: Part, calls: list[Part], token: str) -> None:
    """Sign as Gemini: the first call of an answer has the signature."""
    signature = {"google": {"thought_signature": token}}
    if calls:
        calls[0]["extra_content"] = signature


def sign_openrouter(message: Part, calls: list[Part], token: str) -> None:
    """Sign as OpenRouter, for the models of Anthropic and Google behind it."""
    detail = {"type": "reasoning.encrypted", "data": token, "format": "google-gemini-v1"}
    message["reasoning_details"] = [{**detail, "index": 0}]


# Anthropic's Messages API


def messages(says: Says, request: Request, numbers: Iterator[int]) -> list[bytes]:
    """Write an answer in the format of the Messages API."""
    read, written, cached = USED
    usage = {"input_tokens": read - cached, "cache_read_input_tokens": cached, "output_tokens": 1}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
    events = [{"type": "message_start", "message": {**start, "usage": usage}}]
    blocks: list[tuple[Part, list[Part]]] = []
    ids = [f"toolu_01{next(numbers):020d}" for _ in says.calls]
    if says.thought:
        token = f"signed-{next(numbers)}"
        deltas = [{"type": "thinking_delta", "thinking": each} for each in pieces(says.thought)]
        deltas.append({"type": "signature_delta", "signature": token})
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
        request.issued |= dict.fromkeys(ids, token)
        request.issued[token] = says.thought
    if says.text:
        deltas = [{"type": "text_delta", "text": each} for each in pieces(says.text)]
        blocks.append(({"type": "text", "text": ""}, deltas))
    for id, call in zip(ids, says.calls, strict=True):
        text = arguments(call, request)
        given = [] if text == "{}" else pieces(text)
        deltas = [{"type": "input_json_delta", "partial_json": each} for each in given]
        block = {"type": "tool_use", "id": id, "name": call.name, "input": {}}
        blocks.append((block, deltas))
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "ping"})
        events += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        events.append({"type": "content_block_stop", "index": index})
    reason = "tool_use" if says.calls else "end_turn"
    reason = {"length": "max_tokens", "refusal": "refusal"}.get(says.stop, reason)
    delta = {"stop_reason": reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": written}})
    return named(*events, {"type": "message_stop"})


# OpenAI's Responses API


def responses(says: Says, request: Request, numbers: Iterator[int]) -> list[bytes]:
    """Write an answer in the format of the Responses API."""
    items: list[Part] = []
    ids = [f"call_{next(numbers):024d}" for _ in says.calls]
    if says.thought:
        token = f"signed-{next(numbers)}"
        summary = [{"type": "summary_text", "text": says.thought}]
        item = {"type": "reasoning", "id": f"rs_{token}", "summary": summary}
        items.append({**item, "encrypted_content": token})
        request.issued |= dict.fromkeys(ids, token)
        request.issued[token] = says.thought
    if says.text:
        kind = "refusal" if says.stop == "refusal" else "output_text"
        content = {"type": kind, kind.removeprefix("output_"): says.text}
        item = {"type": "message", "id": f"msg_{next(numbers)}", "role": "assistant"}
        items.append({**item, "status": "completed", "content": [content]})
    searches = any(each["type"] == "tool_search" for each in request.body.get("tools", ()))
    for id, call in zip(ids, says.calls, strict=True):
        item = {"id": f"fc_{id}", "call_id": id, "status": "completed"}
        if searches and call.name == SEARCH_TOOLS:
            item |= {"type": "tool_search_call", "execution": "client"}
            items.append({**item, "arguments": json.loads(call.arguments)})
        else:
            item |= {"type": "function_call", "name": call.name}
            items.append({**item, "arguments": arguments(call, request)})
    events: list[Part] = [{"type": "response.created", "response": {"output": []}}]
    for place, item in enumerate(items):
        begun = {**item, "arguments": ""} if item["type"] == "function_call" else item
        events.append({"type": "response.output_item.added", "output_index": place, "item": begun})
        events += [{**each, "output_index": place} for each in _item_deltas(item)]
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    return named(*events, _response_end(says, items))


def _item_deltas(item: Part) -> list[Part]:
    if item["type"] == "reasoning":
        kind, text = "reasoning_summary_text", item["summary"][0]["text"]
    elif item["type"] == "message":
        part = item["content"][0]
        kind = part["type"]
        text = part.get("text") or part.get("refusal")
    elif item["type"] == "tool_search_call":
        return []
    else:
        kind, text = "function_call_arguments", item["arguments"]
    return [{"type": f"response.{kind}.delta", "delta": each} for each in pieces(text)]


def _response_end(says: Says, items: list[Part]) -> Part:
    read, written, cached = USED
    usage = {"input_tokens": read, "output_tokens": written}
    usage |= {"input_tokens_details": {"cached_tokens": cached}}  # type: ignore[dict-item]
    end = "incomplete" if says.stop == "length" else "completed"
    reason = {"reason": "max_output_tokens"} if says.stop == "length" else None
    response = {"status": end, "output": items, "usage": usage, "incomplete_details": reason}
    return {"type": f"response.{end}", "response": response}
