"""Tokens that expire or are refused: refreshed once, and stored."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.errors import AuthError, InterlockError, LoginExpired, LoginRequired, StoreError
from interlock.oauth import (
    AuthorizationRequest,
    ClientCredentials,
    ClientIdentity,
    MemoryTokenStore,
    OAuth,
    UserTokenStore,
)
from interlock.oauth import login as login_module
from interlock.oauth.client_grant import client_key
from interlock.oauth.discovery import Discovery
from interlock.oauth.documents import ServerMetadata
from interlock.oauth.identity import identity_of
from interlock.oauth.storage import Registration, Tokens
from interlock.oauth.token_source import run_to_completion
from tests.oauth.conftest import REDIRECT, Build, World
from tests.oauth.support import Counting
from tests.servers.authorization_server import (
    SERVER_METADATA,
    AuthorizationServer,
    Browser,
    Handler,
    always,
    html,
    mute,
)
from tests.support.rows import each_row


def grants(world: World) -> list[str]:
    return [sent["grant_type"] for sent in world.authorization.sent("/token")]


class Watched(MemoryTokenStore):
    """Records for each write whether the lock was held."""

    def __init__(self) -> None:
        super().__init__()
        self.locked: list[bool] = []

    async def _write(self, key: str, content: bytes | None) -> None:
        self.locked.append(key in self._locked)
        await super()._write(key, content)


async def expire(world: World, place: str = "") -> None:
    """Make the stored access token expired."""
    place = place or world.server.url
    tokens = await world.store.load_tokens(place)
    assert tokens is not None
    async with world.store.lock(place):
        await world.store.save_tokens(place, replace(tokens, expires_at=1.0))
    world.authorization.access_tokens.clear()


# One after another


async def test_a_refresh_uses_the_authentication_method_of_the_login(world: World):
    world.authorization.clients["me"] = "s3cr3t"
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    client = ClientIdentity(id="me", secret="s3cr3t")
    await world.call(world.oauth(client=client))
    await expire(world)

    assert await world.oauth(client=client, ask=None).valid_token()

    seen = [seen for seen in world.authorization.requests if seen.path == "/token"]
    assert [each.sent["client_secret"] for each in seen] == ["s3cr3t"] * 2
    assert "authorization" not in seen[1].headers


@each_row("method", ["client_secret_post", "client_secret_basic"])
async def test_client_credentials_use_the_same_authentication_method_again(
    build: Build, method: str
):
    world = await build()
    world.authorization.clients["me"] = "s3cr3t"
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = [method]
    client = ClientIdentity(id="me", secret="s3cr3t")
    await world.call(ClientCredentials(world.server.url, client=client, store=world.store))
    await expire(world, client_key("me", world.server.url))

    assert await ClientCredentials(world.server.url, client=client, store=world.store).valid_token()

    seen = [seen for seen in world.authorization.requests if seen.path == "/token"]
    assert ["client_secret" in each.sent for each in seen] == [method.endswith("post")] * 2


async def test_a_login_of_a_registered_public_client_is_refreshed_by_its_id(world: World):
    world.authorization.clients["me"] = ""
    await world.call(world.oauth(client=ClientIdentity(id="me")))
    await expire(world)

    assert await world.oauth(ask=None).valid_token()
    assert grants(world) == ["authorization_code", "refresh_token"]


async def test_a_login_of_a_client_with_secret_is_not_refreshed_without_it(world: World):
    world.authorization.clients["me"] = "s3cr3t"
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = None
    await world.call(world.oauth(client=ClientIdentity(id="me", secret="s3cr3t")))
    await expire(world)

    assert await world.oauth(ask=None).valid_token() == ""
    assert grants(world) == ["authorization_code"]


async def test_an_expired_token_is_refreshed_before_it_is_sent(world: World):
    await world.call(world.oauth())
    await expire(world)
    world.server.requests.clear()
    auth = world.oauth(ask=None)

    token = await world.call(auth)

    assert world.server.paths == ["/mcp"]  # once, with the new token
    assert token == auth.token
    assert grants(world) == ["authorization_code", "refresh_token"]


async def test_a_refused_token_is_refreshed(world: World):
    auth = world.oauth()
    before = await world.call(auth)
    world.authorization.access_tokens.clear()

    assert await world.call(auth) != before
    assert grants(world) == ["authorization_code", "refresh_token"]
    assert len(world.browser.shown) == 1


async def test_a_refresh_names_the_same_resource_and_client(world: World):
    auth = world.oauth()
    await world.call(auth)
    world.authorization.access_tokens.clear()
    await world.call(auth)

    login, renewal = world.authorization.sent("/token")
    assert renewal["resource"] == login["resource"] == world.server.url
    assert renewal["client_id"] == login["client_id"]
    assert renewal["refresh_token"].startswith("refresh-1-")


async def test_a_new_refresh_token_replaces_the_old_one(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(login_module, "FRESH", 0.0)
    auth = world.oauth()
    await world.call(auth)
    for _ in range(2):
        world.authorization.access_tokens.clear()
        await world.call(auth)

    used = [sent.get("refresh_token", "")[:9] for sent in world.authorization.sent("/token")]
    assert used == ["", "refresh-1", "refresh-2"]


async def test_a_refresh_token_stays_in_use_if_the_answer_has_none(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(login_module, "FRESH", 0.0)
    world.authorization.rotates = False
    auth = world.oauth()
    await world.call(auth)
    for _ in range(2):
        world.authorization.access_tokens.clear()
        await world.call(auth)

    used = [sent.get("refresh_token", "")[:9] for sent in world.authorization.sent("/token")]
    assert used == ["", "refresh-1", "refresh-1"]


@each_row("status", [200, 400, 401, 403])
async def test_a_refused_refresh_token_leads_to_a_new_login(build: Build, status: int):
    world = await build()

    class Refusing(Browser):
        async def __call__(self, request: AuthorizationRequest) -> dict[str, str]:
            del world.authorization.replies["/token"]
            return await super().__call__(request)

    await world.call(world.oauth())
    world.authorization.access_tokens.clear()
    world.authorization.replies["/token"] = always('{"error": "invalid_grant"}', status)

    assert await world.call(world.oauth(ask=Refusing()))
    assert grants(world) == ["authorization_code", "refresh_token", "authorization_code"]


@each_row(
    "reply",
    [
        always("no", status=400),
        always(status=404),
        always(status=302, Location="/login"),
        html,
        always("{}"),
    ],
    ids=["400", "404", "redirect", "a page for people", "no token"],
)
async def test_a_refresh_with_an_invalid_answer_leads_to_a_new_login(build: Build, reply: Handler):
    world = await build()

    class Mending(Browser):
        async def __call__(self, request: AuthorizationRequest) -> dict[str, str]:
            del world.authorization.replies["/token"]
            return await super().__call__(request)

    await world.call(world.oauth())
    world.authorization.access_tokens.clear()
    world.authorization.replies["/token"] = reply

    with pytest.raises(LoginExpired, match=r"has expired: interlock servers login$"):
        await world.call(world.oauth(ask=None))
    assert await world.call(world.oauth(ask=Mending()))


async def test_a_temporary_failure_keeps_the_refresh_token(world: World):
    auth = world.oauth(ask=None)
    await world.call(world.oauth())
    world.authorization.access_tokens.clear()
    world.authorization.replies["/token"] = always('{"error": "server_error"}', 400)
    with pytest.raises(LoginExpired):
        await world.call(auth)
    del world.authorization.replies["/token"]

    assert await world.call(auth)


async def test_recent_refresh_does_not_prevent_a_refresh_of_a_token_from_another_program(
    world: World,
):
    one, other = world.oauth(), world.oauth(ask=None)
    for auth in (one, other):
        await world.call(auth)
    for auth in (one, other):
        world.authorization.access_tokens.clear()
        await world.call(auth)
    await world.call(one)  # uses the token of the other one
    world.authorization.access_tokens.clear()

    await world.call(one)

    assert grants(world) == ["authorization_code", *3 * ["refresh_token"]]


async def test_without_a_user_a_refused_refresh_token_is_not_sent_again(world: World):
    await world.call(world.oauth())
    world.authorization.access_tokens.clear()
    world.authorization.refresh_tokens.clear()

    for _ in range(2):  # each acts like a new program
        with pytest.raises(LoginExpired, match=rf"the login at {world.server.origin} has expired"):
            await world.call(world.oauth(ask=None))

    assert grants(world) == ["authorization_code", "refresh_token"]


@each_row(
    "reply",
    [
        html,
        always('{"error": "bad_refresh_token"}'),
        always('{"error": "invalid_client"}', 401),
        always(status=400),
    ],
)
async def test_a_refresh_that_is_refused_in_any_form_is_sent_once(build: Build, reply: Handler):
    """GitHub refuses with 200: https://docs.github.com/apps/creating-github-apps"""
    world = await build()
    await world.call(world.oauth())
    world.authorization.access_tokens.clear()
    world.authorization.replies["/token"] = reply
    auth = world.oauth(ask=None)

    for _ in range(3):
        with pytest.raises(LoginExpired):
            await world.call(auth)

    assert grants(world) == ["authorization_code", "refresh_token"]


