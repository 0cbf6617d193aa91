"""Logging out: the login is deleted here, and revoked at its issuer if possible."""

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
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("nothing_is_left")


async def logged_in(world: Any, **metadata: str) -> Any:
    """Log in; return the authorization server, which supports revocation."""
    server = world.authorization
    server.metadata |= {"revocation_endpoint": f"{server.origin}/revoke", **metadata}
    server.replies["/revoke"] = always("")
    assert await world.call(world.oauth())
    return server


async def forgotten(world: Any) -> bool:
    store, url = world.store, world.server.url
    registration = await store.load_registration(url, world.authorization.issuer)
    return await store.load_tokens(url) is None and registration is None


async def test_logout_revokes_the_refresh_token_with_the_same_client(world: Any):
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


async def test_logout_locks_the_login(world: Any):
    server = await logged_in(world)
    entered = asyncio.Event()

    async def use() -> None:
        async with world.store.lock(world.server.url):
            entered.set()

    async def revoke(request: Any) -> Any:
        using.append(asyncio.create_task(use()))
        await asyncio.sleep(0)  # it waits for the lock now
        assert not entered.is_set()
        return await always("")(request)

    using: list[asyncio.Task[None]] = []
    server.replies["/revoke"] = revoke

    assert await logout(world.server.url, world.store) == LoggedOut(True)
    await asyncio.wait(using)


async def test_logout_authenticates_a_client_with_a_secret(world: Any):
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    server = await logged_in(world)

    assert await logout(world.server.url, world.store) == LoggedOut(True)
    (sent,) = server.sent("/revoke")
    assert sent["client_secret"] == server.clients[sent["client_id"]] != ""


async def test_logout_revokes_the_access_token_without_a_refresh_token(world: Any):
    world.authorization.answers["/token"] = {"refresh_token": None}
    server = await logged_in(world)
    tokens = await world.store.load_tokens(world.server.url)

    assert await logout(world.server.url, world.store) == LoggedOut(True)
    assert server.sent("/revoke")[0]["token"] == tokens.access_token
    assert server.sent("/revoke")[0]["token_type_hint"] == "access_token"


async def test_logout_does_not_revoke_the_tokens_of_another_client(world: Any):
    server = await logged_in(world)
    server.clients["me"] = ""

    ended = await logout(world.server.url, world.store, client=ClientIdentity(id="me"))

    assert "issued the tokens is unknown" in ended.problem
    assert server.sent("/revoke") == []
    assert await forgotten(world)


async def test_logout_without_a_login_sends_no_request(world: Any):
    assert await logout(world.server.url, world.store) == LoggedOut(False)
    assert world.authorization.requests == []


async def test_logout_reports_an_issuer_without_revocation_endpoint(world: Any):
    server = await logged_in(world)
    del server.metadata["revocation_endpoint"]

    ended = await logout(world.server.url, world.store)
    assert ended == LoggedOut(True, f"{server.issuer} has no revocation endpoint")
    assert await forgotten(world)


async def test_logout_reports_an_invalid_revocation_endpoint(world: Any):
    server = await logged_in(world)
    server.metadata["revocation_endpoint"] = "/revoke"

    ended = await logout(world.server.url, world.store)
    what = f"the revocation_endpoint of {server.issuer} cannot be used: '/revoke' is refused"
    assert ended.problem.startswith(what)
    assert await forgotten(world)


async def test_the_problem_of_a_refused_revocation_has_no_secret(world: Any):
    server = await logged_in(world)
    tokens = await world.store.load_tokens(world.server.url)
    words = f"no {tokens.refresh_token}"

    async def refuse(_: Any) -> Any:
        return refused("unsupported_token_type", error_description=words)

    server.replies["/revoke"] = refuse
    ended = await logout(world.server.url, world.store)
    assert ended.problem.startswith(f"{server.issuer} did not revoke the token: ")
    assert tokens.refresh_token not in ended.problem
    assert await forgotten(world)


@each_row(
    "change",
    [
        {"issuer": "https://elsewhere.example"},
        {"revocation_endpoint": "http://169.254.169.254/revoke"},
        {"revocation_endpoint": "file:///etc/passwd"},
    ],
    ids=["another issuer", "a private address", "no web address"],
)
async def test_logout_sends_no_token_to_another_issuer(build: Any, change: dict[str, str]):
    world = await build()
    server = await logged_in(world)
    server.metadata |= change

    assert (await logout(world.server.url, world.store)).problem
    assert await forgotten(world)
    assert server.sent("/revoke") == []


async def test_logout_deletes_the_login_though_the_issuer_fails(world: Any):
    server = await logged_in(world)
    server.replies[SERVER_METADATA] = html

    assert "metadata" in (await logout(world.server.url, world.store)).problem
    assert await forgotten(world)


@each_row("content", ["{", '{"version":2}'], ids=["damaged", "of tomorrow"])
async def test_logout_deletes_a_login_that_cannot_be_read(build: Any, tmp_path: Path, content: str):
    world = await build()
    world.store = UserTokenStore(tmp_path / "logins", keyring=False)
    await logged_in(world)
    (path,) = (tmp_path / "logins").glob("*.json")
    path.write_text(content)

    ended = await logout(world.server.url, world.store)
    assert ended.was_stored
    assert ended.problem.startswith(f"{path} ")
    assert not path.exists()


async def test_logout_raises_when_the_store_cannot_be_written(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    world.store = UserTokenStore(tmp_path / "logins", keyring=False)
    await logged_in(world)

    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", fail)
    with pytest.raises(StoreError, match="cannot be written: Permission denied"):
        await logout(world.server.url, world.store)


async def test_logout_stops_waiting_for_an_issuer_that_does_not_answer(
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
