"""Markers: texts that end a turn or begin a call, which users and tools must not write.

The tokenizer of llama.cpp reads such texts as control tokens, wherever they are. An invisible
character inside turns them into plain text. It is removed from the arguments that the model writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from interlock.messages import AssistantMessage, Message, ToolCall
from interlock.models.model import ToolDefinition
from interlock.protocol.envelope import encode_lossy

JOINER = "\u2060"  # WORD JOINER: no width, no line break


class Markers:
    """The markers of one model."""

    def __init__(self, texts: frozenset[str]) -> None:
        self._texts = {text for text in texts if len(text) > 1}
        self._lengths = sorted({len(text) for text in self._texts}, reverse=True)
        firsts = "".join(sorted({re.escape(text[0]) for text in self._texts}))
        self._first = re.compile(f"[{firsts}]") if firsts else None

    def as_text(self, text: str) -> str:
        if self._first is None:
            return text
        broken = [
            found.start() + 1
            for found in self._first.finditer(text)
            if any(text[found.start() : found.start() + n] in self._texts for n in self._lengths)
        ]
        if not broken:
            return text
        ends = [*broken[1:], len(text)]
        pieces = (text[start:end] for start, end in zip(broken, ends, strict=True))
        return JOINER.join((text[: broken[0]], *pieces))

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        return [self._message(message) for message in messages]

    def _message(self, message: Message) -> Message:
        message = msgspec.structs.replace(message, content=self.as_text(message.content))
        if isinstance(message, AssistantMessage) and message.tool_calls:
            calls = tuple(
                msgspec.structs.replace(call, input=self._json(call.input))
                for call in message.tool_calls
            )
            message = msgspec.structs.replace(message, tool_calls=calls)
        return message

    def tools(self, tools: Sequence[ToolDefinition]) -> list[ToolDefinition]:
        return [
            ToolDefinition(
                tool.name,
                self.as_text(tool.description),
                self.as_text(tool.input_schema.decode("utf-8", "replace")).encode(),
            )
            for tool in tools
        ]

    def original(self, call: ToolCall) -> ToolCall:
        """Return a model's call, restoring the original markers in texts that the model copied."""
        text = encode_lossy(call.input).decode()
        if JOINER not in text:
            return call
        whole = re.sub(f"(.){JOINER}", lambda found: self._join(text, found), text)
        return msgspec.structs.replace(call, input=msgspec.json.decode(whole))

    def _join(self, text: str, found: re.Match[str]) -> str:
        rest = text[found.end() : found.end() + self._lengths[0]] if self._lengths else ""
        is_marker = any(found[1] + rest[: n - 1] in self._texts for n in self._lengths)
        return found[1] if is_marker else found[0]

    def _json(self, value: dict[str, Any]) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self.as_text(encode_lossy(value).decode()))
        return decoded
