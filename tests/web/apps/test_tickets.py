"""Tickets for the documents of apps."""

from __future__ import annotations

import pytest

from interlock.web.apps import tickets as app_tickets
from interlock.web.apps.tickets import Tickets


def test_ticket_serves_one_request_only():
    tickets = Tickets()
    path = tickets.path_of(b"<p>app", b"default-src 'none'")
    first, again, other = (tickets.document(each) for each in (path, path, "/apps/none"))

    assert first is not None
    assert first.body == b"<p>app"
    assert dict(first.headers)[b"content-security-policy"] == b"default-src 'none'"
    assert again is other is None


def test_expired_ticket_serves_no_document(monkeypatch: pytest.MonkeyPatch):
    tickets = Tickets()
    path = tickets.path_of(b"<p>app", b"")
    now = app_tickets.monotonic() + app_tickets.TICKET_TTL + 1
    monkeypatch.setattr(app_tickets, "monotonic", lambda: now)

    assert tickets.document(path) is None


def test_oldest_documents_make_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app_tickets, "MAX_TICKETS", 2)
    tickets = Tickets()
    paths = [tickets.path_of(b"", b"") for _ in range(3)]

    assert [tickets.document(each) is not None for each in paths] == [False, True, True]
