"""What clients see of errors: a code, and no value."""

from __future__ import annotations

import pytest

from interlock.errors import (
    ConversationBusy,
    InvalidArguments,
    ModelRefused,
    StepLimit,
    StoreError,
    UnknownConversation,
)
from interlock.web.chat.errors import TurnError, explained


@pytest.mark.parametrize(
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
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else each,
)
def test_each_error_has_a_code_and_reveals_nothing(error: Exception, code: str) -> None:
    found, text = explained(error)

    assert found == code
    assert "canary" not in text
