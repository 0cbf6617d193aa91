"""Apps of servers: tickets for their documents, and whose they are."""

from __future__ import annotations

from typing import Any, cast

import pytest

from interlock.server.http.json_api import Problem
from interlock.web import apps
from interlock.web.apps import Apps


@pytest.fixture
def opened() -> Apps:
    return Apps(cast("Any", None), cast("Any", None))  # tickets need neither


def test_ticket_is_for_one_request(opened: Apps):
    _, ticket = opened.opened("/user:anna", "desk", b"<p>app", b"default-src 'none'")
    first, again, other = (opened.document(each) for each in (ticket, ticket, "none"))

    assert first is not None
    assert first.body == b"<p>app"
    assert dict(first.headers)[b"content-security-policy"] == b"default-src 'none'"
    assert again is other is None


def test_ticket_that_expired_is_for_no_request(opened: Apps, monkeypatch: pytest.MonkeyPatch):
    _, ticket = opened.opened("/user:anna", "desk", b"<p>app", b"")
    now = apps.monotonic() + apps.TICKET_TTL + 1
    monkeypatch.setattr(apps, "monotonic", lambda: now)

    assert opened.document(ticket) is None


def test_app_of_another_user_is_absent(opened: Apps):
    id, _ = opened.opened("/user:anna", "desk", b"", b"")

    assert opened.server_of("/user:anna", id) == "desk"
    for owner, wanted in (("/user:bert", id), ("/user:anna", "none"), ("", id)):
        with pytest.raises(Problem, match="no such app is open"):
            opened.server_of(owner, wanted)


def test_oldest_documents_make_room(opened: Apps, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(apps, "MAX_TICKETS", 2)
    tickets = [opened.opened("", "desk", b"", b"")[1] for _ in range(3)]

    assert [opened.document(each) is not None for each in tickets] == [False, True, True]
