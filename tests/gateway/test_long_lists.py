"""Lists of many tools: the work between two turns of the event loop, counted rather than timed."""

from __future__ import annotations

import asyncio
import gc
from asyncio.events import Handle
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from interlock import Client, aio
from interlock.auth.principal import Principal
from interlock.calls import Caller
from interlock.cli.gateway import serve
from interlock.client import listing
from interlock.config.gateway import View, ViewSearch
from interlock.gateway import ForwardingServer
from interlock.gateway.forwarding import catalogue, changes
from interlock.gateway.forwarding import tool as forwarded
from interlock.policy import Policy
from interlock.policy.rights import CallerRights
from interlock.server import encoders
from interlock.store import pin
from interlock.toolbox import server_lists, tool_index, tool_list
from tests.gateway.support import as_principal
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text, tool

TOOLS = 300
VIEWS = {"search": View(search=ViewSearch(is_on=True)), "other": View(servers=("a",))}
ANNA, BERT = (Principal(f"user:{each}", frozenset({"mcp:*"})) for each in ("anna", "bert"))
SEARCHING = Principal("user:anna", frozenset({"mcp:*"}), view="search")
OTHER = Principal("user:anna", frozenset({"mcp:*"}), view="other")
WORK = {
    "read": (listing, "_convert"),
    "checked": (tool_list, "checked_input"),
    "hashed": (pin, "hash_of"),
    "translated": (forwarded, "portable"),
    "encoded": (encoders, "_item_for"),
    "indexed": (tool_index, "_weights"),
    "decided": (CallerRights, "right"),
}


class Work:
    """Counts calls of the functions of `WORK`.

    Attributes:
        all: How often each was called.
        most: The most calls of each in one callback of the event loop.
    """

    def __init__(self) -> None:
        self.all: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self._now: Counter[str] = Counter()

    def counted(self, name: str, work: Any) -> Any:
        def count(*args: Any, **options: Any) -> Any:
            self.all[name] += 1
            self._now[name] += 1
            self.most[name] = max(self.most[name], self._now[name])
            return work(*args, **options)

        return count

    def begin_step(self) -> None:
        self._now.clear()


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    monkeypatch.setattr(changes, "GAP", 0.01)
    monkeypatch.setattr(server_lists, "REFRESH_GAP", 0.01)
    found, run = Work(), Handle._run  # type: ignore[attr-defined]
    for name, (owner, attribute) in WORK.items():
        monkeypatch.setattr(owner, attribute, found.counted(name, getattr(owner, attribute)))

    def step(handle: Handle) -> None:
        found.begin_step()
        run(handle)

    monkeypatch.setattr(Handle, "_run", step)
    return found


def tools(server: str, changed: int = 0) -> Json:
    """Return a list of tools with different schemas, of which one was changed."""
    return {
        "tools": [
            tool(
                f"get_{number}",
                description=f"Get thing {number} of {server}. {changed if number == 7 else ''}",
                inputSchema={"type": "object", "properties": {f"{server}{number}": {}}},
            )
            for number in range(TOOLS)
        ]
    }


def server(name: str) -> ScriptedServer:
    answers = {"tools/list": tools(name), "tools/call": text("done")}
    return ScriptedServer(LEGACY, answers, capabilities={"tools": {"listChanged": True}})


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_long_lists_are_read_and_offered_in_short_steps(work: Work, revision: str):
    a, servers = server("a"), {}
    servers = {"a": a, "b": server("b")}
    gateway = ForwardingServer(servers, Policy.compile(None, views=VIEWS), environ={})
    changed = asyncio.Event()
    async with (
        Client.memory(as_principal(gateway, ANNA), revision=revision) as anna,
        Client.memory(as_principal(gateway, SEARCHING), revision=revision) as searching,
        Client.memory(as_principal(gateway, OTHER), revision=revision) as other,
        Client.memory(
            as_principal(gateway, BERT), revision=revision, on_list_changed=lambda _: changed.set()
        ) as bert,
    ):
        for client in (anna, other, bert):
            assert len(await client.list_tools()) >= TOOLS
        found = await searching.call_tool("interlock__search_tools", {"query": "thing of b"})
        assert "b__get_0" in found.text
        assert work.all.keys() == WORK.keys()
        before = work.all.copy()
        a.answers["tools/list"] = tools("a", changed=1)
        a.notify("notifications/tools/list_changed")
        await changed.wait()
        await bert.list_tools()
        await searching.call_tool("interlock__search_tools", {"query": "thing"})
        again = work.all - before
        await gateway.replace(servers, Policy.compile(None, views=VIEWS))
        assert len(await anna.list_tools()) >= 2 * TOOLS

    assert {name: again[name] for name in ("checked", "translated")} == dict.fromkeys(
        ("checked", "translated"), 1
    )
    assert again["indexed"] <= 2  # the old words are removed
    assert work.most.pop("decided") <= catalogue.RIGHTS_AT_ONCE
    assert max(work.most.values()) <= aio.SLICE + 1, work.most  # a list is hashed with its server


async def test_own_tool_of_a_caller_who_may_call_nothing_is_unknown_after_all_rights_are_decided():
    gateway = ForwardingServer({"a": server("a")}, Policy.compile(None, views=VIEWS), environ={})
    nobody = Principal("user:eve", frozenset({"mcp:x:*"}), view="search")
    async with Client.memory(as_principal(gateway, nobody)) as client:
        with pytest.raises(Exception, match="unknown tool 'interlock__search_tools'"):
            await client.call_tool("interlock__search_tools", {"query": "thing"})
    assert gateway.catalogue.callable_tools(Caller(nobody)) == {}


def test_definitions_leave_the_garbage_collector_whenever_there_are_many_more(
    monkeypatch: pytest.MonkeyPatch,
):
    frozen: list[int] = []
    upstreams = {"a": SimpleNamespace(entries=()), "b": SimpleNamespace(entries=())}
    toolbox = SimpleNamespace(upstreams=upstreams, listeners=set())
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(len(upstreams["a"].entries)))
    serve.freeze_as_it_grows(cast("Any", toolbox))
    for count in (10, serve.MANY_TOOLS, 0, serve.MANY_TOOLS, 2 * serve.MANY_TOOLS):
        upstreams["a"].entries = (0,) * count
        for notify in toolbox.listeners:
            notify()

    assert frozen == [0, serve.MANY_TOOLS, 2 * serve.MANY_TOOLS]
