"""The clients of one server, and what of the program's handlers each of them gets."""

from __future__ import annotations

import pytest

from interlock.client import ClientOptions
from interlock.config import OpenApiConfig
from interlock.config.openapi import ApiDocument
from interlock.toolbox.client_factory import ClientFactory
from interlock.toolbox.pool import SHARED, Key, PooledClient
from interlock.toolbox.user_access import UserAccess
from interlock.transports.http_pool import HttpPool
from interlock.types import LogMessage
from tests.support.scripted_server import ScriptedServer
from tests.toolbox.upstreams import served, settle

OF_A_CALL: Key = ("call", "", "1")


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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(("key", "kinds"), [(SHARED, ["tools"]), (OF_A_CALL, [])])
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
