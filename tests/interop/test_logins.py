"""Clients of others log in to a protected server of ours, at a real authorization server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import fastmcp
import httpx2
import pytest
from fastmcp.client.auth import OAuth
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from tests.support.authorization import CALLBACK, Protected


class Mcp2Storage:
    """What a client of `mcp` 2 keeps."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    async def get_tokens(self) -> Any:
        return self._kept.get("tokens")

    async def set_tokens(self, tokens: Any) -> None:
        self._kept["tokens"] = tokens

    async def get_client_info(self) -> Any:
        return self._kept.get("client")

    async def set_client_info(self, client_info: Any) -> None:
        self._kept["client"] = client_info


class Person:
    """Who is shown a page, and what the browser brings back."""

    def __init__(self, server: Protected) -> None:
        self.logins = 0
        self._browser = server.browser
        self._query: dict[str, str] = {}

    async def open(self, url: str) -> None:
        self.logins += 1
        self._query = await self._browser(url)

    async def answer(self) -> AuthorizationCodeResult:
        return AuthorizationCodeResult.model_validate(self._query)


@asynccontextmanager
async def mcp2(server: Protected, person: Person) -> AsyncIterator[Client]:
    """Connect with `mcp` 2."""
    auth = OAuthClientProvider(
        server.url,
        OAuthClientMetadata(client_name="mcp", redirect_uris=[CALLBACK]),
        Mcp2Storage(),
        person.open,
        person.answer,
    )
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(auth=auth, timeout=20))
        yield await stack.enter_async_context(
            Client(streamable_http_client(server.url, http_client=http))
        )


@asynccontextmanager
async def fastmcp4(server: Protected, person: Person) -> AsyncIterator[fastmcp.Client[Any]]:
    """Connect with FastMCP 4."""

    class Login(OAuth):
        async def redirect_handler(self, authorization_url: str) -> None:
            await person.open(authorization_url)

        async def callback_handler(self) -> AuthorizationCodeResult:
            return await person.answer()

    async with fastmcp.Client(server.url, auth=Login(), timeout=20) as client:
        yield client


@pytest.mark.filterwarnings("ignore:Using in-memory token storage")
@pytest.mark.parametrize("connect", [mcp2, fastmcp4])
async def test_a_peer_logs_in_and_again_when_its_token_is_refused(
    protected_server: Protected, connect: Any
) -> None:
    person = Person(protected_server)
    async with connect(protected_server, person) as client:
        before = await client.call_tool("who", {})
        await client.call_tool("sign_out", {})
        after = await client.call_tool("who", {})

    assert [result.content[0].text for result in (before, after)] == ["ada: notes:read"] * 2
    assert person.logins == 2
    assert (await protected_server.done())["registrations"] == 1
