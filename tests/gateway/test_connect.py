"""The pages on which users connect to servers behind a gateway."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from interlock import cli
from interlock.cli import signals
from interlock.store import AuditReader
from tests.gateway.conftest import bearer
from tests.gateway.notes import Notes, User, allowed, cookie_of, reason, serving_notes
from tests.server.http.conftest import Reply
from tests.servers.authorization_server import always
from tests.support.authorization import Browser, Protected


@pytest.mark.program
async def test_users_log_in_by_the_link_of_a_refusal_and_get_their_own_accounts(
    running, protected_server: Protected
):
    """The authorization server is a real one."""
    entry: dict[str, Any] = {"url": protected_server.url, "sharing": "per_user", "auth": "oauth"}
    async with running(notes=entry) as gateway:
        users = {name: User(gateway, await gateway.key(name)) for name in ("ada", "bob")}
        for name, user in users.items():
            opened = await user.open(await user.url())
            browser = Browser(protected_server.issuer)
            browser.person = name
            callback = await browser.callback(opened.json["location"])
            done = await user.come_back(callback, cookie_of(opened))
            assert b"You are connected to" in done.body
        answers = [(await users[name].call()).text for name in ("ada", "bob", "ada")]

    assert [each.partition(":")[0] for each in answers] == ["ada", "bob", "ada"]


@pytest.fixture
async def notes() -> AsyncIterator[Notes]:
    async with serving_notes() as notes:
        yield notes


@pytest.fixture
async def users(running, notes: Notes) -> AsyncIterator[tuple[User, User]]:
    """Anna and Bert, who have not connected."""
    async with running(notes=notes.entry()) as gateway:
        yield User(gateway, await gateway.key("anna")), User(gateway, await gateway.key("bert"))


def problem(reply: Reply) -> str:
    return str(json.loads(reply.body)["reason"])


@pytest.mark.slow("fills a database")
async def test_link_of_a_user_is_refused_to_others(users: tuple[User, User], notes: Notes):
    anna, bert = users
    url = await anna.url()
    refused, nobody = await bert.open(url), await User(anna.gateway, "none").open(url)

    assert (refused.code, problem(refused)) == (403, "other_user")
    assert nobody.code == 401
    assert notes.authorization.sent("/register") == []


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("id", ["", "x", "A" * 120])
async def test_link_that_was_not_made_here_is_refused(users: tuple[User, User], id: str):
    anna, _ = users
    opened = await anna.open(f"http://127.0.0.1:8000/connect/{id}")
    shown = await anna.gateway.http.request("GET", f"/connect/{id}")

    assert opened.code == 404
    assert (shown.code, b"not valid any more" in shown.body) == (404, True)


@pytest.mark.slow("works through much data")
async def test_login_ends_only_in_the_browser_that_began_it_and_only_once(
    users: tuple[User, User],
):
    anna, _ = users
    opened = await anna.open(await anna.url())
    callback, cookie = await allowed(opened), cookie_of(opened)
    elsewhere = await anna.come_back(callback, "")
    path, _, query = callback.partition("?")
    other_issuer = await anna.come_back(f"{path[:-1]}x?{query}", cookie)
    done = await anna.come_back(callback, cookie)
    again = await anna.come_back(callback, cookie)

    assert [each.code for each in (elsewhere, other_issuer, done, again)] == [400, 400, 200, 400]
    assert b"was begun in another browser" in elsewhere.body
    assert (await anna.call()).text.startswith("access-1")


@pytest.mark.slow("works through much data")
async def test_cookie_of_a_login_is_sent_to_the_callback_only(users: tuple[User, User]):
    anna, _ = users
    opened = await anna.open(await anna.url())
    _, *attributes = (opened.header("set-cookie") or "").split("; ")

    assert attributes == ["Path=/oauth/callback", "HttpOnly", "SameSite=Lax", "Max-Age=600"]


@pytest.mark.slow("works through much data")
async def test_refusal_of_the_authorization_server_is_shown_as_text(users: tuple[User, User]):
    anna, _ = users
    opened = await anna.open(await anna.url())
    callback = await allowed(opened)
    query = dict(parse_qsl(urlsplit(callback).query))
    bad = {"state": query["state"], "error": "access_denied", "error_description": "<b>no</b>"}
    ended = await anna.come_back(
        f"{callback.partition('?')[0]}?{urlencode(bad)}", cookie_of(opened)
    )

    assert ended.code == 400
    assert b"denied the login" in ended.body
    assert b"<b>no" not in ended.body


@pytest.mark.slow("fills a database")
async def test_page_asks_for_the_key_and_no_other_site_may_frame_it(users: tuple[User, User]):
    anna, _ = users
    page = await anna.gateway.http.request("GET", urlsplit(await anna.url()).path)

    assert (page.code, page.header("content-type")) == (200, "text/html; charset=utf-8")
    assert b'type="password" name="key"' in page.body
    assert "frame-ancestors 'none'" in str(page.header("content-security-policy"))
    assert page.header("referrer-policy") == "no-referrer"


@pytest.mark.slow("fills a database")
async def test_values_are_stored_by_the_page(running, notes: Notes):
    entry = {"url": notes.url, "sharing": "per_user", "auth": "bearer"}
    notes.authorization.access_tokens["token-of-anna"] = ""
    async with running(
        notes=entry | {"headers": {"Authorization": "Bearer ${user:TOKEN}"}}
    ) as gateway:
        anna = User(gateway, await gateway.key("anna"))
        url = await anna.url()
        page = await gateway.http.request("GET", urlsplit(url).path)
        unknown = await anna.open(url, b'{"values": {"OTHER": "x"}}')
        stored = await anna.open(url, b'{"values": {"TOKEN": "token-of-anna"}}')
        answer = await anna.call()
        del notes.authorization.access_tokens["token-of-anna"]
        refused = await anna.call()

    assert b'data-name="TOKEN"' in page.body
    assert unknown.code == 400
    assert stored.json == {"server": "notes", "connected": True}
    assert answer.text == "token-of-anna"
    assert reason(refused)["code"] == "needs_login"


@pytest.mark.slow("works through much data")
async def test_login_at_a_server_that_cannot_be_reached_says_so(users: tuple[User, User], notes):
    anna, _ = users
    url = await anna.url()
    notes.authorization.replies["/register"] = always("down", 503)
    opened = await anna.open(url)

    assert (opened.code, problem(opened)) == (502, "login_unavailable")


@pytest.mark.slow("fills a database")
async def test_session_of_the_pages_opens_a_link_like_a_key(users: tuple[User, User]):
    anna, bert = users
    url = urlsplit(await anna.url()).path
    codes = []
    for user in (anna, bert):
        http = user.gateway.http
        login = await http.request("POST", "/api/login", json.dumps({"key": user.key}).encode())
        headers = {
            "cookie": cookie_of(login),
            "x-interlock-key": login.json["pageKey"],
            "origin": "http://127.0.0.1:8000",
        }
        codes.append((await http.request("POST", url, b"{}", headers=headers)).code)

    assert codes == [200, 403]


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("is_up", [True, False])
async def test_deleted_login_is_revoked_at_its_authorization_server_if_that_answers(
    users: tuple[User, User], notes: Notes, tmp_path: Path, is_up: bool
):
    anna, _ = users
    await anna.connect(await anna.url())
    server = notes.authorization
    origin = server.origin if is_up else "http://127.0.0.1:9"
    server.metadata |= {"revocation_endpoint": f"{origin}/revoke"}
    server.replies["/revoke"] = always("")
    token = (await anna.call()).text
    headers = bearer(anna.key)
    place = "/me/credentials/notes/login"
    deleted = await anna.gateway.http.request("DELETE", place, headers=headers)
    states = await anna.gateway.http.request("GET", "/me/credentials", headers=headers)
    await anna.gateway.settle()

    assert deleted.code == 204
    assert [each["state"] for each in states.json] == ["revoked"]
    sent = server.sent("/revoke")
    assert [each["token_type_hint"] for each in sent] == ["refresh_token"] * is_up
    assert reason(await anna.call())["code"] == "needs_login"
    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        every = [each async for piece in reader.export() for each in piece]
    done = [each["action"] for each in every if each["kind"] == "credential"]
    assert done == ["logged_in", "deleted", "revoked" if is_up else "not_revoked"]
    assert token not in str(every)


@pytest.mark.slow("fills a database")
async def test_commands_use_and_revoke_the_login_that_the_local_user_made_on_the_page(
    running, notes: Notes
):
    server = notes.authorization
    server.metadata |= {"revocation_endpoint": f"{server.origin}/revoke"}
    server.replies["/revoke"] = always("")
    async with running(notes=notes.entry()) as gateway:
        local = User(gateway, await gateway.key("local"))
        await local.connect(await local.url())
        token = (await local.call()).text

        called = await interlock(gateway, "call", "notes:who", "--yes")
        deleted = await interlock(
            gateway, "credentials", "delete", "notes", "login", "--user=local"
        )
        await gateway.assembly.vault.refresh()

        assert called == token
        assert deleted == "deleted login of user:local for server 'notes'"
        assert [each["token_type_hint"] for each in server.sent("/revoke")] == ["refresh_token"]
        assert reason(await local.call())["code"] == "needs_login"
        records = map(json.loads, (await interlock(gateway, "audit", "export")).splitlines())
    done = [each["action"] for each in records if each["kind"] == "credential"]
    assert sorted(done) == ["deleted", "logged_in", "revoked"]


async def interlock(gateway: Any, *arguments: str) -> str:
    """Run a command beside the gateway, in a thread; return what it prints."""
    with (
        patch.object(sys, "argv", ["interlock", *arguments, "--config", str(gateway.file)]),
        patch.object(signals, "_SIGNALS", ()),
        redirect_stdout(TextIOWrapper(BytesIO(), write_through=True)) as out,
        redirect_stderr(TextIOWrapper(BytesIO(), write_through=True)) as err,
        pytest.raises(SystemExit) as ended,
    ):
        await asyncio.to_thread(cli.main)
    shown, said = (each.buffer.getvalue().decode().strip() for each in (out, err))  # type: ignore[attr-defined]
    assert ended.value.code == 0, said
    return shown or said
