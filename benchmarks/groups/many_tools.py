"""How long a gateway with many tools keeps the event loop, in one step at most."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from asyncio.events import Handle
from collections.abc import Iterator
from time import thread_time
from typing import Any

from msgspec import Raw

from benchmarks.harness import PEERS, US, Effort, Row, Taken
from interlock import Client
from interlock.auth.principal import Principal
from interlock.cli.gateway import serve
from interlock.config import loads
from interlock.config.gateway import View, ViewSearch
from interlock.gateway import ForwardingServer
from interlock.policy import Policy
from interlock.protocol import Request
from interlock.protocol.envelope import encode
from interlock.revisions import MODERN
from interlock.types import JsonObject
from tests.gateway.golden import context_of
from tests.gateway.support import as_principal

TITLE = "Gateway with many tools: the longest step of the event loop"
COUNTS = (1_000, 10_000, 20_000)
OF_A_SERVER = 1_000
ITEMS = 10_000  # resources, templates and prompts each, of the gateway with the fewest tools
ITEM_LISTS = ("resources/list", "resources/templates/list", "prompts/list")
GOAL = 0.05  # seconds
SEARCH = {"name": "interlock__search_tools", "arguments": {"query": "create an issue"}}
PARTS = (
    "start",
    "first list",
    "first search",
    "another caller",
    "a list changes",
    "reload",
    "items",
)
VIEWS = {"search": View(search=ViewSearch(is_on=True))}


class Steps:
    """Measures the processor time of each callback of the event loop.

    Attributes:
        longest: By part of the work, in seconds.
    """

    def __init__(self) -> None:
        self.longest = dict.fromkeys((*PARTS, "end"), 0.0)
        self.part = PARTS[0]
        self._run: Any = Handle._run  # type: ignore[attr-defined]

    def __enter__(self) -> Steps:
        def step(handle: Handle) -> None:
            began = thread_time()
            self._run(handle)
            self.longest[self.part] = max(self.longest[self.part], thread_time() - began)

        Handle._run = step  # type: ignore[attr-defined]
        return self

    def __exit__(self, *_: object) -> None:
        Handle._run = self._run  # type: ignore[attr-defined]


def rows(effort: Effort) -> Iterator[Row]:
    gc.set_threshold(serve.YOUNG_OBJECTS)
    for count in COUNTS:
        found: dict[str, Taken] = {part: {US: []} for part in PARTS}
        for _ in range(min(effort.rounds, 3)):
            gc.unfreeze()
            gc.collect()
            for part, seconds in asyncio.run(_longest(count)).items():
                found[part][US].append(seconds)
        if count > COUNTS[0]:
            del found["items"]
        for part, taken in found.items():
            yield Row(f"{count:,} tools, {part}", "s", taken, {US: GOAL})


async def _longest(count: int) -> dict[str, float]:
    """Return the seconds of the longest step of each part."""
    program = str(PEERS / "listing_server.py")
    size, items = min(count, OF_A_SERVER), str(ITEMS if count == COUNTS[0] else 0)
    entries = {
        f"s{place}": {"command": sys.executable, "args": [program, f"s{place}", str(size), items]}
        for place in range(count // size)
    }
    servers = loads(encode({"mcpServers": entries})).servers
    gateway = ForwardingServer(servers, Policy.compile(None, views=VIEWS), environ=dict(os.environ))
    changed = asyncio.Event()
    anna, bert, searching = _principal("anna"), _principal("bert"), _principal("anna", "search")
    with Steps() as steps:
        following = Client.memory(
            as_principal(gateway, _principal("follower")), on_list_changed=lambda _: changed.set()
        )
        async with gateway.running(), following:
            serve.freeze_as_it_grows(gateway.toolbox)
            steps.part = "first list"
            await _ask(gateway, anna, "tools/list")
            steps.part = "first search"
            await _ask(gateway, searching, "tools/call", SEARCH)
            await gateway.toolbox.finder.finish()
            steps.part = "another caller"
            await _ask(gateway, bert, "tools/list")
            steps.part = "a list changes"
            await _ask(gateway, anna, "tools/call", {"name": gateway.toolbox.tools[0].wire_name})
            await changed.wait()
            await _ask(gateway, anna, "tools/list")
            steps.part = "reload"
            await gateway.replace(servers, Policy.compile(None, views=VIEWS))
            await _ask(gateway, anna, "tools/list")
            await _ask(gateway, searching, "tools/call", SEARCH)
            steps.part = "items"
            for method in ITEM_LISTS:
                await _ask(gateway, anna, method)
            steps.part = "end"
    return {part: steps.longest[part] for part in PARTS}


def _principal(user: str, view: str = "") -> Principal:
    return Principal(f"user:{user}", frozenset({"mcp:*"}), view=view)


async def _ask(
    gateway: ForwardingServer, principal: Principal, method: str, params: JsonObject | None = None
) -> None:
    """Send a request, and leave the result encoded, as a client is another process."""
    await gateway.answer(
        Request(1, method, Raw(encode(params or {}))), context_of(principal, MODERN[0])
    )
