"""A turn's events as JSON objects, from which every protocol's encoder starts."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from interlock.agent import (
    AgentEvent,
    ApprovalAsked,
    QuestionAsked,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from interlock.models import Notice, ReasoningDelta, TextDelta
from interlock.text.surrogates import repair_json
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

MAX_RESULT = 16 * 1024  # characters of a tool's result in an event
CUT = "\n[cut: the whole result has {0:,} characters]"

Kind: TypeAlias = str
TEXTS = frozenset(("token", "reasoning"))  # kinds of events that are pieces of a longer text
_encode = msgspec.json.Encoder().encode


class TurnEvent:
    """One event of a turn, encoded only once, when the first client needs it.

    Attributes:
        seq: The event's number within the turn, from 1.
        kind: The event's type.
        fields: The event's members.
        size: The event's approximate size in bytes.
    """

    __slots__ = ("_text", "fields", "kind", "seq", "size")

    def __init__(self, seq: int, fields: JsonObject) -> None:
        self.seq = seq
        self.kind: Kind = fields["type"]
        self.fields = fields
        self.size = 200 + len(fields.get("content") or fields.get("tool_result") or "")
        self._text: str | None = None

    @property
    def begin(self) -> int:
        """The number of the first piece of a joined text; else the event's own number."""
        begin: int = self.fields.get("from", self.seq)
        return begin

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = _encode(self.fields).decode()
        return self._text


def now() -> str:
    """Return the current time in UTC, in the format that events use."""
    return str(rfc3339(now_micros()))


def fields_of(event: AgentEvent) -> JsonObject | None:
    """Convert an agent's event to the members of a turn's event; None for the last event."""
    match event:
        case TextDelta(text):
            return {"type": "token", "content": text}
        case ReasoningDelta(text):
            return {"type": "reasoning", "content": text}
        case Notice(text):
            return {"type": "notice", "content": text}
        case ToolStarted():
            return {
                "type": "tool_start",
                "tool_name": event.address,
                "tool_input": _encode(event.arguments).decode(),
                "tool_call_id": event.id,
                "call_id": event.call_id,
                "timestamp": now(),
            }
        case ToolProgress():
            fields: JsonObject = {
                "type": "tool_progress",
                "tool_call_id": event.id,
                "progress": event.progress,
                "message": event.message,
            }
            return fields if event.total is None else fields | {"total": event.total}
        case ToolFinished():
            return _finished(event)
        case ApprovalAsked():
            return {
                "type": "approval",
                "approval_id": event.id,
                "hash": event.hash,
                "tool_call_id": event.tool_call_id,
                "tool_name": event.address,
                "tool_input": _encode(event.arguments).decode(),
                "call_id": event.call_id,
                "reason": event.reason,
                "rule": event.rule,
                "risk": event.risk,
                "approvers": list(event.approvers),
                "expires": event.expires,
            }
        case QuestionAsked():
            return _question(event)
        case _:
            return None


def _question(event: QuestionAsked) -> JsonObject:
    params = event.params
    fields: JsonObject = {
        "type": "question",
        "question_id": event.id,
        "tool_call_id": event.tool_call_id,
        "server": event.server,
        "mode": "form",
        "message": str(params.get("message", "")),
        "expires": event.expires,
    }
    if event.method == "sampling/createMessage":
        return fields | {"mode": "sampling", "messages": params.get("messages", [])}
    if params.get("mode") == "url":
        return fields | {"mode": "url", "url": str(params.get("url", ""))}
    return fields | {"schema": params.get("requestedSchema", {})}


def _finished(event: ToolFinished) -> JsonObject:
    fields: JsonObject = {
        "type": "tool_complete",
        "tool_name": event.address,
        "tool_result": event.result,
        "tool_call_id": event.id,
        "call_id": event.call_id,
        "is_error": event.is_error,
        "outcome": event.ending,
        "seconds": round(event.duration, 6),
        "timestamp": now(),
    }
    if event.reason:
        fields["reason"] = event.reason
    if len(event.result) > MAX_RESULT:
        fields["tool_result"] = event.result[:MAX_RESULT] + CUT.format(len(event.result))
        fields["truncated"] = True
    return fields


def stopped_call(started: JsonObject) -> JsonObject:
    """Return the event that ends a stopped call, from the event that started it."""
    return {
        "type": "tool_complete",
        "tool_name": started["tool_name"],
        "tool_result": "[stopped by the user]",
        "tool_call_id": started["tool_call_id"],
        "call_id": started["call_id"],
        "is_error": True,
        "outcome": "stopped",
        "seconds": 0.0,
        "timestamp": now(),
    }


def decoded(text: str | bytes) -> Any:
    """Decode a text that must be a JSON object.

    Raises:
        ValueError: The text is not a JSON object.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        found = msgspec.json.decode(repair_json(data))
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found
