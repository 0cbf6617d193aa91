"""A format for tools and calls, for models whose chat template does not support tools.

The instructions list the tools, one JSON object a line. A call is written as::

    <tool_call>{"name": "time__now", "arguments": {"zone": "Asia/Tokyo"}}</tool_call>

An answer is text, then any number of calls. A grammar restricts calls to the names and the schemas
of the tools. Results are messages of the user, in `<tool_response>`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage
from interlock.models.gguf.schemas import grammar_schema
from interlock.models.model import ToolDefinition
from interlock.protocol.envelope import encode_lossy

OPEN, CLOSE = "<tool_call>", "</tool_call>"
RESULT, RESULT_END = "<tool_response>", "</tool_response>"
MARKERS = frozenset((OPEN, CLOSE, RESULT, RESULT_END))
_MOST_CALLS = 16  # calls in one answer
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_INSTRUCTIONS = f"""\
You can call these tools:
{{tools}}
To call tools, end your answer with one line for each call, like this:
{OPEN}{{{{"name": "NAME", "arguments": {{{{}}}}}}}}{CLOSE}"""


def instructions(tools: Sequence[ToolDefinition]) -> str:
    """Return the part of the instructions that lists the tools."""
    listed = (
        json.dumps(
            {
                "name": tool.name,
                "description": tool.description,
                "parameters": grammar_schema(tool.input_schema),
            },
            ensure_ascii=False,
        )
        for tool in tools
    )
    return _INSTRUCTIONS.format(tools="\n".join(listed))


def grammar(tools: Sequence[ToolDefinition]) -> str:
    """Return the grammar of an answer, in the language of llguidance."""
    rules = [
        "%llguidance {}",
        f'start: text | lead call ("\\n" {json.dumps(OPEN)} call)*',
        f"lead[suffix={json.dumps(OPEN)}]: /(?s:.*)/",
        "text: TEXT",
        f"TEXT: /(?s:.+)/ & ~/(?s:.*){OPEN}(?s:.*)/",
        f"call: ({' | '.join(f'call_{place}' for place in range(len(tools)))}) {json.dumps(CLOSE)}",
    ]
    for place, tool in enumerate(tools):
        begin = json.dumps(f'{{"name": {json.dumps(tool.name)}, "arguments": ')
        schema = json.dumps(grammar_schema(tool.input_schema) | {"x-guidance": _COMPACT})
        rules.append(f'call_{place}: {begin} %json {schema} "}}"')
    return "\n".join(rules)


def plain_messages(
    messages: Sequence[Message], tools: Sequence[ToolDefinition], *, system_role: bool
) -> list[dict[str, Any]]:
    """Return a conversation without tool messages, whose roles alternate.

    Args:
        messages: The conversation.
        tools: The tools that the model may call.
        system_role: Whether the template has a system role; if not, the first user message begins
            with the instructions.
    """
    wire: list[dict[str, Any]] = []
    system = [each.content for each in messages if isinstance(each, SystemMessage)]
    system += [instructions(tools)] if tools else []
    if system:
        wire.append({"role": "system" if system_role else "user", "content": "\n\n".join(system)})
    for message in messages:
        if isinstance(message, SystemMessage):
            continue
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        text = _text(message)
        if wire and wire[-1]["role"] == role:
            wire[-1]["content"] += f"\n\n{text}"
        elif text:
            wire.append({"role": role, "content": text})
    return wire


def _text(message: Message) -> str:
    if isinstance(message, ToolMessage):
        return f"{RESULT}{message.content}{RESULT_END}"
    if isinstance(message, AssistantMessage) and message.tool_calls:
        return "\n".join(filter(None, (message.content, *map(_call_text, message.tool_calls))))
    return message.content


def _call_text(call: ToolCall) -> str:
    arguments = encode_lossy(call.input).decode()
    return f'{OPEN}{{"name": {json.dumps(call.name)}, "arguments": {arguments}}}{CLOSE}'


class CallReader:
    """Separates the text of an answer from its tool calls, while it arrives.

    Attributes:
        ended: Whether to stop the model, because it repeats itself or has reached the limit of
            calls.
    """

    def __init__(self) -> None:
        self.ended = False
        self._held = ""  # an incomplete call, or text that may be the beginning of one
        self._in_call = False
        self._seen: list[str] = []

    def add(self, piece: str) -> tuple[str, list[tuple[str, str]]]:
        """Return the text in a piece, and the calls that end in it: names and arguments."""
        self._held += piece
        text, calls = "", []
        while not self.ended:
            if not self._in_call:
                before, found, after = self._held.partition(OPEN)
                if not found:
                    keep = _overlap(self._held, OPEN)
                    text += self._held[: len(self._held) - keep]
                    self._held = self._held[len(self._held) - keep :]
                    break
                text, self._held, self._in_call = text + before, after, True
            body, found, after = self._held.partition(CLOSE)
            if not found:
                break
            self._held, self._in_call = after, False
            if body in self._seen or len(self._seen) >= _MOST_CALLS:
                self.ended = True
            else:
                self._seen.append(body)
                calls.append(_parts(body))
        # The lines between calls are not text of the answer.
        return ("" if self._seen and not text.strip() else text), calls

    def finish(self) -> tuple[str, list[tuple[str, str]]]:
        """Return the rest at the end of the answer: text, or a call that was cut off."""
        held, self._held = self._held, ""
        if self.ended or not held:
            return "", []
        return ("", [_parts(held)]) if self._in_call else (held, [])


def _parts(body: str) -> tuple[str, str]:
    try:
        decoded = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        return msgspec.json.decode(decoded["name"], type=str), bytes(decoded["arguments"]).decode()
    except (msgspec.DecodeError, KeyError):
        return "unknown", body


def _overlap(text: str, marker: str) -> int:
    """Return the number of characters at the end of `text` that may begin `marker`."""
    return next((n for n in range(len(marker) - 1, 0, -1) if text.endswith(marker[:n])), 0)
