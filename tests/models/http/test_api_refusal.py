from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from interlock.models.http.api_refusal import (
    ApiRefusal,
    decoded,
    error_in,
    is_page,
    reason_in,
    status_in,
)
from tests.support.rows import each_row

DETAIL = {"type": "extra_forbidden", "loc": ["body", "n"], "msg": "Extra inputs"}
# OpenRouter: openrouter.ai/docs/api-reference/errors
ROUTED = {"message": "Provider returned error", "code": 400}
ROUTED["metadata"] = {"raw": '{"error":{"message":"Bad schema"}}', "provider_name": "X"}


@each_row(
    ("body", "reason"),
    [
        ({"error": {"message": "No.", "type": "invalid_request_error"}}, "No."),
        ({"error": "No."}, "No."),
        ([{"error": {"code": 400, "message": "No.", "status": "INVALID_ARGUMENT"}}], "No."),
        ({"detail": "No."}, "No."),
        ({"choices": None, "base_resp": {"status_code": 1008, "status_msg": "No."}}, "No."),
        ({"detail": [DETAIL]}, "body.n: Extra inputs"),
        ({"object": "error", "message": {"detail": [DETAIL]}}, "body.n: Extra inputs"),
        ({"message": "No."}, "No."),
        ({"Message": "No."}, "No."),
        ({"errors": [{"message": "No."}, {"message": "And no."}]}, "No.; And no."),
        ({"errors": ["No."]}, "No."),
        ({"error": True, "message": "No."}, "No."),
        ({"error": "bad_request", "message": "No."}, "No."),
        ({"error": "bad_request"}, "bad_request"),
        ({"error": "Not good", "message": "No."}, "Not good; No."),
        ({"error": {"error": {"message": "No."}}}, "No."),
        ({"error": {"message": '{"error": {"message": "No."}}'}}, "No."),
        ({"error": ROUTED}, "Provider returned error; Bad schema"),
        ({"title": "Bad Request", "detail": "No."}, "No.; Bad Request"),
        ({"error": {"message": "No\n\x1b[31m way\u202e"}}, "No [31m way"),
        ("No.", "No."),
        (["No."], "No."),
        (
            "<html><head><title>502 Bad &amp; Gateway</title></head><body>x</body>",
            "502 Bad & Gateway",
        ),
        ("<html><style>a{}</style><p>Not <b>here</b></p></html>", "Not here"),
        ("<?xml version='1.0'?><Error><Message>No.</Message></Error>", "No."),
        ("", ""),
        ({}, ""),
        ([], ""),
        (5, ""),
        (None, ""),
        ({"error": {"message": None}}, ""),
    ],
)
def test_reason_is_found_in_every_form_of_an_error(body: Any, reason: str) -> None:
    assert reason_in(body) == reason


def test_long_and_deep_bodies_give_a_short_reason() -> None:
    deep: Any = "No."
    for _ in range(500):
        deep = {"error": deep}

    assert reason_in(deep) == ""
    assert len(reason_in({"error": "x " * 100_000})) <= 2_000
    assert len(reason_in({"errors": ["x" * 3_000] * 5_000})) <= 2_000
    assert len(reason_in("<p>" * 100_000)) <= 2_000


MEMBERS = st.sampled_from(["error", "message", "loc", "detail", "x"])


@given(
    st.recursive(
        st.text() | st.none() | st.integers(),
        lambda each: st.lists(each) | st.dictionaries(MEMBERS, each),
    )
)
def test_any_json_gives_a_reason_on_one_line(body: Any) -> None:
    reason = reason_in(decoded(json.dumps(body).encode()))

    assert reason.isprintable()
    assert ApiRefusal(400, reason, body).status == 400


@each_row(
    ("event", "status"),
    [
        ({"error": {"message": "No.", "code": 400}}, 400),
        ({"error": {"message": "No.", "code": "429"}}, 429),
        ({"error": {"message": "No.", "code": "invalid", "type": "x"}, "status_code": 422}, 422),
        ({"error": "No."}, 0),
        ({"type": "error", "error": {"type": "overloaded_error"}}, 529),
        ({"type": "error", "error": {"type": "api_error"}}, 0),
        ({"type": "error", "message": "No.", "code": "server_error"}, 0),
        ({"choices": [{"delta": {}, "error": {"code": 502, "message": "No."}}]}, 502),
        ({"error": {"code": 10**30}}, 0),
        ({"detail": "No."}, 0),
        ({"message": "No.", "code": 500}, 500),
    ],
)
def test_error_in_a_stream_is_found_with_its_status(event: Any, status: int) -> None:
    error = error_in(event)

    assert error
    assert status_in(error) == status


@each_row(
    "event",
    [
        {"choices": [{"delta": {"content": "error"}}]},
        {"choices": None, "error": None},
        {"choices": [], "error": {"message": "", "code": None}},
        {"choices": [], "error": {"message": "", "code": 0}, "detail": "x"},
        {"message": "queued", "code": 0},
        {"type": "response.completed", "response": {"error": None}},
        {"type": "ping"},
        [],
        5,
    ],
)
def test_other_events_of_a_stream_are_no_errors(event: Any) -> None:
    assert error_in(event) is None


def test_web_pages_are_distinguished_from_texts() -> None:
    assert [is_page(each) for each in ("<html>", "<?xml", "a < b", "")] == [
        True,
        True,
        False,
        False,
    ]
