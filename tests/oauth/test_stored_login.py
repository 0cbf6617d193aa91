"""Stored logins, in programs that cannot ask a user."""

from __future__ import annotations

import pytest

from interlock.errors import LoginRequired
from interlock.oauth import ClientIdentity
from interlock.oauth import stored_login as stored_login_module
from interlock.oauth.logout import logout
from interlock.oauth.stored_login import StoredLogin
from tests.oauth.conftest import World
from tests.oauth.support import Counting


@pytest.fixture
async def token(world: World) -> str:
    """The token of an earlier login."""
    world.store = Counting()
    return await world.call(world.oauth())


def stored_login(
    world: World, *, is_expected: bool = True, client: ClientIdentity | None = None
) -> StoredLogin:
    return StoredLogin(world.server.url, is_expected=is_expected, client=client, store=world.store)


async def test_the_token_of_an_earlier_login_is_sent(world: World, token: str):
    login = stored_login(world)

    assert login.token == ""
    assert await login.valid_token() == token == login.token


async def test_a_login_that_is_not_expected_is_loaded_after_a_refusal(world: World, token: str):
    assert isinstance(world.store, Counting)
    login = stored_login(world, is_expected=False)
    world.store.reads = 0
    assert await login.valid_token() == ""
    assert world.store.reads == 0

    await login.refresh_after(world.refusal(401, "Bearer", ""))

    assert await login.valid_token() == token == login.token


async def test_a_refused_token_is_refreshed_without_a_user(world: World, token: str):
    login = stored_login(world)
    world.authorization.access_tokens.clear()

    assert await world.call(login) != token
    assert len(world.browser.shown) == 1


async def test_stored_tokens_are_read_from_the_store_only_once(world: World, token: str):
    assert isinstance(world.store, Counting)
    login = stored_login(world)
    await login.valid_token()
    world.store.reads = 0

    assert await login.valid_token() == token
    assert world.store.reads == 0


async def test_without_a_login_a_login_is_required(world: World):
    with pytest.raises(LoginRequired, match="needs a login: interlock servers login"):
        await world.call(stored_login(world))


@pytest.mark.usefixtures("token")
async def test_a_registered_client_does_not_use_the_login_of_another_one(world: World):
    with pytest.raises(LoginRequired):
        await world.call(stored_login(world, client=ClientIdentity(id="me")))


async def test_the_users_store_is_the_default(
    world: World, token: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stored_login_module, "UserTokenStore", lambda: world.store)

    assert await StoredLogin(world.server.url, is_expected=True).valid_token() == token


async def test_two_owners_of_one_server_send_different_tokens(world: World):
    logins = {}
    for owner in ("ada", "bob"):
        store = world.store.for_owner(owner)
        token = await world.call(world.oauth(store=store))
        login = StoredLogin(world.server.url, is_expected=True, store=world.store, owner=owner)
        logins[owner] = login
        assert await login.valid_token() == token

    assert logins["ada"].token != logins["bob"].token
    assert await stored_login(world).valid_token() == ""


async def test_a_logout_of_one_owner_leaves_the_login_of_another(world: World):
    for owner in ("ada", "bob"):
        await world.call(world.oauth(store=world.store.for_owner(owner)))

    await logout(world.server.url, world.store.for_owner("ada"))

    tokens = [
        await StoredLogin(
            world.server.url, is_expected=True, store=world.store, owner=owner
        ).valid_token()
        for owner in ("ada", "bob")
    ]
    assert tokens[0] == ""
    assert tokens[1]
