"""Errors of turns, and errors as clients receive them: a stable code and a text.

The person at their own machine gets the whole text. Users of a gateway get texts without secrets,
addresses and values, which are for its operator.
"""

from __future__ import annotations

from interlock.errors import (
    ContextTooLong,
    ConversationBusy,
    InterlockError,
    InvalidArguments,
    MissingExtra,
    ModelError,
    ModelInterrupted,
    ModelOverloaded,
    StepLimit,
    StoreFull,
    UnknownConversation,
)
from interlock.models.http import ApiRefusal

_OPERATOR = "tell the operator of this gateway"


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


def explained(error: Exception, *, is_local: bool = False) -> tuple[str, str]:
    """Return the code and the text with which clients receive an error.

    Args:
        is_local: Whether the client is the person whose machine and keys these are.
    """
    match error:
        case TurnError():
            return error.code, str(error)
        case StepLimit():
            return "step_limit", str(error)
        case ModelError() | MissingExtra():
            return "model_failed", str(error) if is_local else _of_model(error)
        case StoreFull():
            return "storage_full", str(error)
        case ConversationBusy():
            return "busy", "a turn of this conversation is under way"
        case UnknownConversation():
            return "not_found", "no such conversation"
        case InvalidArguments():
            return "bad_message", str(error)
        case InterlockError() if is_local:
            return "failed", str(error)
        case _:
            return "internal", ""


def _of_model(error: ModelError | MissingExtra) -> str:
    """Return why a model failed, and what a user of a gateway can do."""
    refusal = error.__cause__
    status = refusal.status if isinstance(refusal, ApiRefusal) else 0
    match error:
        case ContextTooLong():
            return "the conversation is too long for it; start another one, or use another model"
        case ModelInterrupted():
            return "its answer was cut off; continue it, or try again"
        case ModelOverloaded():
            wait = refusal.retry_after if isinstance(refusal, ApiRefusal) else None
            when = "later" if wait is None else f"in {wait:g} s"
            return f"its provider limits requests or is overloaded; try again {when}"
        case MissingExtra():
            return f"this gateway lacks a package for it; {_OPERATOR}"
    if isinstance(refusal, ApiRefusal) and refusal.is_unpaid:
        return f"the account of this gateway at its provider has no credit left; {_OPERATOR}"
    if status in (401, 403):
        return f"its provider refuses the key of this gateway; {_OPERATOR}"
    if status == 404:
        return f"its provider does not have this model; use another one, or {_OPERATOR}"
    if status == 408 or status >= 500:
        return f"its provider failed ({status}); try again later"
    if status:
        return f"its provider refused the request ({status}); change the message, or {_OPERATOR}"
    return f"its provider cannot be used now; try again later, or {_OPERATOR}"
