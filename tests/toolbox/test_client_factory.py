"""The clients of one server, and what of the program's handlers each of them gets."""

from __future__ import annotations

import json
from typing import Any

from interlock.client import ClientOptions
from interlock.config import OpenApiConfig, loads
from interlock.config.openapi import ApiDocument
from interlock.toolbox.client_factory import ClientFactory, launch_of
from interlock.toolbox.pool import SHARED, Key, PooledClient
from interlock.toolbox.user_access import UserAccess
from interlock.transports.http_pool import HttpPool
from interlock.types import LogMessage
from tests.support.rows import each_row
from tests.support.scripted_server import ScriptedServer
from tests.toolbox.upstreams import served, settle

OF_A_CALL: Key = ("call", "", "1")
KEY = b"k" * 32
SECRET = "s3cret-value"


def factory(server: ScriptedServer, options: ClientOptions, *, forwards: bool) -> ClientFactory:
    return ClientFactory(
        "s",
        server,
        {},
        HttpPool,
        users=UserAccess("s", server, {}, None),
        credentials=None,
        permitted=None,
        forwards=forwards,
        options=options,
    )


def no_loss(pooled: PooledClient, reason: str) -> None:
    raise AssertionError(f"{pooled.key} was lost: {reason}")


@each_row(
    ("forwards", "key", "reported"),
    [(False, SHARED, 1), (False, OF_A_CALL, 1), (True, SHARED, 1), (True, OF_A_CALL, 0)],
)
async def test_log_messages_of_one_users_connection_reach_no_other_user_of_a_gateway(
    forwards: bool, key: Key, reported: int
):
    logs: list[LogMessage] = []
    server = served()
    clients = factory(server, {"on_log": logs.append}, forwards=forwards)
    async with clients.make(key, None, no_loss, lambda _: None).client:
        server.notify("notifications/message", level="info", data="of one user")
        await settle()

    assert len(logs) == reported


@each_row(("key", "kinds"), [(SHARED, ["tools"]), (OF_A_CALL, [])])
async def test_only_the_connection_that_lists_the_tools_reports_their_changes(
    key: Key, kinds: list[str]
):
    changed: list[str] = []
    server = served()
    clients = factory(server, {}, forwards=False)
    async with clients.make(key, None, no_loss, changed.append).client:
        server.notify("notifications/tools/list_changed")
        await settle()

    assert changed == kinds


def test_all_connections_share_the_server_of_an_api():
    config = OpenApiConfig(openapi=ApiDocument(document="a.json", base_url="https://a.example"))
    clients = ClientFactory(
        "s",
        config,
        {},
        HttpPool,
        users=UserAccess("s", config, {}, None),
        credentials=None,
        permitted=None,
        forwards=False,
        options={},
    )

    assert clients.api is not None
    assert clients.api is clients.api


# How a server is launched


def launch(entry: dict[str, Any], key: bytes = KEY, **environ: str) -> dict[str, Any]:
    server = loads(json.dumps({"mcpServers": {"s": entry}}).encode()).servers["s"]
    return launch_of(server, environ, key)


def test_launch_of_a_program_is_its_command_and_arguments():
    assert launch({"command": "npx", "args": ["-y", "pkg@1"]}) == {
        "command": "npx",
        "args": ["-y", "pkg@1"],
    }


@each_row(
    "entry",
    [
        {"command": "npx", "args": ["--token", "${TOKEN}"]},
        {"command": "${TOKEN}", "args": []},
        {"url": "https://x.test/${TOKEN}/mcp"},
        {"openapi": {"document": "https://x.test/${TOKEN}", "baseUrl": "https://x.test"}},
    ],
    ids=["argument", "command", "url", "document"],
)
def test_filled_in_variable_changes_the_launch_without_being_shown(entry: dict[str, Any]):
    before, after = launch(entry, TOKEN=SECRET), launch(entry, TOKEN="another")

    assert before != after
    assert SECRET not in str(before)
    assert "${TOKEN} (" in str(before) or "${TOKEN}/mcp (" in str(before)
    assert before != launch(entry, b"j" * 32, TOKEN=SECRET)  # so it cannot be guessed


def test_query_of_a_url_changes_the_launch_without_being_shown():
    before = launch({"url": f"https://x.test/mcp?key={SECRET}"})

    assert before != launch({"url": "https://x.test/mcp?key=another"})
    assert before["url"].startswith("https://x.test/mcp (")
    assert SECRET not in str(before)


@each_row("args", [["--token={}"], ["--api-key", "{}"], ["-e", "CRM_SECRET={}"]])
def test_secret_that_is_written_as_an_argument_changes_the_launch_without_being_shown(
    args: list[str],
):
    before, after = (
        launch({"command": "npx", "args": [each.format(value) for each in args]})
        for value in (SECRET, "another")
    )

    assert before != after
    assert "*** (" in before["args"][-1]
    assert SECRET not in str(before)
