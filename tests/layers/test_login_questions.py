"""The layer that has users connect, by itself; with a gateway, see `tests/gateway`."""

from __future__ import annotations

import asyncio

import pytest

from interlock.calls import Call
from interlock.errors import AuthError, LoginNeeded, LoginRequired
from interlock.layers.login_questions import LoginQuestions
from tests.layers.support import Upstream, call_of
from tests.support.rows import each_row

URL = "https://gateway.example/connect/1"


class Logins:
    """Credentials of users for the server "crm".

    Attributes:
        lacking: The user lacks one.
        ended: Owners and servers whose login was refused.
    """

    def __init__(self, *, lacking: bool = False, url: str = URL) -> None:
        self.lacking = lacking
        self.ended: list[tuple[str, str]] = []
        self.checked = 0
        self._url = url

    def check_caller(self, call: Call) -> None:
        """Every caller has all that the servers need."""

    def is_needed(self, server: str) -> bool:
        return server == "crm"

    async def check(self, _: Call) -> None:
        self.checked += 1
        if self.lacking:
            raise LoginRequired("crm needs a login")

    async def refused(self, owner: str, server: str) -> None:
        self.ended.append((owner, server))

    def connect_url(self, owner: str, server: str) -> str:
        return self._url if owner and server else ""

    def next_change(self, *_: str) -> asyncio.Event:
        return asyncio.Event()


async def test_call_of_a_user_with_the_needed_credential_is_made():
    logins, upstream = Logins(), Upstream()
    await LoginQuestions(logins).around(["crm"])(upstream.handle)(call_of())

    assert upstream.order == ["anna"]
    assert logins.checked == 1


@each_row("call", [call_of(server="desk"), call_of(None)])
async def test_call_that_needs_no_credential_of_a_user_is_not_checked(call: Call):
    logins = Logins(lacking=True)
    await LoginQuestions(logins).around(["crm", "desk"])(Upstream().handle)(call)

    assert logins.checked == 0


@each_row(("url", "way"), [(URL, f"open {URL}"), ("", "ask the operator")])
async def test_user_whose_client_cannot_be_asked_gets_the_link_in_the_error(url: str, way: str):
    upstream = Upstream()
    handle = LoginQuestions(Logins(lacking=True, url=url)).around(["crm"])(upstream.handle)
    with pytest.raises(LoginNeeded, match=way) as caught:
        await handle(call_of())

    assert caught.value.url == url
    assert upstream.order == []


async def test_login_that_the_server_refuses_is_not_used_again():
    logins, upstream = Logins(), Upstream(AuthError("no", 401))
    with pytest.raises(LoginRequired, match=f"open {URL} and call again"):
        await LoginQuestions(logins).around(["crm"])(upstream.handle)(call_of())

    assert logins.ended == [("acme/anna", "crm")]


async def test_server_that_forbids_the_call_keeps_the_login():
    logins, upstream = Logins(), Upstream(AuthError("no", 403))
    with pytest.raises(AuthError, match="no"):
        await LoginQuestions(logins).around(["crm"])(upstream.handle)(call_of())

    assert logins.ended == []
