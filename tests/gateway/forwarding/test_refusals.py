"""The reason of each refusal, in the two shapes that clients get."""

from __future__ import annotations

import msgspec
import pytest

from interlock.calls import Item
from interlock.errors import (
    AskRefused,
    AuditUnavailable,
    AuthError,
    CallRefused,
    ConnectionClosed,
    InterlockError,
    InvalidArguments,
    LimitExceeded,
    LoginRequired,
    MessageTooLarge,
    MissingCapability,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    ServerUnavailable,
)
from interlock.gateway.forwarding.refusals import refusal, refused
from interlock.layers.enforcement import CallDenied
from tests.support.rows import each_row

TOOL = Item("tools", "s", "t")

OF_CALLS = [
    (ServerUnavailable("s", "exited"), "server_down"),
    (ServerUnavailable("s", "off", "server_disabled"), "server_disabled"),
    (ServerUnavailable("s", "exited", "breaker_open", 2.1), "breaker_open"),
    (LimitExceeded("busy", "queue_timeout", 1), "queue_timeout"),
    (CallRefused("in question", "tool_quarantined"), "tool_quarantined"),
    (InvalidArguments("amount is missing"), "arguments_invalid"),
    (CallDenied("s:t", "denied_by_rule", "never"), "denied_by_rule"),
    (CallDenied("s:t", "no_rule"), "no_rule"),
    (CallDenied("s:t", "read_only"), "read_only"),
    (LimitExceeded("too many", "tool_rate_limited", 3), "tool_rate_limited"),
    (LimitExceeded("too many", "quota_exceeded", 3), "quota_exceeded"),
    (LoginRequired("log in"), "needs_login"),
    (AskRefused("undeclared", "cannot_ask"), "cannot_ask"),
    (AskRefused("whose?", "ask_ambiguous"), "ask_ambiguous"),
    (AskRefused("31 in a minute", "asks_exceeded"), "asks_exceeded"),
    (MissingCapability("sampling"), "cannot_ask"),
    (RemoteError(-32021, "no sampling"), "cannot_ask"),
    (RemoteError(-1, "broken"), "upstream_error"),
    (AuthError("forbidden", 403), "upstream_error"),
    (RequestTimeout("no answer"), "upstream_timeout"),
    (ConnectionClosed("closed"), "upstream_closed"),
    (RemoteProtocolError("malformed"), "protocol_error"),
    (MessageTooLarge("17 MiB"), "result_too_large"),
]


@each_row(("error", "reason"), OF_CALLS)
def test_refused_call_is_a_result_with_a_sentence_and_its_reason(
    error: InterlockError, reason: str
):
    result = msgspec.json.decode(refusal(TOOL, error))

    assert result["isError"] is True
    assert result["content"] == [{"type": "text", "text": str(error)}]
    shown = result["_meta"]["interlock/reason"]
    assert shown["code"] == reason
    assert len(shown["reference"]) == 12


@each_row(("error", "reason"), OF_CALLS)
def test_refused_resource_is_an_error_with_its_reason(error: InterlockError, reason: str):
    answer = refused(Item("resources", "s", "x://1"), error)

    assert answer.data["reason"] == reason
    assert len(answer.data["reference"]) == 12


def test_refusal_has_the_rule_the_retry_time_and_the_code_of_the_server():
    def shown(error: InterlockError) -> dict[str, object]:
        found: dict[str, object] = msgspec.json.decode(refusal(TOOL, error))["_meta"]
        return dict(found["interlock/reason"])  # type: ignore[call-overload]

    assert shown(CallDenied("s:t", "denied_by_rule", "never"))["rule"] == "never"
    assert shown(LimitExceeded("too many", "quota_exceeded", 2.2))["retryAfter"] == 3
    assert shown(ServerUnavailable("s", "exited", "breaker_open", 2.1))["retryAfter"] == 3
    assert shown(ServerUnavailable("s", "exited", retry_after=0.0))["retryAfter"] == 1
    assert shown(RemoteError(-7, "broken"))["upstreamCode"] == -7


@each_row(
    "error",
    [
        LimitExceeded("too many calls with this key", "rate_limited", 3),
        LimitExceeded("too many calls", "overloaded", 1),
        AuditUnavailable("the disk is full"),
    ],
    ids=["rate", "overload", "audit"],
)
def test_limits_and_audit_failures_are_errors_of_the_request_not_tool_results(
    error: InterlockError,
):
    for shape in (refusal, refused):
        with pytest.raises(type(error)):
            shape(TOOL, error)
