"""Which login of the local user programs beside a gateway use."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.config.servers import KeptLogin
from interlock.oauth import MemoryTokenStore
from interlock.oauth.storage import Tokens, TokenStore
from interlock.store.credentials import LOGIN, CredentialStore, Place
from interlock.store.local_login import LocalLogin
from interlock.store.login_tokens import LoginTokens

URL = "https://notes.example/mcp"
PLACE = Place("user:local", "notes", LOGIN)


async def save(store: TokenStore, token: str, at: float) -> None:
    tokens = Tokens(access_token=token, received_at=at, issuer="https://as.example")
    async with store.lock(URL):
        await store.save_tokens(URL, tokens)


async def token_of(store: TokenStore) -> str | None:
    found = await store.load_tokens(URL)
    return None if found is None else found.access_token


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "gateway.db")


@pytest.mark.parametrize(
    ("kept", "own", "used"),
    [(None, None, None), (1, None, "kept"), (None, 1, "own"), (2, 1, "kept"), (1, 2, "own")],
)
async def test_the_later_login_is_used_and_renewed_where_it_is_stored(
    place: str, kept: int | None, own: int | None, used: str | None
):
    mine = MemoryTokenStore()
    async with CredentialStore.open(place) as credentials:
        theirs = LoginTokens(credentials, PLACE)
        if kept is not None:
            await save(theirs, "kept", kept)
        if own is not None:
            await save(mine, "own", own)
        login = LocalLogin(KeptLogin(place, "notes"), mine)
        assert await token_of(login) == used

        await save(login, "renewed", 3)

        assert await token_of(login) == "renewed"
        renewed = {"kept": theirs, "own": mine, None: mine}[used]
        assert await token_of(renewed) == "renewed"


async def test_login_of_another_user_or_server_is_not_used(place: str):
    async with CredentialStore.open(place) as credentials:
        for other in (Place("user:anna", "notes", LOGIN), Place("user:local", "wiki", LOGIN)):
            await save(LoginTokens(credentials, other), "theirs", 1)

    assert await token_of(LocalLogin(KeptLogin(place, "notes"), MemoryTokenStore())) is None
