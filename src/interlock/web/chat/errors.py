"""Errors of turns, and errors as clients receive them: a stable code and a text without values."""

from __future__ import annotations

from interlock.errors import (
    ConversationBusy,
    InterlockError,
    InvalidArguments,
    ModelError,
    StepLimit,
    StoreFull,
    UnknownConversation,
)


class TurnError(InterlockError):
    """A client's request about a turn was refused.

    Attributes:
        code: A stable code for programs.
        retry_after: Seconds until the request may succeed; None if time alone does not help.
    """

    def __init__(self, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


def explained(error: Exception) -> tuple[str, str]:
    """Return the code and the text with which clients receive an error; they contain no values."""
    match error:
        case TurnError():
            return error.code, str(error)
        case StepLimit():
            return "step_limit", str(error)
        case ModelError():
            return "model_failed", "its provider gave no usable answer; try again"
        case StoreFull():
            return "storage_full", str(error)
        case ConversationBusy():
            return "busy", "a turn of this conversation is under way"
        case UnknownConversation():
            return "not_found", "no such conversation"
        case InvalidArguments():
            return "bad_message", str(error)
        case _:
            return "internal", ""
