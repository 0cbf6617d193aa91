"""Other clients that log in to a protected server: `mcp` 2 and FastMCP 4."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import fastmcp
import httpx2
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
