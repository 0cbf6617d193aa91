"""Limits the size of one answer from a model."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from interlock.errors import ModelInterrupted
from interlock.messages import AssistantMessage

MAX_ANSWER_BYTES = 4 * 1024 * 1024  # bytes of text, reasoning and tool calls together
_OVERHEAD = 256  # bytes added for each call or block, so that empty ones cannot be endless


class AnswerSize:
    """Counts the bytes of one answer while it arrives.

    Every method raises `ModelInterrupted` once the answer is over `MAX_ANSWER_BYTES`.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self._bytes = 0

    def add(self, text: str) -> None:
        self.add_bytes(len(text.encode(errors="replace")))

    def add_json(self, value: Any) -> None:
        self.add(json.dumps(value, ensure_ascii=False))

    def add_call(self) -> None:
        """Count the beginning of a tool call or a block. Add its content as text."""
        self.add_bytes(_OVERHEAD)

    def add_bytes(self, count: int) -> None:
        self._bytes += count
        if self._bytes > MAX_ANSWER_BYTES:
            raise ModelInterrupted(
                f"the answer of {self._model} is too long "
                f"(limit {MAX_ANSWER_BYTES >> 20} MiB); ask for a shorter one"
            )


def check_size(message: AssistantMessage, model: str) -> None:
    """Raise `ModelInterrupted` if a whole answer is over the limit."""
    AnswerSize(model).add_json(msgspec.to_builtins(message))
