"""Faults of users' credentials behind a gateway, as its clients see them over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from unittest import mock

from aiohttp import web

from interlock.errors import ConfigError
from interlock.gateway.assembly import Assembly
from tests.faults.gateways import Gateway, gateway_of
from tests.faults.ground import Ground
from tests.faults.matrix import GATEWAY, row
from tests.gateway.notes import Notes, User, reason, serving_notes
from tests.servers.authorization_server import always, refused


class UserGateway(Gateway):
    """A gateway in this process, with a key for the user `local`."""

    def __init__(self, assembly: Assembly) -> None:
        super().__init__(assembly)
        self.user = User(self, assembly.services.callers.key_for_this_run() or "")


@asynccontextmanager
async def running(folder: Path, entry: dict[str, Any]) -> AsyncIterator[UserGateway]:
    settings = {"database": str(folder / "gateway.db")}
    config = {"mcpServers": {"notes": entry}, "gateway": settings}
    async with gateway_of(config, UserGateway) as gateway:
        yield gateway


@asynccontextmanager
async def signed_out(ground: Ground) -> AsyncIterator[tuple[Notes, User]]:
    """Yield a user whose access token the server refuses."""
    async with serving_notes() as notes, running(ground.folder, notes.entry()) as gateway:
        user = gateway.user
        assert (await user.connect(await user.url())).code == 200
        await user.call("notes__sign_out")
        yield notes, user


@row(
    "HTTP 401: of a user behind a gateway, while the authorization server is down",
    "upstream_error; when it is back, calls succeed without a new login",
    GATEWAY,
    within=1.0,
)
async def is_down(ground: Ground) -> None:
    async with signed_out(ground) as (notes, user):
        notes.authorization.replies["/token"] = always("down", 503)
        with ground.promise(outcome="upstream_error"):
            assert reason(await user.call())["code"] == "upstream_error"
        del notes.authorization.replies["/token"]
        with ground.promise(outcome="answered"):
            assert (await user.call()).text.startswith("access-2")


async def _refuse(_: web.Request) -> web.StreamResponse:
    return refused("invalid_grant")


@row(
    "HTTP 401: of a user behind a gateway, and the refresh is refused",
    "needs_login with the page to log in; the tools stay listed; after the login, calls succeed",
    GATEWAY,
    within=1.0,
)
async def is_refused(ground: Ground) -> None:
    async with signed_out(ground) as (notes, user):
        notes.authorization.replies["/token"] = _refuse
        with ground.promise(outcome="needs_login"):
            ended = reason(await user.call())
        assert ended["code"] == "needs_login"
        headers = {"x-api-key": user.key}
        listed = await user.gateway.http.ask("tools/list", headers=headers)
        names = [each["name"] for each in listed.json["result"]["tools"]]
        assert "notes__who" in names
        del notes.authorization.replies["/token"]
        await user.connect(ended["url"])
        assert (await user.call()).text.startswith("access-2")


@row(
    "SQLite locked / corrupt: a database of another gateway key",
    "ConfigError that names the key, at the start",
    GATEWAY,
    within=1.0,
)
async def has_another_key(ground: Ground) -> None:
    entry = {"url": "http://127.0.0.1:9/mcp"}
    async with running(ground.folder, entry):
        pass
    with (
        mock.patch.dict(os.environ, INTERLOCK_KEY=bytes(range(32)).hex()),
        ground.promise(ConfigError, "belongs to gateway key .*; set the same INTERLOCK_KEY"),
    ):
        async with running(ground.folder, entry):
            pass


@row(
    "SQLite locked / corrupt: by another process, while a user stores a credential",
    "503 audit_unavailable after 1 s; the earlier credential stays in use; once it is unlocked, "
    "the new one can be stored",
    GATEWAY,
    within=2,
)
async def is_locked(ground: Ground) -> None:
    async with serving_notes() as notes:
        notes.authorization.access_tokens |= {"first-token": "", "second-token": ""}
        entry = notes.entry(auth="bearer", headers={"Authorization": "Bearer ${user:TOKEN}"})
        async with running(ground.folder, entry) as gateway:
            user = gateway.user
            url = await user.url()
            await user.open(url, b'{"values": {"TOKEN": "first-token"}}')
            second = b'{"values": {"TOKEN": "second-token"}}'
            path = ground.folder / "gateway.db"
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with ground.promise(outcome="503 audit_unavailable"):
                    failed = await user.open(url, second)
            assert (failed.code, json.loads(failed.body)["reason"]) == (503, "audit_unavailable")
            used = await user.call()
            while used.code == 503:
                await asyncio.sleep(0.02)
                used = await user.call()
            assert used.text == "first-token"
            assert (await user.open(url, second)).code == 200
            assert (await user.call()).text == "second-token"
