"""The pages on which users connect to servers behind a gateway."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import pytest

from interlock import cli
from interlock.cli import log, signals
from interlock.store import AuditReader
from tests.gateway.conftest import bearer
from tests.gateway.notes import Notes, User, cookie_of, notes, reason, users
from tests.server.http.conftest import Reply
from tests.servers.authorization_server import always
from tests.support.authorization import Browser, Protected

__all__ = ["notes", "users"]


async def test_each_user_who_follows_the_login_link_of_a_refusal_gets_their_own_account(
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


def problem(reply: Reply) -> str:
    return str(json.loads(reply.body)["reason"])


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


@pytest.mark.slow("fills a database")
async def test_the_redirect_url_to_register_is_the_one_that_is_sent(running, notes: Notes):
    entry = {"url": notes.url, "sharing": "per_user", "auth": "oauth"}
    del notes.authorization.metadata["registration_endpoint"]
    async with running(notes=entry) as gateway:
        anna = User(gateway, await gateway.key("anna"))
        refused = await anna.open(await anna.url())
        known = entry | {"oauth": {"clientId": "mine"}}
        await gateway.reload({}, notes=known)
        opened = await anna.open(await anna.url())

    told = re.search(r"the redirect URL (\S+) and", refused.body.decode())
    sent = parse_qs(urlsplit(opened.json["location"]).query)["redirect_uri"]
    assert told is not None
    assert sent == [told[1]]
    assert told[1].endswith("/oauth/callback")


@pytest.mark.slow("works through much data")
async def test_login_at_an_unreachable_server_returns_an_error(users: tuple[User, User], notes):
    anna, _ = users
    url = await anna.url()
    notes.authorization.replies["/register"] = always("down", 503)
    opened = await anna.open(url)

    assert (opened.code, problem(opened)) == (502, "login_unavailable")


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("is_up", [True, False])
async def test_deleted_login_is_revoked_if_its_authorization_server_is_available(
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
        await gateway.assembly.services.vault.refresh()

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
        patch.object(log, "open_log", lambda: None),  # the log is that of all tests
        redirect_stdout(TextIOWrapper(BytesIO(), write_through=True)) as out,
        redirect_stderr(TextIOWrapper(BytesIO(), write_through=True)) as err,
        pytest.raises(SystemExit) as ended,
    ):
        await asyncio.to_thread(cli.main)
    shown, said = (each.buffer.getvalue().decode().strip() for each in (out, err))  # type: ignore[attr-defined]
    assert ended.value.code == 0, said
    return shown or said
