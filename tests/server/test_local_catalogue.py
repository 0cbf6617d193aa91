"""Tools that are not functions, callers with views of their own, servers that are not `Server`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from interlock import Client, Context, Server, ToolError
from interlock.auth.principal import Principal
from interlock.context import Session
from interlock.errors import InvalidArguments, LocalProtocolError, SchemaError, UnknownTool
from interlock.protocol import Request
from interlock.revisions import ALL, LEGACY, NEWEST
from interlock.server.http.app import HttpApp
from interlock.server.http.options import HttpOptions
from interlock.server.local_catalogue import LocalCatalogue
from interlock.server.methods import Methods
from interlock.server.sealing import SigningSeal
from interlock.server.server_connection import ServerConnection
from interlock.server.subscribers import Subscribers
from interlock.transports.memory import MemoryTransport
from interlock.types import CallToolResult, ClientCapabilities, Implementation, TextContent, Tool
from tests.server.http.conftest import Http

ANN, BOB = Principal("ann"), Principal("bob")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


class Echo:
    """A tool that returns `answer`, raises it, or echoes its arguments."""

    def __init__(self, definition: Any = None, answer: Any = None) -> None:
        self.definition = definition or Tool(name="echo", input_schema=SCHEMA)
        self.answer = answer

    async def call(self, arguments: Raw | None, context: Context) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        if self.answer is not None:
            return self.answer
        return CallToolResult(content=[TextContent(text=bytes(arguments or b"").decode())])


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


@pytest.mark.parametrize("revision", [LEGACY[0], LEGACY[-1], NEWEST])
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


async def test_cached_pages_are_bounded_however_many_views_there_are(monkeypatch):
    monkeypatch.setattr("interlock.server.methods.MAX_CACHED_PAGES", 3)
    gateway = Gateway()
    gateway.catalogue.add_tool(Echo())

    for number in range(10):
        await gateway.answer(request("tools/list"), context(Principal(f"p{number}")))

    assert len(gateway.answer.__self__._pages) <= 3  # type: ignore[attr-defined]


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


async def test_over_http_each_token_sees_and_calls_its_own_tools_in_both_eras():
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


async def test_over_http_an_unauthenticated_client_is_a_caller_by_address_or_session():
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


@pytest.mark.parametrize("revision", ALL)
async def test_a_tool_object_is_listed_and_called_in_every_revision(connect, revision):
    server = Server("s")
    server.add_tool(Echo())
    wire = await connect(server)
    if revision != NEWEST:
        await wire.initialize(revision)

    result = await wire.tool("echo", revision, a=1)

    assert json.loads(result["content"][0]["text"]) == {"a": 1}
    answer = await (wire.modern if revision == NEWEST else wire.call)("tools/list")
    assert answer["result"]["tools"] == [{"name": "echo", "inputSchema": SCHEMA}]


@pytest.mark.parametrize("revision", ALL)
async def test_unknown_members_of_a_definition_are_listed(connect, revision):
    definition = {"name": "echo", "inputSchema": SCHEMA, "execution": {"x": 1}, "x-cost": 3}
    server = Server("s")
    server.add_tool(Echo(definition))
    wire = await connect(server)
    if revision != NEWEST:
        await wire.initialize(revision)

    answer = await (wire.modern if revision == NEWEST else wire.call)("tools/list")

    assert answer["result"]["tools"] == [definition]


INFO = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "0"}}
ENCODED = {
    "content": [
        {"type": "text", "text": "a", "x": 1},
        {"type": "resource_link", "uri": "a://b", "name": "b", "icons": [{"src": "https://a/b"}]},
    ],
    "structuredContent": [1, 2],
    "x-cost": 3,
}


@pytest.mark.parametrize(
    ("revision", "changes"),
    [
        (LEGACY[0], {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b: a://b"}], "structuredContent": None}),  # noqa: E501
        (LEGACY[2], {"content": [{"type": "text", "text": "a"}, {"type": "resource_link", "uri": "a://b", "name": "b"}], "structuredContent": {"result": [1, 2]}}),  # noqa: E501
        (LEGACY[3], {"structuredContent": {"result": [1, 2]}}),
        (NEWEST, {"resultType": "complete", "_meta": INFO}),
    ],
)  # fmt: skip
async def test_an_encoded_result_keeps_unknown_members_and_loses_what_a_revision_lacks(
    connect, revision, changes
):
    server = Server("s")
    server.add_tool(Echo(answer=Raw(json.dumps(ENCODED).encode())))
    wire = await connect(server)
    if revision != NEWEST:
        await wire.initialize(revision)

    result = await wire.tool("echo", revision)

    expected = {**ENCODED, **changes}
    assert result == {key: value for key, value in expected.items() if value is not None}


async def test_meta_of_an_encoded_result_is_kept(connect):
    server = Server("s")
    server.add_tool(Echo(answer=Raw(b'{"resultType":"complete","_meta":{"a/b":1}}')))
    wire = await connect(server)
    await wire.initialize()

    assert await wire.tool("echo", LEGACY[3]) == {"content": [], "_meta": {"a/b": 1}}
    result = await wire.tool("echo", NEWEST)
    info = {"name": "s", "version": "0"}
    meta = {"io.modelcontextprotocol/serverInfo": info, "a/b": 1}
    assert result == {"content": [], "resultType": "complete", "_meta": meta}


@pytest.mark.parametrize("body", [b"[]", b"nonsense", b'{"content": 5}'])
async def test_a_malformed_encoded_result_fails_the_request(connect, body):
    server = Server("s")
    server.add_tool(Echo(answer=Raw(body)))
    wire = await connect(server)
    await wire.initialize(LEGACY[0])

    answer = await wire.call("tools/call", {"name": "echo"})

    assert answer["error"]["code"] == -32603
    assert "malformed" in answer["error"]["message"]


async def test_a_failing_tool_object_is_reported_as_a_function_would_be(connect, caplog):
    server = Server("s")
    echo = Echo()
    server.add_tool(echo)
    wire = await connect(server)

    echo.answer = ToolError("no such note")
    result = await wire.tool("echo", NEWEST)
    assert (result["isError"], result["content"][0]["text"]) == (True, "no such note")
    assert not caplog.records

    echo.answer = ValueError("canary")
    result = await wire.tool("echo", NEWEST)
    assert result["isError"]
    assert result["content"][0]["text"].startswith("tool echo failed; the server's log has")
    assert "canary" in caplog.text

    echo.answer = UnknownTool("unknown tool 'x'")  # such as another server's
    answer = await wire.modern("tools/call", {"name": "echo"})
    assert answer["error"]["code"] == -32602


@pytest.mark.parametrize(
    ("definition", "error", "says"),
    [
        ({"inputSchema": SCHEMA}, LocalProtocolError, "has no name"),
        ({"name": "echo"}, LocalProtocolError, "'echo' has no inputSchema"),
        ({"name": "echo", "inputSchema": {"type": "string"}}, SchemaError, '"type": "object"'),
        (Tool(name="add", input_schema=SCHEMA), LocalProtocolError, "has a tool 'add' already"),
    ],
)
def test_an_unusable_tool_object_is_refused(definition, error, says):
    server = Server("s")
    server.tool(name="add")(lambda: "")

    with pytest.raises(error, match=says):
        server.add_tool(Echo(definition))


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


async def test_a_cursor_from_elsewhere_is_refused():
    gateway = Gateway()
    with pytest.raises(InvalidArguments, match="not from this server"):
        gateway.catalogue.page("tools", "x", context(None))
