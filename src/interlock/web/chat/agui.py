"""Encodes turns as events of the protocol AG-UI, version 1.0."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.types import JsonObject
from interlock.web.chat.encoding import TurnEncoder

PROTOCOL_VERSION = "1.0"
_DECISION = {
    "type": "object",
    "properties": {"decision": {"enum": ["allow", "deny"]}, "note": {"type": "string"}},
    "required": ["decision"],
}


class AguiEncoder(TurnEncoder):
    """Encodes a turn's events as those of one AG-UI run.

    Args:
        thread: The client's id of the conversation.
        run: The client's id of the run.
        turn: The turn's id.
        announced: Ids of calls that the client already knows.
    """

    def __init__(self, thread: str, run: str, turn: str, announced: frozenset[str]) -> None:
        super().__init__(announced)
        self._ids = {"threadId": thread, "runId": run}
        self._turn = turn
        self._run = run
        self._replies = 1
        self._interrupts: list[JsonObject] = []

    @property
    def _message(self) -> str:
        """The id of the model's current reply, which is the parent of the reply's calls."""
        return f"{self._turn}-{self._run}-{self._replies}"

    def start(self) -> list[JsonObject]:
        return [{"type": "RUN_STARTED", **self._ids, "protocolVersion": PROTOCOL_VERSION}]

    def interrupted(self) -> list[JsonObject]:
        outcome = {"type": "interrupt", "interrupts": self._interrupts}
        return [*self._end(), {"type": "RUN_FINISHED", **self._ids, "outcome": outcome}]

    def _opened(self, kind: str) -> list[JsonObject]:
        return _opening(kind, self._message)

    def _delta(self, kind: str, text: str) -> JsonObject:
        id = self._message if kind == "text" else f"{self._message}-r"
        name = "TEXT_MESSAGE_CONTENT" if kind == "text" else "REASONING_MESSAGE_CONTENT"
        return {"type": name, "messageId": id, "delta": text}

    def _closed(self, kind: str) -> list[JsonObject]:
        if kind == "text":
            return [{"type": "TEXT_MESSAGE_END", "messageId": self._message}]
        id = f"{self._message}-r"
        return [
            {"type": "REASONING_MESSAGE_END", "messageId": id},
            {"type": "REASONING_END", "messageId": id},
        ]

    def _replied(self) -> list[JsonObject]:
        self._replies += 1
        return []

    def _call(self, event: JsonObject) -> list[JsonObject]:
        id = event["tool_call_id"]
        return [
            {
                "type": "TOOL_CALL_START",
                "toolCallId": id,
                "toolCallName": event["tool_name"],
                "parentMessageId": self._message,
            },
            {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": event["tool_input"]},
            {"type": "TOOL_CALL_END", "toolCallId": id},
        ]

    def _progress(self, progress: JsonObject) -> JsonObject:
        return {"type": "CUSTOM", "name": "interlock.progress", "value": progress}

    def _result(self, event: JsonObject) -> JsonObject:
        text = event["tool_result"]
        if event["is_error"] and not text.startswith("error: "):
            text = f"error: {text}"
        return {
            "type": "TOOL_CALL_RESULT",
            "messageId": f"{event['tool_call_id']}-result",
            "toolCallId": event["tool_call_id"],
            "content": text,
            "role": "tool",
        }

    def _approval(self, event: JsonObject) -> list[JsonObject]:
        self._interrupts.append(_interrupt(event))
        return []

    def _complete(self, event: JsonObject) -> list[JsonObject]:
        is_stopped = event["stop_reason"] == "stopped"
        outcome = {"type": "cancelled" if is_stopped else "success"}
        finished: JsonObject = {"type": "RUN_FINISHED", **self._ids, "outcome": outcome}
        if used := event.get("usage"):
            finished["usage"] = [
                {"inputTokens": used["input_tokens"], "outputTokens": used["output_tokens"]}
            ]
        return [finished]

    def _error(self, event: JsonObject) -> JsonObject:
        return {"type": "RUN_ERROR", "code": event["code"], "message": event["message"]}


def _opening(kind: str, id: str) -> list[JsonObject]:
    if kind == "text":
        return [{"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"}]
    id = f"{id}-r"
    return [
        {"type": "REASONING_START", "messageId": id},
        {"type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning"},
    ]


def _interrupt(event: JsonObject) -> JsonObject:
    return {
        "id": event["approval_id"],
        "reason": "tool_call",
        "message": f"{event['tool_name']}: {event['reason']}",
        "toolCallId": event["tool_call_id"],
        "responseSchema": _DECISION,
        "expiresAt": event["expires"],
    }


class _Resume(msgspec.Struct, rename="camel"):
    interrupt_id: str
    status: str = "resolved"
    payload: Any = None


class _Message(msgspec.Struct):
    role: str
    content: Any = ""
    id: str = ""


class AguiInput(msgspec.Struct, rename="camel"):
    """A client's request. Its history, tools and state are ignored: the server keeps its own."""

    thread_id: str
    run_id: str
    messages: list[_Message] = []
    resume: list[_Resume] | None = None
    tools: Any = None
    state: Any = None

    @property
    def ignored(self) -> list[str]:
        """The unsupported features that the request uses."""
        found = [name for name in ("tools", "state") if getattr(self, name)]
        if any(each.role in ("system", "developer") for each in self.messages):
            found.append("instructions")
        parts = [part for each in self.messages for part in _parts(each.content)]
        return [*found, "files"] if any(each.get("type") != "text" for each in parts) else found

    @property
    def content(self) -> str:
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "user":
            return ""
        if isinstance(last.content, str):
            return last.content
        return "".join(str(each.get("text", "")) for each in _parts(last.content))

    @property
    def message_id(self) -> str:
        """The client's id of the new message."""
        return self.messages[-1].id if self.messages else ""

    @property
    def decisions(self) -> dict[str, tuple[str, str]]:
        """The client's decisions with their notes, by approval id."""
        return {each.interrupt_id: _decision(each) for each in self.resume or ()}


def _parts(content: Any) -> list[dict[str, Any]]:
    found = content if isinstance(content, list) else []
    return [each for each in found if isinstance(each, dict)]


def _decision(entry: _Resume) -> tuple[str, str]:
    payload = entry.payload if isinstance(entry.payload, dict) else {}
    decision = payload.get("decision") if entry.status == "resolved" else "deny"
    return "allow" if decision == "allow" else "deny", str(payload.get("note", ""))
