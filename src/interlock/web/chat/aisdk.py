"""Encodes turns as chunks of the AI SDK's UI message stream, version 1."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.types import JsonObject
from interlock.web.chat.encoding import TurnEncoder

HEADER = (b"x-vercel-ai-ui-message-stream", b"v1")
END = b"data: [DONE]\n\n"


class AiSdkEncoder(TurnEncoder):
    """Encodes a turn's events as the chunks of one response.

    Args:
        message: The id of the assistant's message.
        announced: Ids of calls that the client already knows.
    """

    def __init__(self, message: str, announced: frozenset[str]) -> None:
        super().__init__(announced)
        self._message = message
        self._parts = 0

    def start(self) -> list[JsonObject]:
        return [{"type": "start", "messageId": self._message}, {"type": "start-step"}]

    def interrupted(self) -> list[JsonObject]:
        return [*self._end(), *_finish("tool-calls")]

    def _opened(self, kind: str) -> list[JsonObject]:
        self._parts += 1
        return [{"type": f"{kind}-start", "id": f"p{self._parts}"}]

    def _delta(self, kind: str, text: str) -> JsonObject:
        return {"type": f"{kind}-delta", "id": f"p{self._parts}", "delta": text}

    def _closed(self, kind: str) -> list[JsonObject]:
        return [{"type": f"{kind}-end", "id": f"p{self._parts}"}]

    def _replied(self) -> list[JsonObject]:
        return [{"type": "finish-step"}, {"type": "start-step"}]

    def _call(self, event: JsonObject) -> list[JsonObject]:
        return [
            {
                "type": "tool-input-available",
                "toolCallId": event["tool_call_id"],
                "toolName": event["tool_name"],
                "input": msgspec.json.decode(event["tool_input"]),
                "dynamic": True,
            }
        ]

    def _progress(self, progress: JsonObject) -> JsonObject:
        return {"type": "data-progress", "data": progress, "transient": True}

    def _result(self, event: JsonObject) -> JsonObject:
        answer: JsonObject = {"toolCallId": event["tool_call_id"]}
        if event.get("reason") == "approval_denied":
            return {"type": "tool-output-denied", **answer}
        answer["dynamic"] = True
        if event["is_error"]:
            return {"type": "tool-output-error", **answer, "errorText": event["tool_result"]}
        return {"type": "tool-output-available", **answer, "output": event["tool_result"]}

    def _approval(self, event: JsonObject) -> list[JsonObject]:
        return [
            {
                "type": "tool-approval-request",
                "approvalId": event["approval_id"],
                "toolCallId": event["tool_call_id"],
            }
        ]

    def _complete(self, event: JsonObject) -> list[JsonObject]:
        if event["stop_reason"] == "stopped":
            return [{"type": "abort"}]
        return _finish("length" if event["stop_reason"] == "length" else "stop")

    def _error(self, event: JsonObject) -> JsonObject:
        return {"type": "error", "errorText": f"{event['code']}: {event['message']}"}


def _finish(reason: str) -> list[JsonObject]:
    return [{"type": "finish-step"}, {"type": "finish", "finishReason": reason}]


class _Message(msgspec.Struct):
    role: str
    id: str = ""
    parts: list[dict[str, Any]] = []


class AiSdkInput(msgspec.Struct):
    """A client's request. Only its last message is read: the server keeps the history itself."""

    id: str
    messages: list[_Message] = []

    @property
    def ignored(self) -> list[str]:
        """The unsupported features that the request uses."""
        found = ["instructions"] if any(each.role == "system" for each in self.messages) else []
        parts = (part for each in self.messages for part in each.parts)
        return [*found, "files"] if any(each.get("type") == "file" for each in parts) else found

    @property
    def content(self) -> str:
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "user":
            return ""
        return "".join(str(each.get("text", "")) for each in last.parts)

    @property
    def message_id(self) -> str:
        """The client's id of the last message."""
        return self.messages[-1].id if self.messages else ""

    @property
    def reply_id(self) -> str:
        """The id of the assistant's message that a decision continues."""
        last = self.messages[-1] if self.messages else None
        return last.id if last is not None and last.role == "assistant" else ""

    @property
    def decisions(self) -> dict[str, tuple[str, str]]:
        """The client's decisions with their notes, by approval id."""
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "assistant":
            return {}
        found: dict[str, tuple[str, str]] = {}
        for part in last.parts:
            approval = part.get("approval")
            if part.get("state") == "approval-responded" and isinstance(approval, dict):
                decision = "allow" if approval.get("approved") is True else "deny"
                found[str(approval.get("id"))] = decision, str(approval.get("reason") or "")
        return found
