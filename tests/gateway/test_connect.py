"""Users connect to protected servers behind a gateway, with a real authorization server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.gateway.conftest import RunningGateway, bearer
from tests.server.http.conftest import Reply
from tests.support.authorization import Browser, Protected

pytestmark = pytest.mark.program


def per_user(server: Protected, **more: Any) -> dict[str, Any]:
    return {"url": server.url, "sharing": "per_user", "auth": "oauth", **more}


class Person:
    """A user with a key of the gateway and a browser."""

    def __init__(self, gateway: RunningGateway, server: Protected, name: str, key: str) -> None:
        self.key = key
        self.browser = Browser(server.issuer)
        self.browser.person = name
        self._gateway = gateway

    async def call(self, tool: str = "notes__who", **options: Any) -> Reply:
        return await self._gateway.call(tool, self.key, **options)

    async def open(self, url: str, key: str | None = None) -> Reply:
        """Post to the page of a link, as its script does."""
        return await self._gateway.http.request(
            "POST", urlsplit(url).path, b"{}", headers=bearer(self.key if key is None else key)
        )

    async def connect(self, url: str) -> Reply:
        """Open a link, log in, and follow the redirect to the callback."""
        opened = await self.open(url)
        assert opened.code == 200, opened.body
        cookie = (opened.header("set-cookie") or "").partition(";")[0]
        return await self.come_back(await self.browser.callback(opened.json["location"]), cookie)

    async def come_back(self, callback: str, cookie: str) -> Reply:
        parts = urlsplit(callback)
        headers = {"cookie": cookie, "sec-fetch-site": "cross-site"}
        return await self._gateway.http.request(
            "GET", parts.path, headers=headers, query=parts.query
        )


def reason(reply: Reply) -> dict[str, Any]:
    found: dict[str, Any] = reply.json["result"]["_meta"]["interlock/reason"]
    return found


@pytest.fixture
def person(protected_server: Protected) -> Callable[..., Any]:
    async def make(gateway: RunningGateway, name: str) -> Person:
        return Person(gateway, protected_server, name, await gateway.key(name))

    return make


async def test_users_log_in_by_the_link_of_a_refusal_and_get_their_own_accounts(
    running, protected_server, person
):
    async with running(notes=per_user(protected_server)) as gateway:
        ada, bob = await person(gateway, "ada"), await person(gateway, "bob")
        for each in (ada, bob):
            refused = await each.call()
            assert reason(refused)["code"] == "needs_login"
            done = await each.connect(reason(refused)["url"])
            assert (done.code, b"You are connected to" in done.body) == (200, True), done.body
        answers = [(await each.call()).text for each in (ada, bob, ada)]

    assert [each.partition(":")[0] for each in answers] == ["ada", "bob", "ada"]
