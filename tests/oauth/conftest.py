"""A protected server with its authorization server, and a client's calls to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import keyring
import pytest
from keyring.backend import KeyringBackend

from interlock.errors import AuthError, AuthRequired, InsufficientScope
from interlock.oauth import MemoryTokenStore, OAuth, TokenStore
from interlock.oauth.challenges import token_challenge
from interlock.oauth.storage import UserTokenStore
from tests.oauth.support import Safe
from tests.servers.authorization_server import AuthorizationServer, Browser, ProtectedServer

REDIRECT = "http://127.0.0.1:1/callback"


class World:
    """Both servers, a user with a browser, and the client's store."""

    def __init__(self, authorization: AuthorizationServer, server: ProtectedServer) -> None:
        self.authorization = authorization
        self.server = server
        self.browser = Browser()
        self.store: TokenStore = MemoryTokenStore()

    def oauth(self, **options: Any) -> OAuth:
        """Return an `OAuth` of the world; each acts like a separate process."""
        given = {"redirect_uri": REDIRECT, "ask": self.browser, "store": self.store}
        return OAuth(self.server.url, **{**given, **options})

    async def call(self, auth: Any) -> str:
        """Call the server as the client does; return the token that it has accepted."""
        for _ in range(4):
            token = await auth.valid_token()
            for _ in range(2):
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(
                        self.server.url, headers=auth.headers("GET", self.server.url)
                    ) as response,
                ):
                    is_resent = auth.needs_resend(response.status, response.headers)
                    if response.status == 200:
                        return str((await response.json())["token"])
                    challenge = response.headers["WWW-Authenticate"]
                if not is_resent:
                    break
            error = self.refusal(response.status, challenge, token)
            await auth.refresh_after(error)
        raise error

    def refusal(self, status: int, challenge: str, token: str) -> AuthError:
        """Return the error that the transport raises."""
        error: AuthError = AuthRequired("no", status, challenge)
        if status == 403:
            error = InsufficientScope(token_challenge(challenge).scopes, challenge)
        error.token_used = token
        return error


Build = Callable[..., Awaitable[World]]


@pytest.fixture
async def build() -> AsyncIterator[Build]:
    """Return a function that starts a world with a server path and an issuer path."""
    sites = []

    async def world(path: str = "/mcp", issuer_path: str = "") -> World:
        authorization = AuthorizationServer(issuer_path)
        await authorization.open()
        sites.append(authorization)
        server = ProtectedServer(authorization, path)
        await server.open()
        sites.append(server)
        return World(authorization, server)

    yield world
    for site in sites:
        await site.close()


@pytest.fixture
async def world(build: Build) -> World:
    return await build()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "logins"


@pytest.fixture
def store(folder: Path) -> TokenStore:
    return UserTokenStore(folder, keyring=False)


@pytest.fixture
def use() -> Iterator[Callable[[KeyringBackend], None]]:
    before = keyring.get_keyring()
    yield keyring.set_keyring
    keyring.set_keyring(before)


@pytest.fixture
def safe(use: Callable[[KeyringBackend], None]) -> Safe:
    safe = Safe()
    use(safe)
    return safe
