"""The login of one user to one server, in the table of credentials."""

from __future__ import annotations

from collections.abc import AsyncIterator
from time import time

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import StoreLocked
from interlock.oauth.storage import Tokens
from interlock.store import login_tokens as login_tokens_module
from interlock.store.credentials import LOGIN, CredentialStore, Place
from interlock.store.database.database import open_database
from interlock.store.login_tokens import LoginTokens

URL = "https://github.example/mcp"
ANNA = Place("user:anna", "github", LOGIN)
TOKENS = Tokens(access_token="a1", refresh_token="r1", issuer="https://id.example")


@pytest.fixture
async def credentials(sqlite: str) -> AsyncIterator[CredentialStore]:
    database = await open_database(sqlite)
    yield CredentialStore(database, GatewayKey(bytes(range(32))))
    await database.close()


async def save(login: LoginTokens, tokens: Tokens) -> None:
    async with login.lock(URL):
        await login.save_tokens(URL, tokens)


async def test_tokens_are_read_back_for_their_user_only(credentials: CredentialStore):
    await save(LoginTokens(credentials, ANNA), TOKENS)

    other = Place("user:bert", "github", LOGIN)
    assert (await LoginTokens(credentials, ANNA).load_tokens(URL)) == TOKENS
    assert await LoginTokens(credentials, other).load_tokens(URL) is None


async def test_only_the_token_that_was_refused_expires(credentials: CredentialStore):
    login = LoginTokens(credentials, ANNA)
    await save(login, TOKENS)

    await login.expire(URL, "an older one")
    assert await login.load_tokens(URL) == TOKENS
    await login.expire(URL, "a1")

    ended = await login.load_tokens(URL)
    assert ended is not None
    assert ended.refresh_token == ""
    assert ended.expires_at is not None
    assert ended.expires_at <= time()


async def test_login_lock_excludes_another_holder(
    credentials: CredentialStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(login_tokens_module, "LOCK_SECONDS", 0.05)
    one, other = LoginTokens(credentials, ANNA), LoginTokens(credentials, ANNA)

    async with one.lock(URL):
        with pytest.raises(StoreLocked, match="the login of user:anna to server 'github'"):
            async with other.lock(URL):
                pass
    async with other.lock(URL):
        pass
