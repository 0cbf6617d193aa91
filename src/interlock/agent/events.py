"""The events of an answer: text, tool calls, questions, and its end."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Struct

from interlock.calls.endings import Ending
from interlock.messages import AssistantMessage
from interlock.models import Notice, ReasoningDelta, TextDelta, Usage


class ToolStarted(Struct, frozen=True):
    """A tool call begins. `address` is the tool's wire name if the toolbox lacks the tool.

    `id` is the call's id from the model, and `call_id` its id in the audit trail. `agent` is the id
    of the subagent that makes the call; "" if no subagent does.
    """

    id: str
    address: str
    arguments: dict[str, Any]
    agent: str = ""
    call_id: str = ""


class ToolProgress(Struct, frozen=True):
    """A running tool reported its progress."""

    id: str
    progress: float
    total: float | None = None
    message: str = ""


class ToolFinished(Struct, frozen=True):
    """A tool call ended. `result` is the text for the model.

    `duration` is the seconds that the server took, or until a layer refused the call. `reason` is
    the refusing layer's code; "" if the call was not refused.
    """

    id: str
    address: str
    arguments: dict[str, Any]
    result: str
    is_error: bool
    duration: float
    agent: str = ""
    call_id: str = ""
    ending: Ending = "ran"
    reason: str = ""


class ApprovalAsked(Struct, frozen=True):
    """A call waits until a person allows or denies it.

    `hash` is the hash of the address and the arguments; `expires` is a UTC time in ISO 8601. `rule`
    is the id of the rule that requires the approval; `approvers` may decide about it.
    """

    id: str
    tool_call_id: str
    address: str
    arguments: dict[str, Any]
    reason: str
    expires: str
    hash: str
    call_id: str = ""
    rule: str = ""
    risk: str = "write"
    approvers: tuple[str, ...] = ("caller",)


def approval_hash(address: str, arguments: dict[str, Any]) -> str:
    """Return the hash of a call's address and arguments, as in `ApprovalAsked.hash`."""
    shown = msgspec.json.encode([address, arguments], order="sorted")
    return sha256(shown).hexdigest()


class QuestionAsked(Struct, frozen=True):
    """A server asks the user a question during a call. `params` are the params of its request.

    `expires` is a UTC time in ISO 8601; "" if the question does not expire.
    """

    id: str
    tool_call_id: str
    server: str
    method: str
    params: dict[str, Any]
    expires: str = ""


class Compacted(Struct, frozen=True):
    """The conversation is longer than the model's context.

    The event has the number of messages that the request leaves out or shortens. They stay stored.
    """

    left_out: int


class Stopped(Struct, frozen=True):
    """The user stopped the answer, or must answer a question first. This is the last event."""

    reason: Literal["stopped", "waiting"]


class Done(Struct, frozen=True):
    """The answer is complete. This is the last event; `usage` is the sum of all rounds."""

    message: AssistantMessage
    usage: Usage
    stop_reason: str


AgentEvent = (
    TextDelta
    | ReasoningDelta
    | Notice
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ApprovalAsked
    | QuestionAsked
    | Compacted
    | Stopped
    | Done
)
"""An event of `Agent.run`; the last one is `Done`."""
