"""Nothing secret is in any answer, page, metric, log, record, dump or file of a gateway."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.gateway.admin.test_credentials import PER_USER
from tests.gateway.admin.test_login import log_in, session_of
from tests.gateway.admin.test_routes import ROLES, ROUTES, concrete
from tests.gateway.conftest import RunningGateway, bearer, offering
from tests.gateway.notes import Notes, User, notes
from tests.server.http.conftest import Reply
from tests.support.scripted_server import Json, text

__all__ = ["notes"]

ECHO = Path(__file__).parents[2] / "servers" / "echo.py"
FAILING = "import os, sys; sys.exit('no login with ' + os.environ['TOKEN'])"


def canary(of: str) -> str:
    return f"canary-{of}-5f0c2b7a9d3e1f44"


CONFIGURED = {name: canary(name) for name in ("environment", "argument", "password", "header")}
CONFIGURED["client secret"] = canary("client-secret")
KEPT = {name: canary(name) for name in ("value", "result", "call", "replaced")}


def servers(folder: Path, notes: Notes) -> dict[str, object]:
    """Return servers that have a secret at every place of their configuration."""
    (folder / "failing.py").write_text(FAILING)
    large = offering("x", "refund")
    large.answers["tools/call"] = text(KEPT["result"] + "\n" * 70_000)
    program = {
        "command": sys.executable,
        "args": [str(folder / "failing.py"), f"--token={CONFIGURED['argument']}"],
        "env": {"TOKEN": CONFIGURED["environment"]},
    }
    # Its launch is pinned, as it starts.
    echo = {**program, "args": ["-I", "-S", str(ECHO), f"--token={CONFIGURED['argument']}"]}
    api = {
        "url": f"http://user:{CONFIGURED['password']}@127.0.0.1:9/mcp",
        "headers": {"X-Key": CONFIGURED["header"]},
    }
    return {
        "crm": large,
        "program": program,
        "echo": echo,
        "api": api,
        "wiki": PER_USER,
        "notes": notes.entry(),
    }


def settings(folder: Path) -> Json:
    ask = {"id": "ask", "effect": "ask", "who": ["*"], "tools": ["crm:refund"]}
    allow = {"id": "allow", "effect": "allow", "who": ["*"], "tools": ["*:*"]}
    issuer = {
        "issuer": "https://id.example",
        "audience": "interlock",
        "jwksUrl": "https://id.example/jwks",
        "clientId": "interlock",
        "clientSecret": CONFIGURED["client secret"],
    }
    return {
        "policy": {"rules": [{**ask, "approvers": ["group:leads"]}, allow]},
        "groups": {"leads": ["user:admin"]},
        "auth": {"issuers": [issuer]},
        "audit": {"copy": str(folder / "audit.jsonl")},
    }


class Sending:
    """Requests of an administrator, and what was answered.

    Args:
        gateway: The gateway.
        key: Of the administrator.
    """

    def __init__(self, gateway: RunningGateway, key: str) -> None:
        self.replies: list[Reply] = []
        self._gateway = gateway
        self._headers = bearer(key) | {"content-type": "application/json"}

    async def __call__(self, method: str, path: str, body: object = None, query: str = "") -> Reply:
        content = b"" if body is None else json.dumps(body).encode()
        reply = await self._gateway.http.request(method, path, content, self._headers, query=query)
        self.replies.append(reply)
        return reply

    async def inspect(self, *servers: str) -> int:
        """Have the inspector connect to each server; return how many messages it shows."""
        count = 0
        for name in servers:
            begun = (await self("POST", "/api/inspect", {"server": name})).json
            place, state = f"/api/inspect/{begun['id']}", {"state": "connecting"}
            while state["state"] == "connecting":
                await asyncio.sleep(0.02)
                state = (await self("GET", place)).json
            await self("POST", f"{place}/send", {"method": "tools/list", "params": {}})
            for part in ("wire", "record"):
                shown = await self("GET", f"{place}/{part}")
                count += shown.body.count(b"jsonrpc")
        return count

    async def every_route(self, *names: str) -> None:
        """Send a request to each route but those that end what is needed, for each name."""
        for route in ROUTES:
            if route.method in ("PUT", "DELETE") or route.path == "/api/logout":
                continue
            for name in names if "{" in route.path else names[:1]:
                path = route.path.replace("{server}", name).replace("{name}", name)
                path = path.replace("{user*}", "user:admin").replace("{name*}", "x")
                body = {"address": f"{name}:x", "user": "admin"} if "explain" in path else {}
                query = "user=admin" if path.endswith("/tools") else ""
                await self(route.method, concrete(path), body, query)


@pytest.mark.slow("starts a program")
async def test_no_secret_is_in_any_answer_log_record_dump_or_file(
    running, notes: Notes, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    async with running(settings(tmp_path), **servers(tmp_path, notes)) as gateway:
        key = await gateway.key("admin", *ROLES["admin"], "mcp:*")
        send = Sending(gateway, key)
        place = "/me/credentials/wiki/TOKEN"
        for value in (KEPT["replaced"], KEPT["value"]):
            assert (await send("PUT", place, {"value": value})).code == 204
        for body in (
            {"value": KEPT["value"], "other": KEPT["value"]},
            {"value": f"{KEPT['value']}\0"},
            [KEPT["value"]],
        ):
            assert (await send("PUT", place, body)).code == 400
        await send("PUT", "/me/credentials/wiki/OTHER", {"value": KEPT["value"]})
        await send("POST", "/api/login", {"key": f"ilk_{KEPT['value']}"})
        await send("POST", "/api/login", {"code": KEPT["value"]})
        link = f"/connect/{KEPT['value']}"
        await send("POST", link, {"values": {"TOKEN": KEPT["value"], "OTHER": [KEPT["value"]]}})

        user = User(gateway, key)
        send.replies.append(await user.connect(await user.url()))
        token = (await user.call()).text
        opened = await log_in(gateway, key=key)
        session = session_of(opened)
        calls = [("crm__x", {"a": KEPT["call"]}), ("crm__refund", {"a": KEPT["call"]})]
        calls += [("wiki__x", {}), ("program__x", {}), ("api__x", {}), ("crm__x", {"a": [1]})]
        for name, arguments in calls:
            reply = await gateway.call(name, key, **arguments)
            if name != "crm__x":
                send.replies.append(reply)
        launch = await send("GET", "/admin/api/v1/lock/echo/-")
        assert "--token=*** (" in launch.body.decode()
        made = await send("POST", "/admin/api/v1/keys", {"user": "berta"})
        send.replies.pop()  # the one answer that has the key
        assert await send.inspect("wiki", "notes", "program", "echo", "crm") > 10
        await send.every_route("crm", "wiki", "notes", "program", "echo", "api")
        send.replies = [each for each in send.replies if KEPT["call"] not in shown_call(each)]
        for path in ("/metrics", "/healthz", "/readyz", urlsplit(await user_link(gateway)).path):
            await send("GET", path)
        await send("GET", "/me", query=f"key={key}")
        await gateway.settle()
        secret = gateway.assembly.services.secret

        secrets = {
            **CONFIGURED,
            **KEPT,
            "key": key.rpartition("_")[2],
            "new key": made.json["key"].rpartition("_")[2],
            "access token": token,
            "refresh token": next(iter(notes.authorization.refresh_tokens)),
            "page key": opened.json["pageKey"],
            "cookie": session["cookie"].partition("=")[2],
            "key of the gateway": (tmp_path / "gateway.key").read_text().strip(),
            "key of the seals": secret.derive("credentials").hex(),
        }
        texts = dict(texts_of(tmp_path, send.replies)) | {"log": caplog.text}
    assert token.startswith("access-")
    assert [*(tmp_path / "results").iterdir()]
    found = [
        (where, of) for where, each in texts.items() for of, it in secrets.items() if it in each
    ]
    assert found == [("gateway.key", "key of the gateway")]


async def user_link(gateway: RunningGateway) -> str:
    """Return the link to connect of a user who has not done so."""
    return await User(gateway, await gateway.key("carl")).url()


def shown_call(reply: Reply) -> str:
    """Return an answer if it shows the arguments of a call that waits for an approval."""
    text = reply.body.decode(errors="replace")
    return text if '"approvers"' in text else ""


def texts_of(folder: Path, replies: list[Reply]) -> Iterator[tuple[str, str]]:
    """Yield each text that may hold no secret, by where it is."""
    for number, reply in enumerate(replies):
        yield f"reply {number}", reply.body.decode(errors="replace") + str(reply.headers)
    for file in folder.rglob("*"):
        if file.is_file() and file.name != "gateway.json":  # the configuration
            yield file.name, file.read_bytes().decode("latin-1")
    with closing(sqlite3.connect(folder / "gateway.db")) as database:
        yield "dump", "\n".join(database.iterdump())
