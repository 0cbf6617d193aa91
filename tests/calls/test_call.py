"""A call's outcome."""

from __future__ import annotations

import re

import pytest
from msgspec import Raw

from interlock.calls import Outcome, call
from interlock.calls.call import new_call_id
from interlock.errors import RemoteProtocolError
from tests.support.rows import each_row


@each_row(
    ("raw", "expected"),
    [(b'{"content":[]}', False), (b'{"content":[],"isError":true}', True)],
)
def test_outcome_reports_an_error_without_decoding_the_content(raw: bytes, expected: bool):
    assert Outcome(Raw(raw)).is_error is expected


@each_row("raw", [b'{"isError":"yes"}', b"5"])
def test_outcome_of_a_malformed_result_is_an_error_of_the_server(raw: bytes):
    with pytest.raises(RemoteProtocolError, match="malformed tools/call result"):
        _ = Outcome(Raw(raw)).is_error


def test_ids_of_calls_sort_by_the_time_at_which_they_were_made(monkeypatch):
    ids = []
    for milliseconds in (1_000, 1_010, 1_000_000):
        monkeypatch.setattr(call, "time_ns", lambda at=milliseconds: at * 1_000_000)
        ids.append(new_call_id())
    monkeypatch.undo()
    ids.append(new_call_id())

    assert ids == sorted(set(ids))
    assert all(re.fullmatch("c_[0-9a-z]{18}", each) for each in ids)


def test_ids_can_be_made_until_the_last_year_of_the_clock(monkeypatch):
    monkeypatch.setattr(call, "time_ns", lambda: 2**63 - 1)

    assert new_call_id().startswith("c_zzzzzzzz")
