"""Logins in progress, in the cookies of browsers."""

from __future__ import annotations

import pytest
from msgspec import Struct

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import AuthError
from interlock.gateway.logins import login_attempt
from interlock.gateway.logins.login_attempt import AttemptCookies
from tests.support.rows import each_row

KEY = GatewayKey(bytes(range(32)))


class Content(Struct, frozen=True):
    text: str


def cookies(key: GatewayKey = KEY, purpose: str = "connect") -> AttemptCookies[Content]:
    return AttemptCookies(key, Content, purpose, "/oauth/callback")


def stored(text: str, state: str = "state") -> dict[str, str]:
    """Return the cookie of a login as a browser sends it."""
    _, header = cookies().sealed(state, Content(text), is_secure=True)
    name, _, value = header.decode().partition(";")[0].partition("=")
    return {name: value}


def test_login_is_opened_by_another_process_with_the_same_key_and_once_by_each():
    one, other, browser = cookies(), cookies(), stored("anna")
    assert other.opened(browser, "state") == one.opened(browser, "state") == Content("anna")
    one.use("state")

    with pytest.raises(AuthError, match="has ended, or began in another browser"):
        one.opened(browser, "state")


@each_row(
    ("state", "spoiled", "key", "purpose"),
    [
        ("another", {}, KEY, "connect"),
        ("state", {}, GatewayKey(bytes(range(1, 33))), "connect"),
        ("state", {}, KEY, "login"),
        ("state", {"value": ""}, KEY, "connect"),
        ("state", {"value": "AAAA"}, KEY, "connect"),
        ("state", {"value": "é!"}, KEY, "connect"),
        ("state", {"tail": "A"}, KEY, "connect"),
    ],
)
def test_foreign_or_changed_cookie_is_refused(
    state: str, spoiled: dict[str, str], key: GatewayKey, purpose: str
):
    opening = cookies(key, purpose)
    (value,) = stored("anna").values()
    value = spoiled.get("value", value) + spoiled.get("tail", "")

    with pytest.raises(AuthError, match="has ended"):
        opening.opened({opening._name(state): value}, state)


def test_login_expires_after_ten_minutes(monkeypatch: pytest.MonkeyPatch):
    browser, began = stored("anna"), login_attempt.now_micros()
    monkeypatch.setattr(login_attempt, "now_micros", lambda: began + 590_000_000)
    assert cookies().opened(browser, "state") == Content("anna")
    monkeypatch.setattr(login_attempt, "now_micros", lambda: began + 610_000_000)

    with pytest.raises(AuthError, match="has ended"):
        cookies().opened(browser, "state")


def test_login_that_no_browser_would_store_is_refused_when_it_begins():
    scopes = " ".join(f"https://api.example.com/auth/scope.{number}" for number in range(150))
    (value,) = stored(scopes).values()
    assert len(value) < 2_000  # they are compressed
    random = "".join(GatewayKey.random().fingerprint for _ in range(200))

    with pytest.raises(AuthError, match=r"does not fit in a cookie \(.* limit 4,096\): configure"):
        stored(random)
