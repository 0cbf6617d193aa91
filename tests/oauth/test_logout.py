"""Logging out: what is kept here is forgotten, and revoked where it came from if that works."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import AuthRequired, LoginRequired, StoreError
from interlock.oauth import ClientIdentity, UserTokenStore
from interlock.oauth import logout as logout_module
from interlock.oauth.logout import LoggedOut, logout
from tests.servers.authorization_server import SERVER_METADATA, always, html, refused

pytestmark = pytest.mark.usefixtures("nothing_is_left")


async def logged_in(world: Any, **metadata: str) -> Any:
    """A world in which a person has logged in; its authorization server revokes tokens."""
    server = world.authorization
    server.metadata |= {"revocation_endpoint": f"{server.origin}/revoke", **metadata}
    server.replies["/revoke"] = always("")
    assert await world.call(world.oauth())
    return server


async def forgotten(world: Any) -> bool:
    store, url = world.store, world.server.url
    registration = await store.load_registration(url, world.authorization.issuer)
    return await store.load_tokens(url) is None and registration is None


async def test_the_refresh_token_is_revoked_by_whom_it_was_given_to(world: Any):
    server = await logged_in(world)
    tokens = await world.store.load_tokens(world.server.url)

    assert await logout(world.server.url, world.store) == LoggedOut(True)
    assert await forgotten(world)
    assert server.sent("/revoke") == [
        {
            "token": tokens.refresh_token,
            "token_type_hint": "refresh_token",
            "client_id": tokens.client_id,
        }
    ]
    with pytest.raises(LoginRequired):
        await world.oauth(ask=None).refresh_after(AuthRequired("no"))


async def test_nobody_else_uses_the_login_while_it_ends(world: Any):
    server = await logged_in(world)
    entered = asyncio.Event()

    async def use() -> None:
        async with world.store.lock(world.server.url):
            entered.set()

    async def revoke(request: Any) -> Any:
        using.append(asyncio.create_task(use()))
        await asyncio.sleep(0)  # it asks for the lock
        assert not entered.is_set()
        return await always("")(request)

    using: list[asyncio.Task[None]] = []
    server.replies["/revoke"] = revoke

    assert await logout(world.server.url, world.store) == LoggedOut(True)
    await asyncio.wait(using)


async def test_a_client_with_a_secret_proves_itself(world: Any):
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    server = await logged_in(world)

    assert await logout(world.server.url, world.store) == LoggedOut(True)
    (sent,) = server.sent("/revoke")
    assert sent["client_secret"] == server.clients[sent["client_id"]] != ""


async def test_an_access_token_is_revoked_if_there_is_no_other(world: Any):
    world.authorization.answers["/token"] = {"refresh_token": None}
    server = await logged_in(world)
    tokens = await world.store.load_tokens(world.server.url)

    assert await logout(world.server.url, world.store) == LoggedOut(True)
    assert server.sent("/revoke")[0]["token"] == tokens.access_token
    assert server.sent("/revoke")[0]["token_type_hint"] == "access_token"


async def test_a_client_does_not_revoke_the_tokens_of_another_one(world: Any):
    server = await logged_in(world)
    server.clients["me"] = ""

    ended = await logout(world.server.url, world.store, client=ClientIdentity(id="me"))

    assert "is not known any more" in ended.problem
    assert server.sent("/revoke") == []
    assert await forgotten(world)


async def test_without_a_login_nobody_is_asked(world: Any):
    assert await logout(world.server.url, world.store) == LoggedOut(False)
    assert world.authorization.requests == []


async def test_a_server_that_revokes_nothing_is_named(world: Any):
    server = await logged_in(world)
    del server.metadata["revocation_endpoint"]

    ended = await logout(world.server.url, world.store)
    assert ended == LoggedOut(True, f"{server.issuer} has no revocation endpoint")
    assert await forgotten(world)


async def test_an_endpoint_that_is_no_url_is_named(world: Any):
    server = await logged_in(world)
    server.metadata["revocation_endpoint"] = "/revoke"

    ended = await logout(world.server.url, world.store)
    what = f"the revocation_endpoint of {server.issuer} cannot be used: '/revoke' is refused"
    assert ended.problem.startswith(what)
    assert await forgotten(world)


async def test_a_revocation_that_is_refused_is_told_without_secrets(world: Any):
    server = await logged_in(world)
    tokens = await world.store.load_tokens(world.server.url)
    words = f"no {tokens.refresh_token}"

    async def refuse(_: Any) -> Any:
        return refused("unsupported_token_type", error_description=words)

    server.replies["/revoke"] = refuse
    ended = await logout(world.server.url, world.store)
    assert ended.problem.startswith(f"{server.issuer} did not revoke it: ")
    assert tokens.refresh_token not in ended.problem
    assert await forgotten(world)


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": "https://elsewhere.example"},
        {"revocation_endpoint": "http://169.254.169.254/revoke"},
        {"revocation_endpoint": "file:///etc/passwd"},
    ],
    ids=["another issuer", "a private address", "no web address"],
)
async def test_no_token_goes_where_it_does_not_belong(world: Any, change: dict[str, str]):
    server = await logged_in(world)
    server.metadata |= change

    assert (await logout(world.server.url, world.store)).problem
    assert await forgotten(world)
    assert server.sent("/revoke") == []


async def test_a_server_that_is_broken_or_gone_does_not_keep_anybody_logged_in(world: Any):
    server = await logged_in(world)
    server.replies[SERVER_METADATA] = html

    assert "metadata" in (await logout(world.server.url, world.store)).problem
    assert await forgotten(world)


@pytest.mark.parametrize("content", ["{", '{"version":2}'], ids=["damaged", "of tomorrow"])
async def test_a_login_that_cannot_be_read_is_forgotten(world: Any, tmp_path: Path, content: str):
    world.store = UserTokenStore(tmp_path / "logins", keyring=False)
    await logged_in(world)
    (path,) = (tmp_path / "logins").glob("*.json")
    path.write_text(content)

    ended = await logout(world.server.url, world.store)
    assert ended.was_stored
    assert ended.problem.startswith(f"{path} ")
    assert not path.exists()


async def test_a_store_that_cannot_be_written_is_an_error(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    world.store = UserTokenStore(tmp_path / "logins", keyring=False)
    await logged_in(world)

    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(StoreError, match="cannot be written: Permission denied"):
        await logout(world.server.url, world.store)


async def test_an_authorization_server_that_says_nothing_is_not_waited_for(
    world: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logout_module, "REVOCATION_TIMEOUT", 0.2)
    server = await logged_in(world)
    over = asyncio.Event()

    async def wait(request: object) -> object:
        await over.wait()
        return await always("")(request)  # type: ignore[arg-type]

    server.replies["/revoke"] = wait
    ended = await logout(world.server.url, world.store)

    assert ended == LoggedOut(True, f"{server.issuer} has not answered within 0.2 s")
    assert await forgotten(world)
    over.set()
