"""Tools that are not functions, callers with views of their own, servers that are not `Server`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from interlock import Client, Context, Server
from interlock.auth.principal import Principal
from interlock.context import Session
from interlock.errors import UnknownTool
from interlock.protocol import Request
from interlock.revisions import LEGACY, NEWEST
from interlock.server.http.app import HttpApp
from interlock.server.http.http_options import HttpOptions
from interlock.server.local_catalogue import LocalCatalogue
from interlock.server.methods import Methods
from interlock.server.sealing import SigningSeal
from interlock.server.server_connection import ServerConnection
from interlock.server.subscribers import Subscribers
from interlock.transports.memory import MemoryTransport
from interlock.types import ClientCapabilities, Implementation, Tool
from tests.server.http.conftest import Http
from tests.server.tool_objects import SCHEMA, Echo
from tests.support.rows import each_row

ANN, BOB = Principal("ann"), Principal("bob")


class PrivateTools(LocalCatalogue):
    """A catalogue that shows a tool "NAME_..." to the principal NAME only."""

    def view(self, context: Context) -> Any:
        return context.principal.id if context.principal else ""

    def page(self, kind, cursor, context):
        items, next_cursor = super().page(kind, cursor, context)
        return [each for each in items if self.sees(each.name, context)], next_cursor

    def find(self, kind, name, context):
        return super().find(kind, name, context) if self.sees(name, context) else None

    def sees(self, name: str, context: Context) -> bool:
        return name.partition("_")[0] == self.view(context)


class Gateway:
    """The smallest object that connections can serve."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self.subscribers = Subscribers()
        self.catalogue = PrivateTools(self.subscribers)
        info = Implementation(name="gateway", version="1")
        seal = SigningSeal()
        methods = Methods(info, None, self.catalogue, self.subscribers, seal, 0, None, 60.0)
        self.answer = methods.answer
        self.find = self.catalogue.find

    @asynccontextmanager
    async def running(self):
        yield


def request(method: str, params: Any = None) -> Request:
    return Request(1, method, Raw(json.dumps(params or {}).encode()))


def context(principal: Principal | None, revision: str = NEWEST) -> Context:
    return Context(
        revision=revision,
        request_id=1,
        link=None,  # type: ignore[arg-type]  # nothing is sent
        loop=asyncio.get_running_loop(),
        client_capabilities=ClientCapabilities(),
        principal=principal,
        session=None if revision == NEWEST else Session(revision=revision),
    )


# Callers


@each_row("revision", [LEGACY[0], LEGACY[-1], NEWEST])
async def test_a_tool_of_one_principal_is_listed_and_found_for_that_principal_only(revision):
    gateway = Gateway()
    for name in ("ann_notes", "bob_notes"):
        gateway.catalogue.add_tool(Echo(Tool(name=name, input_schema=SCHEMA)))

    async def listed(principal: Principal | None) -> list[str]:
        answer = await gateway.answer(request("tools/list"), context(principal, revision))
        return [each["name"] for each in json.loads(answer)["tools"]]

    for _ in range(2):  # the second time from the cache
        assert await listed(ANN) == ["ann_notes"]
        assert await listed(BOB) == ["bob_notes"]
        assert await listed(None) == []

    call = request("tools/call", {"name": "ann_notes"})
    assert b"content" in await gateway.answer(call, context(ANN, revision))
    with pytest.raises(UnknownTool, match="unknown tool 'ann_notes'"):
        await gateway.answer(call, context(BOB, revision))


async def test_a_gateway_is_served_without_subclassing_server():
    gateway = Gateway()
    gateway.catalogue.view = lambda context: ""  # type: ignore[method-assign]
    gateway.catalogue.sees = lambda name, context: True  # type: ignore[method-assign]
    gateway.catalogue.add_tool(Echo())
    ours, theirs = MemoryTransport.pair()
    serving = asyncio.create_task(ServerConnection(gateway, ours).serve())

    async with Client(lambda: theirs) as client:
        result = await client.call_tool("echo", {"a": 1})

    assert json.loads(result.text) == {"a": 1}
    await serving


async def test_each_token_sees_and_calls_its_own_tools_over_http_in_both_eras():
    async def verify(token: str) -> Principal:
        return Principal(token)

    gateway = Gateway()
    for name in ("ann_notes", "bob_notes"):
        gateway.catalogue.add_tool(Echo(Tool(name=name, input_schema=SCHEMA)))
    app = HttpApp(gateway, HttpOptions(verify_token=verify, resource="https://a.example/mcp"))
    http = Http(app)

    for who, other in (("ann", "bob"), ("bob", "ann")):
        token = {"authorization": f"Bearer {who}"}
        session = await http.initialize(headers=token)
        for reply in (
            await http.ask("tools/list", headers=token),
            await session.ask("tools/list"),
        ):
            assert [each["name"] for each in reply.json["result"]["tools"]] == [f"{who}_notes"]
        assert json.loads((await http.call(f"{who}_notes", {"a": 1}, headers=token)).text)
        assert (await http.call(f"{other}_notes", headers=token)).error == -32602
        assert (await http.call("none", headers=token)).error == -32602
    await app.close()


async def test_unauthenticated_http_client_is_identified_by_address_or_session():
    gateway = Gateway()
    gateway.catalogue.sees = lambda name, context: True  # type: ignore[method-assign]
    callers = []

    class Noting(Echo):
        async def call(self, arguments: Raw | None, context: Context) -> Any:
            callers.append(context.link.caller)
            return await super().call(arguments, context)

    gateway.catalogue.add_tool(Noting())
    app = HttpApp(gateway, HttpOptions())
    http = Http(app)
    first, second = await http.initialize(), await http.initialize()
    for call in (http.call, http.call, first.call, first.call, second.call):
        await call("echo", {"a": 1})

    modern, again, one, same, other = callers
    assert modern == again == "127.0.0.1"
    assert one == same != other
    await app.close()


# Tools that are not functions


# Completions


async def test_a_completion_that_is_added_late_is_offered(connect):
    server = Server("s")

    @server.prompt
    def greet(name: str) -> str:
        return name

    wire = await connect(server)
    await wire.modern("prompts/list")
    server.completion("greet", "name")(lambda value: [value + "!"])

    answer = await wire.modern(
        "completion/complete",
        {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "name", "value": "a"},
        },
    )

    assert answer["result"]["completion"]["values"] == ["a!"]
