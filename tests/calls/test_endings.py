"""How a call ended, by the error that it raised."""

from __future__ import annotations

import json
import re
from typing import get_args

from interlock.calls.endings import LIMITS, Ending, ending_of
from interlock.errors import (
    ApprovalMissing,
    CallRefused,
    InterlockError,
    LimitExceeded,
    LoginRequired,
    RequestTimeout,
    ServerUnavailable,
)
from interlock.web.files import FOLDER
from tests.support.rows import each_row


@each_row(
    ("error", "ending"),
    [
        (RequestTimeout("no answer"), "failed"),
        (ServerUnavailable("crm", "down"), "failed"),
        (LoginRequired("log in"), "failed"),
        (CallRefused("no rule allows it", "no_rule"), "refused"),
        (ApprovalMissing("not approved", "approval_denied", "r"), "refused"),
        (LimitExceeded("too many calls", "rate_limited", 1.0), "limited"),
        (LimitExceeded("too many calls today", "quota_exceeded", 1.0), "limited"),
        (CallRefused("changed since it was accepted", "tool_quarantined"), "held"),
        (CallRefused("the caller has gone", "cancelled"), "stopped"),
    ],
)
def test_error_of_a_layer_is_a_refusal_and_any_other_is_a_failure(
    error: InterlockError, ending: str
):
    assert ending_of(error) == ending


def test_pages_have_a_word_for_each_outcome_and_the_same_limits():
    source = (FOLDER / "shared/outcomes.js").read_text()
    outcomes = re.findall(r"^  (\w+): \{ icon", source, re.MULTILINE)
    limits = re.findall(r'^  "(\w+)",$', source, re.MULTILINE)
    words = json.loads((FOLDER / "shared/messages/en.json").read_text())

    assert set(outcomes) == {*get_args(Ending), "asking", "running"}
    assert len({words[f"outcome.{each}"] for each in outcomes}) == 8
    assert set(limits) == LIMITS
