"""Which secrets of a server are redacted, and the commands that its errors suggest."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from interlock import Server
from interlock.config import HttpServer, OAuthClient, PythonServer, StdioServer, ToolFilter
from interlock.errors import InsufficientScope, LoginRequired
from interlock.oauth.stored_login import StoredLogin
from interlock.text.redaction import MIN_SECRET, Redactor
from interlock.toolbox import Toolbox
from interlock.toolbox.connect import make_client
from interlock.toolbox.hints import with_hint
from interlock.transports.http_pool import HttpPool
from tests.support.rows import each_row

ENVIRON = {"KEY": "canary/key"}


def secrets_of(server: StdioServer | HttpServer) -> Redactor:
    _, secrets = make_client(server, ENVIRON, HttpPool, {})
    return secrets


# Redactor


def test_secret_that_contains_another_is_redacted_whole():
    secrets = Redactor(["canary", "canary-two", "Bearer canary-two"])

    assert secrets.redact("canary canary-two Bearer canary-two") == "*** *** ***"


def test_short_value_is_not_redacted():
    short, long = "x" * (MIN_SECRET - 1), "y" * MIN_SECRET

    assert Redactor([short, long, ""]).redact(f"{short} {long}") == f"{short} ***"


def test_current_token_is_redacted():
    authorization: Any = SimpleNamespace(token="token-1")
    secrets = Redactor((), authorization)
    authorization.token = "token-2"

    assert secrets.redact("token-2") == "***"


def test_secrets_are_not_in_the_repr():
    assert "canary" not in repr(Redactor(["canary-1"]))


@each_row(
    "server",
    [
        StdioServer(command="x", env={"A": "canary/key"}),
        StdioServer(command="x", args=("--key", "${KEY}")),
        HttpServer(url="https://h/mcp?k=${KEY}"),
        HttpServer(url="https://h/mcp?k=canary%2Fkey&more=1"),
        HttpServer(url="https://h/mcp", headers={"X-Key": "${KEY}"}),
        HttpServer(url="https://h/mcp", headers={"Authorization": "Basic ${KEY}"}),
        HttpServer(url="https://h/mcp", oauth=OAuthClient(client_id="i", client_secret="${KEY}")),
    ],
    ids=["variable", "argument", "query", "written query", "header", "part of a header", "client"],
)
def test_configured_values_of_a_server_are_redacted(server: StdioServer | HttpServer):
    secrets = secrets_of(server)

    assert secrets.redact("bad key canary/key, said x and h") == "bad key ***, said x and h"


def test_password_in_the_url_of_an_argument_is_redacted_alone_and_encoded():
    args = ("--db=postgresql://crm:pass%2Fword-1@db.example/crm", "https://ghp_canary@x.example")
    secrets = secrets_of(StdioServer(command="crm", args=args))

    for text in ("pass%2Fword-1", "pass/word-1", "crm:pass%2Fword-1", "ghp_canary"):
        assert secrets.redact(f"({text})") == "(***)"
    assert secrets.redact(args[0]) == "--db=postgresql://***@db.example/crm"


def test_query_is_redacted_encoded_and_decoded():
    secrets = secrets_of(HttpServer(url="https://h/mcp?k=canary%2Fkey&l=other%2Ekey"))

    for text in ("canary%2Fkey", "canary/key", "other%2Ekey", "other.key"):
        assert secrets.redact(f"({text})") == "(***)"


def test_path_from_a_variable_is_redacted_but_not_the_host():
    environ = {"KEY": "canary-key"}
    server = HttpServer(url="https://host.example/public/${KEY}/mcp")
    _, secrets = make_client(server, environ, HttpPool, {})

    shown = secrets.redact("https://host.example/public/canary-key/mcp")
    assert shown == "https://host.example/public/***/mcp"


# Ways out


def test_suggested_command_is_quoted_for_the_shell():
    name, scope = "it's; rm -rf $HOME", "it's"
    server = HttpServer(url="https://h/mcp")

    login = with_hint(LoginRequired("h needs a login: interlock servers login"), name, server)
    assert shlex.split(login.partition(": ")[2]) == ["interlock", "servers", "login", name]

    more = with_hint(InsufficientScope((scope,), ""), name, server)
    assert shlex.split(more.rpartition(": ")[2])[3:] == [name, "--scope", scope]


async def test_login_of_a_principal_is_used_for_its_own_calls_only(monkeypatch: pytest.MonkeyPatch):
    owners: list[str] = []

    class Login(StoredLogin):
        def __init__(self, *args: Any, owner: str = "", **options: Any) -> None:
            owners.append(owner)
            super().__init__(*args, owner=owner, **options)

    monkeypatch.setattr("interlock.oauth.stored_login.StoredLogin", Login)
    pool = HttpPool()
    for owner in ("", "/user:anna", "/user:berta"):
        make_client(HttpServer(url="https://host.test/mcp"), {}, lambda: pool, {}, owner=owner)
    await pool.close()

    assert owners == ["", "/user:anna", "/user:berta"]


# Objects of Python modules


notes = Server("notes")


@notes.tool
def add(text: str) -> str:
    """Add a note."""
    return f"added {text}"


@notes.tool
def clear() -> str:
    """Delete all notes."""
    return "cleared"


async def test_python_object_serves_its_tools_like_any_server():
    entry = PythonServer(object=f"{__name__}:notes", tools=ToolFilter(deny=("clear",)))
    async with Toolbox({"notes": entry}) as toolbox:
        addresses = [each.address for each in toolbox.tools]
        result = await toolbox.call("notes:add", {"text": "x"})

    assert addresses == ["notes:add"]
    assert result.text == "added x"


@each_row(
    ("name", "reason"),
    [
        ("no.such.module:x", "no.such.module:x cannot be imported: No module named 'no'"),
        (f"{__name__}:missing", "has no attribute 'missing'"),
        (f"{__name__}:__doc__", "is not a server; it has no method connect()"),
    ],
)
async def test_invalid_server_object_fails_alone_with_the_reason(name: str, reason: str):
    servers = {"bad": PythonServer(object=name), "notes": PythonServer(object=f"{__name__}:notes")}
    async with Toolbox(servers) as toolbox:
        status = toolbox.status

    assert status["bad"].state == "failed"
    assert reason in status["bad"].reason
    assert status["notes"].state == "ok"


async def test_disabled_object_is_not_imported():
    async with Toolbox({"off": PythonServer(object="no.such:x", enabled=False)}) as toolbox:
        assert toolbox.status["off"].state == "disabled"