async def test_a_refresh_that_does_not_help_leads_to_a_new_login(world: World):
    auth = world.oauth()
    await world.call(auth)

    class Fickle(dict[str, str]):
        def __setitem__(self, token: str, scope: str) -> None:
            if grants(world)[-1] != "refresh_token":
                super().__setitem__(token, scope)

    world.authorization.access_tokens = Fickle()

    assert await world.call(auth)
    assert grants(world) == ["authorization_code", "refresh_token", "authorization_code"]


async def test_a_refresh_that_did_not_help_is_repeated_after_a_minute(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(login_module, "FRESH", 0.0)
    auth = world.oauth()
    for _ in range(3):
        await world.call(auth)
        world.authorization.access_tokens.clear()

    assert grants(world) == ["authorization_code", "refresh_token", "refresh_token"]


@each_row("reply", [always(status=500), always(status=429)], ids=["500", "429"])
async def test_a_failing_authorization_server_does_not_cause_a_login(build: Build, reply: Any):
    world = await build()
    auth = world.oauth()
    await world.call(auth)
    world.authorization.access_tokens.clear()
    world.authorization.replies["/token"] = reply
    with pytest.raises(AuthError, match=r"gave no token: it answers \d+"):
        await world.call(auth)
    del world.authorization.replies["/token"]

    assert await world.call(auth)
    assert len(world.browser.shown) == 1


async def test_an_unreachable_authorization_server_is_not_an_error_before_a_refusal(
    world: World,
):
    await world.call(world.oauth())
    tokens = await world.store.load_tokens(world.server.url)
    assert tokens is not None
    gone = replace(tokens, expires_at=1.0, token_endpoint="http://127.0.0.1:1/token")
    await world.store.save_tokens(world.server.url, gone)

    assert await world.oauth().valid_token() == ""


async def test_a_refresh_token_is_not_sent_to_another_issuer(world: World):
    auth = world.oauth()
    await world.call(auth)
    world.authorization.access_tokens.clear()
    world.authorization.metadata["issuer"] += "/"  # another spelling is another issuer

    await world.call(auth)

    assert grants(world) == ["authorization_code", "authorization_code"]


async def test_refresh_uses_its_own_issuer_when_the_server_names_another_first(
    world: World,
):
    await world.call(world.oauth())
    world.authorization.access_tokens.clear()
    other = AuthorizationServer()
    await other.open()
    world.server.metadata["authorization_servers"].insert(0, other.issuer)

    assert await world.call(world.oauth(ask=None))
    await other.close()
    assert grants(world) == ["authorization_code", "refresh_token"]
    assert other.paths == []


async def test_a_refresh_token_for_another_resource_is_not_used(world: World):
    auth = world.oauth()
    await world.call(auth)
    world.authorization.access_tokens.clear()
    world.server.metadata["resource"] = world.server.origin

    await world.call(auth)

    assert grants(world) == ["authorization_code", "authorization_code"]


async def test_a_refusal_of_an_older_token_needs_no_refresh(world: World):
    world.store = store = Counting()
    auth = world.oauth()
    await world.call(auth)
    world.authorization.requests.clear()
    world.server.requests.clear()
    store.reads = 0

    await auth.refresh_after(world.refusal(401, "Bearer", "an-older-token"))
    await auth.refresh_after(world.refusal(401, "Bearer", ""))

    assert world.authorization.requests == world.server.requests == []
    assert store.reads == 0


async def test_a_refusal_without_stored_tokens_starts_a_login(world: World):
    auth = world.oauth()

    await auth.refresh_after(world.refusal(401, "Bearer", "gone"))

    assert auth.token


async def test_a_refusal_during_the_first_load_still_refreshes(
    world: World,
):
    before = await world.call(world.oauth())
    world.authorization.access_tokens.clear()
    auth = world.oauth()

    await asyncio.gather(
        auth.valid_token(), auth.refresh_after(world.refusal(401, "Bearer", before))
    )

    assert auth.token != before


async def test_a_token_that_another_program_stored_meanwhile_is_used(world: World):
    one, other = world.oauth(), world.oauth(ask=None)
    await world.call(one)
    await world.call(other)
    world.authorization.access_tokens.clear()

    token = await world.call(one)

    assert await world.call(other) == token
    assert grants(world).count("refresh_token") == 1


# At once


@each_row("ask", [True, False])
async def test_fifty_simultaneous_refusals_cause_one_refresh(build: Build, ask: bool):
    world = await build()
    auth = world.oauth()
    before = await world.call(auth)
    if not ask:
        auth = world.oauth(ask=None)
        await auth.valid_token()
    world.authorization.access_tokens.clear()
    challenge = f'Bearer resource_metadata="{world.server.origin}{world.server.metadata_path}"'

    await asyncio.gather(
        *(auth.refresh_after(world.refusal(401, challenge, before)) for _ in range(50))
    )

    assert grants(world) == ["authorization_code", "refresh_token"]
    assert auth.token in world.authorization.access_tokens


async def test_fifty_simultaneous_requests_without_token_cause_one_login(world: World):
    auth = world.oauth()

    tokens = await asyncio.gather(*(world.call(auth) for _ in range(50)))

    assert len(set(tokens)) == 1
    assert len(world.browser.shown) == 1
    assert len(world.authorization.sent("/register")) == 1


async def test_a_failed_renewal_fails_every_task_that_waits_for_it(world: World):
    asked = asyncio.Event()

    async def ask(request: AuthorizationRequest) -> dict[str, str]:
        asked.set()
        await asyncio.sleep(0)
        raise AuthError("they closed the page")

    auth = world.oauth(ask=ask)
    errors = await asyncio.gather(*(world.call(auth) for _ in range(20)), return_exceptions=True)

    assert {type(error) for error in errors} <= {AuthError, LoginRequired}
    assert all("they closed the page" in str(error) for error in errors)
    assert len(world.authorization.sent("/register")) == 1


async def test_a_renewal_does_not_delay_other_requests(world: World):
    """No lock is held during requests to the server, or while tokens are valid."""
    auth = world.oauth()
    before = await world.call(auth)
    world.authorization.holding.clear()
    renewal = asyncio.create_task(auth.refresh_after(world.refusal(401, "", before)))
    await world.authorization.held.wait()

    assert auth.token == before
    assert await auth.valid_token() == before
    assert await world.call(auth) == before

    world.authorization.holding.set()
    await renewal
    assert auth.token != before


async def test_a_cancelled_task_does_not_end_the_renewal_of_the_others(world: World):
    auth = world.oauth()
    before = await world.call(auth)
    world.authorization.holding.clear()
    one, other = (
        asyncio.create_task(auth.refresh_after(world.refusal(401, "", before))) for _ in range(2)
    )
    await world.authorization.held.wait()

    one.cancel()
    await asyncio.wait({one})
    world.authorization.holding.set()
    await other

    assert one.cancelled()
    assert auth.token != before
    assert grants(world) == ["authorization_code", "refresh_token"]


async def test_refreshed_tokens_are_stored_though_every_task_was_cancelled(world: World):
    """The old refresh token is invalid now: the new one must not be lost."""
    auth = world.oauth()
    before = await world.call(auth)
    world.authorization.access_tokens.clear()
    world.authorization.holding.clear()
    renewal = asyncio.create_task(auth.refresh_after(world.refusal(401, "", before)))
    await world.authorization.held.wait()

    renewal.cancel()
    await asyncio.wait({renewal})
    world.authorization.holding.set()

    assert await world.call(auth) != before
    assert grants(world) == ["authorization_code", "refresh_token"]
    tokens = await world.store.load_tokens(world.server.url)
    assert tokens is not None
    assert tokens.refresh_token in world.authorization.refresh_tokens


async def test_tokens_of_a_login_are_stored_though_every_task_was_cancelled(world: World):
    """A code is valid once: the tokens for it must not be lost."""
    auth = world.oauth()
    world.authorization.holding.clear()
    login = asyncio.create_task(auth.refresh_after(world.refusal(401, "", "")))
    await world.authorization.held.wait()

    login.cancel()
    await asyncio.wait({login})
    world.authorization.holding.set()

    assert await world.call(auth)
    assert grants(world) == ["authorization_code"]
    assert len(world.browser.shown) == 1


async def test_asking_the_user_ends_when_every_task_was_cancelled(
    world: World, nothing_is_left: list[Any]
):
    asked, let_alone = asyncio.Event(), asyncio.Event()

    async def ask(request: AuthorizationRequest) -> dict[str, str]:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            let_alone.set()
        raise AssertionError("never")

    auth = world.oauth(ask=ask)
    call = asyncio.create_task(auth.refresh_after(world.refusal(401, "", "")))
    await asked.wait()

    call.cancel()
    await asyncio.wait({call})
    await let_alone.wait()

    assert await world.call(world.oauth())


async def test_the_store_is_locked_during_every_write(world: World):
    """Without it, two programs that log in at once lose each other's changes."""
    world.store = store = Watched()
    auth = world.oauth()
    await world.call(auth)
    assert store.locked == [True, True]  # registration and tokens

    world.authorization.access_tokens.clear()
    await world.call(auth)
    assert store.locked == [True] * 3

    world.authorization.callback["error"] = "access_denied"
    with pytest.raises(AuthError):
        await auth.login()
    assert store.locked == [True] * 4  # the registration is retired


async def test_the_store_is_not_locked_while_the_user_is_asked(world: World):
    async def ask(request: AuthorizationRequest) -> dict[str, str]:
        async with world.store.lock(world.server.url):
            return await world.browser(request)

    assert await world.call(world.oauth(ask=ask))


@pytest.mark.slow("waits for a timeout")
async def test_an_authorization_server_that_does_not_answer_times_out(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("interlock.oauth.fetcher.TIMEOUT", 0.2)
    world.authorization.replies["/token"] = mute

    with pytest.raises(InterlockError, match=r"has not answered within 0\.2 s$"):
        await world.call(world.oauth())


async def test_simultaneous_requests_load_the_store_once(world: World):
    world.store = store = Counting()
    await world.call(world.oauth())
    auth = world.oauth()
    store.reads = 0

    tokens = await asyncio.gather(*(auth.valid_token() for _ in range(50)))

    assert len(set(tokens)) == 1
    assert store.reads == 1


async def test_a_renewal_that_fails_after_every_task_was_cancelled_logs_nothing(
    world: World, nothing_is_left: list[Any]
):
    auth = world.oauth()
    before = await world.call(auth)
    world.authorization.holding.clear()
    renewal = asyncio.create_task(auth.refresh_after(world.refusal(401, "", before)))
    await world.authorization.held.wait()
    world.authorization.clients.clear()

    renewal.cancel()
    await asyncio.wait({renewal})
    world.authorization.holding.set()
    with pytest.raises(AuthError):
        await auth.login()


@pytest.mark.slow("works through much data")
async def test_a_renewal_that_fails_while_it_is_cancelled_logs_nothing(
    world: World, nothing_is_left: list[Any]
):
    begun = asyncio.Event()

    async def fail() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise AuthError("no") from None

    auth = world.oauth()
    asking = asyncio.create_task(auth._share(fail))
    await begun.wait()
    renewal_task = auth._renewal
    assert renewal_task is not None
    asking.cancel()
    await asyncio.wait({asking, renewal_task})

    del renewal_task
    gc.collect()  # reports exceptions that were never retrieved


# Stores


REGISTERED = pytest.mark.parametrize(
    "client", [None, ClientIdentity(id="me")], ids=["any client", "a registered client"]
)


class Full(MemoryTokenStore):
    """A store whose disk is full."""

    is_full = True

    async def _write(self, key: str, content: bytes | None) -> None:
        if self.is_full:
            raise StoreError("the disk is full")
        await super()._write(key, content)


@REGISTERED
@pytest.mark.parametrize("content", [b"{", b'{"version":2}'], ids=["damaged", "of tomorrow"])
async def test_damaged_store_is_read_as_empty(
    world: World, tmp_path: Path, client: ClientIdentity | None, content: bytes
):
    world.authorization.clients["me"] = ""
    world.store = UserTokenStore(tmp_path, keyring=False)
    await world.call(world.oauth(client=client))
    _overwrite(tmp_path, content)

    assert await world.call(world.oauth(client=client))
    assert await world.call(world.oauth(client=client, ask=None))
    assert len(world.browser.shown) == 2


def _overwrite(folder: Path, content: bytes) -> None:
    for file in folder.glob("*.json"):
        file.write_bytes(content)


@REGISTERED
async def test_tokens_are_refreshed_though_the_store_cannot_be_written(
    world: World, client: ClientIdentity | None
):
    world.authorization.clients["me"] = ""
    world.store = Full()
    auth = world.oauth(client=client)
    token = await world.call(auth)
    world.authorization.access_tokens.clear()

    assert await world.call(auth) != token
    assert len(world.browser.shown) == 1


async def test_tokens_that_cannot_be_stored_stay_in_use_and_the_error_is_kept(world: World):
    world.store = store = Full()
    auth = world.oauth()
    token = await world.call(auth)
    assert str(auth.save_error) == "the disk is full"

    await auth.refresh_after(world.refusal(401, "", "an-older-token"))
    assert auth.token == token

    store.is_full = False
    world.authorization.access_tokens.clear()
    await world.call(auth)
    assert auth.save_error is None
    assert await world.store.load_tokens(world.server.url)


async def test_tokens_that_another_program_stores_replace_older_ones_that_were_not_stored(
    world: World,
):
    world.store = store = Full()
    auth = world.oauth()
    await world.call(auth)
    store.is_full = False
    token = await world.call(world.oauth())
    world.authorization.access_tokens = {token: ""}

    assert await world.call(auth) == token
    assert auth.save_error is None
    assert grants(world) == ["authorization_code"] * 2


async def test_tokens_stay_in_use_while_the_store_can_neither_be_written_nor_read(world: World):
    class Locked(Full):
        is_locked = False

        async def _read(self, key: str) -> bytes | None:
            if self.is_locked:
                raise StoreError("the keyring is locked")
            return await super()._read(key)

    world.store = store = Locked()
    auth = world.oauth()
    await world.call(auth)
    world.authorization.access_tokens.clear()
    store.is_locked = True

    assert await world.call(auth)

    assert grants(world) == ["authorization_code", "refresh_token"]


async def test_a_registration_with_a_secret_that_cannot_be_stored_refreshes_its_tokens(
    world: World,
):
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    world.store = Full()
    auth = world.oauth()
    await world.call(auth)
    world.authorization.access_tokens.clear()

    await world.call(auth)

    assert grants(world) == ["authorization_code", "refresh_token"]


async def test_client_without_issuer_keeps_its_first_issuer_though_it_cannot_be_stored(
    world: World, build: Any
):
    world.authorization.clients["me"] = ""
    world.store = Full()
    auth = world.oauth(client=ClientIdentity(id="me"))
    await world.call(auth)
    other = (await build()).authorization
    world.server.metadata["authorization_servers"] = [other.issuer]
    world.authorization.access_tokens.clear()

    with pytest.raises(AuthError, match="is not used at"):
        await world.call(auth)

    assert "/authorize" not in other.paths


async def test_a_rejected_registration_is_replaced_though_the_store_cannot_be_written(
    world: World,
):
    world.store = store = Full()
    store.is_full = False
    auth = world.oauth()
    await world.call(auth)
    store.is_full = True
    world.authorization.access_tokens.clear()
    world.authorization.clients.clear()

    assert await world.call(auth)
    assert len(world.authorization.sent("/register")) == 2


async def test_a_logout_of_another_program_is_noticed_at_the_next_refusal(world: World):
    auth = world.oauth(ask=None)
    await world.call(world.oauth())
    await world.call(auth)
    async with world.store.lock(world.server.url):
        await world.store.delete(world.server.url)
    world.authorization.access_tokens.clear()

    with pytest.raises(LoginRequired):
        await world.call(auth)

    assert grants(world) == ["authorization_code"]


# Processes


PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from interlock.errors import AuthRequired
from interlock.oauth import OAuth, UserTokenStore

async def main(url, folder, challenge):
    store = UserTokenStore(Path(folder), keyring=False)
    auth = OAuth(url, redirect_uri="http://127.0.0.1:1/callback", ask=None, store=store)
    error = AuthRequired("no", 401, challenge)
    error.token_used = await auth.valid_token()
    print(json.dumps("ready"), flush=True)
    sys.stdin.readline()
    await auth.refresh_after(error)
    print(json.dumps(auth.token), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow("starts processes that load much")
async def test_two_programs_with_the_same_refused_token_refresh_it_once(
    world: World, tmp_path: Path
):
    world.store = UserTokenStore(tmp_path, keyring=False)
    await world.call(world.oauth())
    world.authorization.access_tokens.clear()
    world.authorization.holding.clear()
    challenge = f'Bearer resource_metadata="{world.server.origin}{world.server.metadata_path}"'
    arguments = [sys.executable, "-c", PROGRAM, world.server.url, str(tmp_path), challenge]
    programs = [
        await asyncio.create_subprocess_exec(
            *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    try:
        for program in programs:
            assert program.stdout is not None
            assert json.loads(await program.stdout.readline()) == "ready"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write(b"\n")
        # Both have fetched the metadata: one refreshes, the other waits for the lock.
        await world.authorization.asked(SERVER_METADATA, 3)
        await world.authorization.held.wait()
        world.authorization.holding.set()
        tokens = [json.loads((await program.communicate())[0]) for program in programs]
    finally:
        for program in programs:
            if program.returncode is None:
                program.kill()
            await program.wait()

    assert tokens[0] == tokens[1]
    assert tokens[0] in world.authorization.access_tokens
    assert grants(world) == ["authorization_code", "refresh_token"]


# What is shown


async def test_the_repr_of_a_token_source_has_no_token(world: World):
    auth = world.oauth()
    token = await world.call(auth)

    assert repr(auth) == f"OAuth('{world.server.url}')"
    assert token not in repr(auth)


def test_the_repr_of_a_token_source_has_no_query_and_user():
    auth = OAuth(
        "https://mcp.example/mcp?key=SECRET",
        redirect_uri=REDIRECT,
        ask=None,
        store=MemoryTokenStore(),
    )

    assert repr(auth) == "OAuth('https://mcp.example/mcp')"


async def test_run_to_completion_ends_before_its_cancelled_caller():
    """Otherwise the store's lock would be released too early."""
    ended: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await go_on.wait()
        ended.append("work")

    async def ask() -> None:
        try:
            await run_to_completion(work())
        finally:
            ended.append("whoever asked")

    asking = asyncio.create_task(ask())
    await begun.wait()
    asking.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait({asking})

    assert asking.cancelled()
    assert ended == ["work", "whoever asked"]


@pytest.mark.slow("works through much data")
async def test_run_to_completion_ignores_a_failure_after_its_caller_was_cancelled(
    nothing_is_left: list[Any],
):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await go_on.wait()
        raise AuthError("no")

    asking = asyncio.create_task(run_to_completion(work()))
    await begun.wait()
    asking.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait({asking})

    assert asking.cancelled()
    gc.collect()  # reports exceptions that were never retrieved


async def test_identity_of_returns_only_the_client_that_the_tokens_were_given_to():
    store, server = MemoryTokenStore(), "https://mcp.example/mcp"
    found = Discovery("", None, ServerMetadata("https://as.example"))
    await store.save_registration(
        server, Registration(issuer=found.issuer, client_id="new", client_secret="s3cr3t")
    )

    async def identity(of: str, method: str) -> str | None:
        tokens = Tokens(access_token="t", issuer=found.issuer, client_id=of, auth_method=method)
        known = await identity_of(tokens, found, server_url=server, store=store)
        return known and known.id

    assert await identity("new", "client_secret_basic") == "new"
    assert await identity("old", "client_secret_basic") is None
    assert await identity("old", "none") == "old"
