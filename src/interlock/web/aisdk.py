"""Turns as chunks of the UI message stream of the AI SDK, version 1."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.types import JsonObject

HEADER = (b"x-vercel-ai-ui-message-stream", b"v1")
END = b"data: [DONE]\n\n"


class AiSdkEncoder:
    """Encodes the events of one response.

    Args:
        message: The id of the assistant's message.
        announced: Calls that the client knows of already.
    """

    def __init__(self, message: str, announced: frozenset[str]) -> None:
        self._message = message
        self._announced = set(announced)
        self._denied: set[str] = set()
        self._open = ""
        self._parts = 0
        self._has_results = False

    def start(self) -> list[JsonObject]:
        """Return the chunks that begin the response."""
        return [{"type": "start", "messageId": self._message}, {"type": "start-step"}]

    def feed(self, event: JsonObject) -> list[JsonObject]:
        """Return the chunks for an event of the turn."""
        match event["type"]:
            case "token":
                return self._piece("text", event["content"])
            case "reasoning":
                return self._piece("reasoning", event["content"])
            case "tool_start":
                return self._call(event)
            case "tool_progress":
                members = ("tool_call_id", "progress", "total", "message")
                data = {key: event[key] for key in members if key in event}
                return [{"type": "data-progress", "data": data, "transient": True}]
            case "tool_complete":
                self._has_results = True
                return [*self._close(), _output(event)]
            case "approval":
                request = {
                    "type": "tool-approval-request",
                    "approvalId": event["approval_id"],
                    "toolCallId": event["tool_call_id"],
                }
                return [*self._call(event), request]
            case "complete" if event["stop_reason"] == "stopped":
                return [*self._close(), {"type": "abort"}]
            case "complete":
                reason = "length" if event["stop_reason"] == "length" else "stop"
                return [*self._close(), *_finish(reason)]
            case "error":
                text = f"{event['code']}: {event['message']}"
                return [*self._close(), {"type": "error", "errorText": text}]
        return []

    def interrupted(self) -> list[JsonObject]:
        """Return the chunks that end the response because it waits for a person."""
        return [*self._close(), *_finish("tool-calls")]

    def _piece(self, kind: str, text: str) -> list[JsonObject]:
        if not text:
            return []
        chunks: list[JsonObject] = []
        if self._open != kind:
            chunks = [*self._close(), *self._next_step()]
            self._parts += 1
            self._open = kind
            chunks.append({"type": f"{kind}-start", "id": f"p{self._parts}"})
        return [*chunks, {"type": f"{kind}-delta", "id": f"p{self._parts}", "delta": text}]

    def _close(self) -> list[JsonObject]:
        kind, self._open = self._open, ""
        return [{"type": f"{kind}-end", "id": f"p{self._parts}"}] if kind else []

    def _next_step(self) -> list[JsonObject]:
        if not self._has_results:
            return []
        self._has_results = False
        return [{"type": "finish-step"}, {"type": "start-step"}]

    def _call(self, event: JsonObject) -> list[JsonObject]:
        id = event["tool_call_id"]
        if id in self._announced:
            return []
        self._announced.add(id)
        chunk = {
            "type": "tool-input-available",
            "toolCallId": id,
            "toolName": event["tool_name"],
            "input": msgspec.json.decode(event["tool_input"]),
            "dynamic": True,
        }
        return [*self._close(), *self._next_step(), chunk]


def _output(event: JsonObject) -> JsonObject:
    id = event["tool_call_id"]
    if event.get("reason") == "approval_denied":
        return {"type": "tool-output-denied", "toolCallId": id}
    if event["is_error"]:
        text = event["tool_result"]
        return {"type": "tool-output-error", "toolCallId": id, "errorText": text, "dynamic": True}
    return {
        "type": "tool-output-available",
        "toolCallId": id,
        "output": event["tool_result"],
        "dynamic": True,
    }


def _finish(reason: str) -> list[JsonObject]:
    return [{"type": "finish-step"}, {"type": "finish", "finishReason": reason}]


class _Message(msgspec.Struct):
    role: str
    id: str = ""
    parts: list[dict[str, Any]] = []


class AiSdkInput(msgspec.Struct):
    """What a client sends. History is the server's own: only the last message is read."""

    id: str
    messages: list[_Message] = []

    @property
    def content(self) -> str:
        """The text of the user's last message."""
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "user":
            return ""
        return "".join(str(each.get("text", "")) for each in last.parts)

    @property
    def message_id(self) -> str:
        """The client's id of that message."""
        return self.messages[-1].id if self.messages else ""

    @property
    def reply_id(self) -> str:
        """The id of the assistant's message that a decision continues."""
        last = self.messages[-1] if self.messages else None
        return last.id if last is not None and last.role == "assistant" else ""

    @property
    def decisions(self) -> dict[str, tuple[str, str]]:
        """Decision and note by the id of an approval."""
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
