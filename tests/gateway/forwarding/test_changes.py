"""Which clients of a gateway are notified of changes at its servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from interlock import Client
from interlock.auth.principal import Principal
from interlock.config import loads
from interlock.errors import RemoteError
from interlock.gateway import ForwardingServer
from interlock.gateway.forwarding import changes
from interlock.policy import Policy
from interlock.toolbox import server_lists
from interlock.types import LogMessage
from tests.gateway.support import OWN_TOOLS, as_principal
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text, tool

ANNA, BERT = (Principal(f"user:{each}", frozenset({"mcp:*"})) for each in ("anna", "bert"))
CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "logging": {},
}
RULES = [
    {"id": "anna", "effect": "allow", "who": ["user:anna"], "tools": ["s:get_*"]},
    {"id": "bert", "effect": "allow", "who": ["user:bert"], "tools": ["*:*"]},
    {"id": "docs", "effect": "allow", "who": ["*"], "resources": ["s:doc://*"]},
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "GAP", 0.01)
    monkeypatch.setattr(server_lists, "REFRESH_GAP", 0.01)


def server(revision: str = LEGACY) -> ScriptedServer:
    return ScriptedServer(
        revision,
        {
            "tools/list": {"tools": [tool("get_x")]},
            "tools/call": text("done"),
            "resources/list": {"resources": [{"uri": "doc://1", "name": "1"}, HIDDEN]},
            "resources/templates/list": {"resourceTemplates": []},
            "prompts/list": {"prompts": []},
            "resources/subscribe": {},
            "resources/unsubscribe": {},
            "logging/setLevel": {},
        },
        capabilities=CAPABILITIES,
    )


HIDDEN = {"uri": "secret://1", "name": "secret"}


def gateway_of(upstream: ScriptedServer, rules: list[Json] | None = None) -> ForwardingServer:
    file = {"mcpServers": {}, "gateway": {"policy": {"rules": RULES if rules is None else rules}}}
    policy = Policy.from_config(loads(msgspec.json.encode(file)))
    return ForwardingServer({"s": upstream}, policy, environ={})


async def until(holds: Callable[[], Any]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@each_row("revision", [LEGACY, MODERN])
@each_row("theirs", [LEGACY, MODERN])
async def test_only_the_clients_whose_own_list_has_changed_are_notified(revision: str, theirs: str):
    s = server(theirs)
    if theirs == MODERN:
        s.answers["subscriptions/listen"] = acknowledge(s)
    gateway = gateway_of(s)
    anna: list[str] = []
    bert: list[str] = []
    async with (
        Client.memory(
            as_principal(gateway, ANNA), revision=revision, on_list_changed=anna.append
        ) as one,
        Client.memory(
            as_principal(gateway, BERT), revision=revision, on_list_changed=bert.append
        ) as other,
    ):
        await asyncio.gather(one.list_tools(), other.list_tools())
        await until(lambda: len(gateway.subscribers.principals()) == 2)
        s.answers["tools/list"] = {"tools": [tool("get_x"), tool("delete")]}
        s.notify("notifications/tools/list_changed")
        await until(lambda: bert)
        assert len(await other.list_tools()) == 2 + len(OWN_TOOLS)
        assert (anna, bert) == ([], ["tools"])
        s.answers["prompts/list"] = {"prompts": [{"name": "hidden"}]}
        s.notify("notifications/prompts/list_changed")
        s.answers["tools/list"] = {"tools": [tool("get_y")]}
        s.notify("notifications/tools/list_changed")
        await until(lambda: anna)

    assert set(anna) == set(bert) == {"tools"}


async def test_flood_of_list_changes_is_relisted_and_notified_once_a_gap(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(changes, "GAP", 0.2)
    monkeypatch.setattr(server_lists, "REFRESH_GAP", 0.2)
    s = server()
    gateway = gateway_of(s)
    told: list[str] = []
    async with Client.memory(
        as_principal(gateway, BERT), revision=LEGACY, on_list_changed=told.append
    ) as client:
        await client.list_tools()
        before = len(s.sent("tools/list"))
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(200):
            s.answers["tools/list"] = {"tools": [tool(f"get_{number}")]}
            for _ in range(10):
                s.notify("notifications/tools/list_changed")
            await asyncio.sleep(0)
        await until(lambda: told)
        gaps = (loop.time() - began) / 0.2

    assert len(s.sent("tools/list")) - before <= gaps + 2
    assert len(told) <= gaps + 2


@each_row("revision", [LEGACY, MODERN])
@each_row("theirs", [LEGACY, MODERN])
async def test_many_followers_of_a_resource_are_one_subscription_upstream(
    revision: str, theirs: str
):
    s = server(theirs)
    if theirs == MODERN:
        s.answers["subscriptions/listen"] = acknowledge(s)
    gateway = gateway_of(s)
    updates: list[str] = []
    async with (
        Client.memory(
            as_principal(gateway, ANNA), revision=revision, on_resource_updated=updates.append
        ) as one,
        Client.memory(
            as_principal(gateway, BERT), revision=revision, on_resource_updated=updates.append
        ) as other,
    ):
        await asyncio.gather(one.list_tools(), other.list_tools())
        await until(lambda: gateway.subscribers.principals() or revision == MODERN)
        await asyncio.gather(one.subscribe("doc://1"), other.subscribe("doc://1"))
        assert followed(s) == 1
        updated(s)
        await until(lambda: len(updates) == 2)
        await one.unsubscribe("doc://1")
        updated(s)
        await until(lambda: len(updates) >= 3)
        await other.unsubscribe("doc://1")
        await until(lambda: not gateway._changes._followed)
        await until(lambda: ended(s))

    assert set(updates) == {"doc://1"}


def acknowledge(s: ScriptedServer) -> Callable[[Json], None]:
    """Return an answer to `subscriptions/listen`: an acknowledgement, and no end."""

    def listen(params: Json) -> None:
        wanted = params["notifications"]
        id = s.received[-1]["id"]
        meta = {"io.modelcontextprotocol/subscriptionId": id}
        s.notify("notifications/subscriptions/acknowledged", notifications=wanted, _meta=meta)

    return listen


def followed(s: ScriptedServer) -> int:
    """How often the resource was subscribed to."""
    listened = s.sent("subscriptions/listen")
    return len(s.sent("resources/subscribe")) + sum(
        "doc://1" in each["notifications"].get("resourceSubscriptions", ()) for each in listened
    )


def ended(s: ScriptedServer) -> bool:
    return bool(s.sent("resources/unsubscribe") or s.sent("notifications/cancelled"))


def updated(s: ScriptedServer) -> None:
    s.notify("notifications/resources/updated", uri="doc://1")


async def test_resource_is_followed_again_after_a_restart_of_its_server():
    s = server()
    gateway = gateway_of(s)
    updates: list[str] = []
    async with Client.memory(
        as_principal(gateway, ANNA), revision=LEGACY, on_resource_updated=updates.append
    ) as client:
        await client.subscribe("doc://1")
        await s.end()
        await client.call_tool("s__get_x")
        assert followed(s) == 2
        updated(s)
        await until(lambda: updates)


async def test_update_of_a_uri_at_another_server_is_not_passed_on():
    s, other = server(), server()
    other.answers["resources/list"] = {"resources": [{"uri": "own://1", "name": "1"}]}
    policy = gateway_of(s)._in_force.policy
    gateway = ForwardingServer({"s": s, "other": other}, policy, environ={})
    updates: list[str] = []
    async with Client.memory(
        as_principal(gateway, BERT), revision=LEGACY, on_resource_updated=updates.append
    ) as client:
        await client.subscribe("doc://1")
        await gateway.toolbox.upstream("other").list_resources()
        updated(other)
        await client.call_tool("other__get_x")  # arrives after the notification
        assert updates == []
        updated(s)
        await until(lambda: updates)


async def test_hidden_resource_cannot_be_followed_and_looks_like_an_absent_one():
    s = server()
    texts = []
    async with Client.memory(as_principal(gateway_of(s), ANNA), revision=LEGACY) as client:
        for uri in ("secret://1", "absent://1"):
            with pytest.raises(RemoteError) as caught:
                await client.subscribe(uri)
            texts.append((caught.value.code, str(caught.value).replace(uri, "URI")))

    assert texts[0] == texts[1]
    assert s.sent("resources/subscribe") == []


async def test_client_whose_right_was_withdrawn_is_not_notified_of_a_resource():
    s = server()
    gateway = gateway_of(s)
    anna: list[str] = []
    bert: list[str] = []
    async with (
        Client.memory(
            as_principal(gateway, ANNA), revision=LEGACY, on_resource_updated=anna.append
        ) as one,
        Client.memory(
            as_principal(gateway, BERT), revision=LEGACY, on_resource_updated=bert.append
        ) as other,
    ):
        await asyncio.gather(one.subscribe("doc://1"), other.subscribe("doc://1"))
        rules = [{"id": "b", "effect": "allow", "who": ["user:bert"], "resources": ["*:*"]}]
        file = {"mcpServers": {}, "gateway": {"policy": {"rules": rules}}}
        await gateway.replace({"s": s}, Policy.from_config(loads(msgspec.json.encode(file))))
        updated(s)
        await until(lambda: bert)

    assert anna == []


async def test_log_messages_outside_calls_reach_the_sessions_with_their_level():
    s = server()
    gateway = gateway_of(s)
    anna: list[LogMessage] = []
    bert: list[LogMessage] = []
    async with (
        Client.memory(as_principal(gateway, ANNA), revision=LEGACY, on_log=anna.append) as one,
        Client.memory(as_principal(gateway, BERT), revision=LEGACY, on_log=bert.append) as other,
    ):
        await one.set_log_level("debug")
        await other.set_log_level("error")
        for level in ("debug", "error"):
            s.notify("notifications/message", level=level, data=level)
        await until(lambda: len(anna) == 2 and bert)

    assert [each.level for each in anna] == ["debug", "error"]
    assert [each.level for each in bert] == ["error"]
    assert [each["level"] for each in s.sent("logging/setLevel")] == ["debug"]
