"""How a call ended, by the error that it raised."""

from __future__ import annotations

import pytest

from interlock.calls.endings import ending_of
from interlock.errors import (
    ApprovalMissing,
    CallRefused,
    InterlockError,
    LimitExceeded,
    LoginRequired,
    RequestTimeout,
    ServerUnavailable,
)


@pytest.mark.parametrize(
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
    ids=lambda each: getattr(each, "reason", "") or str(each),
)
def test_error_of_a_layer_is_a_refusal_and_any_other_is_a_failure(
    error: InterlockError, ending: str
):
    assert ending_of(error) == ending
