"""What clients see of errors: a code, and no value unless the client is the owner."""

from __future__ import annotations

from interlock.errors import (
    ContextTooLong,
    ConversationBusy,
    InvalidArguments,
    MissingExtra,
    ModelError,
    ModelInterrupted,
    ModelOverloaded,
    ModelRefused,
    ModelUnavailable,
    StepLimit,
    StoreError,
    UnknownConversation,
)
from interlock.models.http import ApiRefusal
from interlock.web.chat.errors import TurnError, explained
from tests.support.rows import each_row


@each_row(
    ("error", "code"),
    [
        (TurnError("too_large", "too many files"), "too_large"),
        (StepLimit(3), "step_limit"),
        (ModelRefused("canary"), "model_failed"),
        (ConversationBusy("canary"), "busy"),
        (UnknownConversation("canary"), "not_found"),
        (InvalidArguments("x must be a number"), "bad_message"),
        (StoreError("canary"), "internal"),
        (KeyError("canary"), "internal"),
    ],
)
def test_each_error_has_a_code_and_reveals_nothing(error: Exception, code: str) -> None:
    found, text = explained(error)

    assert found == code
    assert "canary" not in text


def failed(kind: type[ModelError], status: int = 0, code: str = "", wait: float | None = None):
    """Return an error of a model, with the refusal of its provider as the cause."""
    error = kind("10.0.0.7:8000 said canary; check CANARY_KEY")
    if status:
        body = {"error": {"code": code, "message": "canary"}}
        error.__cause__ = ApiRefusal(status, "canary", body, retry_after=wait)
    return error


@each_row(
    ("error", "says"),
    [
        (failed(ModelRefused, 401), "refuses the key of this gateway; tell the operator"),
        (failed(ModelRefused, 429, "insufficient_quota"), "has no credit left; tell the operator"),
        (failed(ModelRefused, 402), "has no credit left"),
        (failed(ModelOverloaded, 429, wait=90), "try again in 90 s"),
        (failed(ModelOverloaded, 503), "is overloaded; try again later"),
        (failed(ModelUnavailable, 404), "does not have this model; use another one"),
        (failed(ModelUnavailable, 500), "failed (500); try again later"),
        (failed(ModelUnavailable), "cannot be used now; try again later"),
        (failed(ModelInterrupted), "was cut off; continue it"),
        (failed(ModelRefused, 400), "refused the request (400); change the message"),
        (failed(ContextTooLong, 400), "too long for it; start another one"),
        (MissingExtra("canary", "local"), "lacks a package"),
    ],
)
def test_error_of_a_model_shows_a_local_user_the_cause_and_a_gateway_user_a_remedy(
    error: ModelError | MissingExtra, says: str
) -> None:
    assert explained(error, is_local=True) == ("model_failed", str(error))

    code, text = explained(error)
    assert code == "model_failed"
    assert says in text
    assert not any(each in text for each in ("canary", "10.0.0.7", "CANARY_KEY"))
