"""A server on one connection: eras, malformed input, notifications, the end."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from typing import Any

import pytest

from interlock import Client, Context, Server
from interlock.errors import RemoteError
from interlock.revisions import LEGACY
from interlock.server import subscribers
from tests.support.rows import each_row

MODERN = "2026-07-28"


@pytest.fixture
def server() -> Server:
    server = Server("s")

    @server.tool
    async def echo(text: str, context: Context) -> str:
        return f"{context.revision}: {text}"

    @server.tool
    def now() -> str:
        return "ok"

    @server.resource("notes://all")
    def notes() -> str:
        return ""

    @server.resource("notes://{name}")
    def note(name: str) -> str:
        return name

    @server.prompt
    def greet(name: str) -> str:
        return name

    return server


@pytest.fixture
async def wire(server, connect):
    return await connect(server)


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


# Eras


@pytest.mark.parametrize("revision", LEGACY)
async def test_initialize_opens_a_session_in_the_revision_of_the_client(wire, revision):
    result = await wire.initialize(revision)

    assert result["protocolVersion"] == revision
    answer = await wire.call("tools/call", {"name": "echo", "arguments": {"text": "a"}})
    assert text_of(answer) == f"{revision}: a"


@pytest.mark.parametrize("revision", [MODERN, "2030-01-01", "junk", ""])
async def test_an_unknown_revision_gets_the_newest_legacy_one(wire, revision):
    assert (await wire.initialize(revision))["protocolVersion"] == "2025-11-25"


async def test_each_message_has_its_own_era(wire):
    call = {"name": "echo", "arguments": {"text": "a"}}

    assert text_of(await wire.modern("tools/call", call)) == f"{MODERN}: a"
    await wire.initialize("2025-06-18")
    assert text_of(await wire.modern("tools/call", call)) == f"{MODERN}: a"
    assert text_of(await wire.call("tools/call", call)) == "2025-06-18: a"
    assert (await wire.modern("server/discover"))["result"]["supportedVersions"] == [MODERN]
    assert (await wire.call("ping"))["result"] == {}


async def test_initialize_is_legacy_even_with_modern_metadata(wire, meta):
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
        "_meta": meta(),
    }
    answer = await wire.call("initialize", params)

    assert answer["result"]["protocolVersion"] == "2025-11-25"
    assert "resultType" not in answer["result"]


async def test_a_server_discover_within_a_session_does_not_end_it(wire, meta):
    wire.ask("server/discover", {"_meta": meta()})
    await wire.receive()
    await wire.initialize()

    assert "tools" in (await wire.call("tools/list"))["result"]


@pytest.mark.parametrize(
    "method", ["tools/list", "tools/call", "nonsense/method", "server/discover", "rpc.x"]
)
async def test_a_request_before_initialize_is_answered_with_an_error(wire, method):
    answer = await wire.call(method)

    assert answer["error"]["code"] in (-32602, -32601)
    assert (await wire.call("ping"))["result"] == {}
    await wire.initialize()


@each_row(
    "method",
    ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "unknown/method"],
)
async def test_methods_removed_in_the_modern_era_are_unknown_methods(wire, method):
    await wire.initialize()

    answer = await wire.modern(method, {"level": "error", "uri": "notes://all"})

    assert answer["error"]["code"] == -32601


@each_row("method", ["server/discover", "subscriptions/listen", "unknown/method"])
async def test_methods_of_the_modern_era_are_unknown_in_a_session(wire, method):
    await wire.initialize()

    assert (await wire.call(method))["error"]["code"] == -32601


@each_row(
    ("changes", "code", "says"),
    [
        ({"io.modelcontextprotocol/protocolVersion": 5}, -32602, "protocolVersion"),
        ({"io.modelcontextprotocol/clientCapabilities": None}, -32602, "clientCapabilities"),
        ({"io.modelcontextprotocol/clientCapabilities": "x"}, -32602, "clientCapabilities"),
        ({"io.modelcontextprotocol/clientCapabilities": {"roots": 1}}, -32602, "clientCapabilit"),
        ({"io.modelcontextprotocol/protocolVersion": "v999"}, -32022, "'v999' is not supported"),
        ({"io.modelcontextprotocol/protocolVersion": "2025-11-25"}, -32022, "not supported"),
        ({"io.modelcontextprotocol/logLevel": "loud"}, -32602, "log level 'loud'"),
    ],
)
async def test_invalid_metadata_of_a_modern_request_is_refused(wire, meta, changes, code, says):
    answer = await wire.call("tools/list", {"_meta": {**meta(), **changes}})

    assert answer["error"]["code"] == code
    assert says in answer["error"]["message"]
    if code == -32022:
        assert answer["error"]["data"]["supported"] == [MODERN]
    assert (await wire.modern("tools/list"))["result"]["tools"]


async def test_modern_request_with_invalid_client_info_is_accepted(wire, meta):
    told = {**meta(), "io.modelcontextprotocol/clientInfo": "nonsense", "progressToken": {}}

    assert "result" in await wire.call("tools/list", {"_meta": told})


@pytest.mark.parametrize("token", [True, 1.5, None, [], {"a": 1}])
async def test_progress_is_sent_only_for_a_valid_token(server, wire, token):
    @server.tool
    async def step(context: Context) -> str:
        context.progress(1)
        return ""

    await wire.initialize()
    answer = await wire.call("tools/call", {"name": "step", "_meta": {"progressToken": token}})
    assert "result" in answer


@each_row("level", ["loud", "", None, 3])
async def test_an_invalid_log_level_is_refused(wire, level):
    await wire.initialize()
    answer = await wire.call("logging/setLevel", {"level": level})

    assert answer["error"]["code"] == -32602


# Malformed input


@each_row(
    ("line", "code"),
    [
        (b"not json", -32700),
        (b"\xff\xfe", -32700),
        (b"[]", -32600),
        (b"5", -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32600),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 100 + b"]" * 100 + b"}",
            -32600,
        ),
    ],
)
async def test_a_malformed_line_is_answered_without_id_and_the_connection_continues(
    wire, line, code
):
    wire.send(line)
    answer = await wire.receive()

    assert answer["error"]["code"] == code
    assert "id" not in answer
    assert (await wire.call("ping"))["result"] == {}


NAMED = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"now",%s}}'
LISTED = '{"jsonrpc":"2.0","id":7,"method":"tools/list","params":%s}'


@each_row(
    "line",
    [
        NAMED % '"arguments":null',
        NAMED % '"arguments":{},"_meta":null',
        NAMED.replace(":7", ":7.0") % '"arguments":{}',
        NAMED.replace('"2.0"', "2.0") % '"arguments":{}',
        "\ufeff" + NAMED % '"arguments":{}',
        json.dumps(json.loads(NAMED % '"arguments":{}'), indent=2),
        LISTED % "null",
        LISTED % '{"cursor":null}',
        LISTED % '{"_meta":null}',
    ],
)
async def test_a_request_whose_meaning_is_plain_is_served(server, connect, line):
    wire = await connect(server)
    await wire.initialize("2025-11-25")
    wire.send({"jsonrpc": "2.0", "id": None, "method": "notifications/roots/list_changed"})
    wire.send(*line.encode().splitlines())

    answer = await wire.receive()
    assert answer["id"] == 7
    assert answer["result"].get("tools") or text_of(answer) == "ok"


@each_row(
    "line",
    [
        NAMED % '"arguments":"{}"',
        NAMED % '"arguments":{},"_meta":"x"',
        LISTED % "[]",
        LISTED % '{"cursor":0}',
    ],
)
async def test_a_request_with_another_type_of_params_is_refused(server, connect, line):
    wire = await connect(server)
    await wire.initialize("2025-11-25")
    wire.send(line.encode())

    answer = await wire.receive()
    assert answer["id"] == 7
    assert "error" in answer or answer["result"]["isError"]


async def test_a_disconnecting_client_is_not_logged_as_a_warning(server, connect, caplog):
    wire = await connect(server)
    await wire.initialize()
    [serving] = server._memory_connections
    await wire.transport.close()
    await asyncio.wait([serving])

    assert caplog.text == ""


async def test_a_flood_of_malformed_lines_closes_the_connection_and_is_logged(server, wire, caplog):
    wire.send(*[b"garbage" * 1_000] * 600)
    while wire.lost is None:  # noqa: ASYNC110 - the transport tells only us
        await asyncio.sleep(0)

    assert "the connection was closed: over 4 MiB of malformed messages within 60 s" in caplog.text
    assert server.dropped == {"garbage": 594}


def hostile(chance: random.Random, depth: int = 0) -> Any:
    """Return a random value that is often nearly valid."""
    names = ["name", "arguments", "uri", "cursor", "level", "ref", "type", "argument", "value"]
    names += ["context", "notifications", "resourceSubscriptions", "inputResponses", "taskId"]
    names += ["requestState", "protocolVersion", "capabilities", "clientInfo", "requestId"]
    leaves = [None, True, 0, -1, 1.5, 10**19, "", "echo", "greet", "notes://all", "ref/prompt"]
    leaves += ["ref/resource", "a\0b", "\u2028", "x" * 2_000, "2025-11-25", "progressToken", 1e300]
    kind = chance.random()
    if depth > 3 or kind < 0.5:
        return chance.choice(leaves)
    if kind < 0.65:
        return [hostile(chance, depth + 1) for _ in range(chance.randrange(4))]
    picked = chance.sample(names, chance.randrange(1, 6))
    return {name: hostile(chance, depth + 1) for name in picked}


METHODS = [
    "initialize", "ping", "server/discover", "tools/list", "tools/call", "resources/list",
    "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe",
    "prompts/list", "prompts/get", "completion/complete", "logging/setLevel", "tasks/get",
    "tasks/update", "tasks/cancel", "tasks/result", "subscriptions/listen",
    "notifications/initialized", "notifications/cancelled", "notifications/progress", "",
]  # fmt: skip


@pytest.mark.slow("works through much data")
@each_row("era", ["modern", "legacy", "none"])
@each_row("seed", range(3))
async def test_any_message_gets_only_its_own_answer(server, connect, meta, caplog, era, seed):
    chance = random.Random(seed)
    wire = await connect(server)
    if era == "legacy":
        await wire.initialize()
    for id in range(400):
        params = hostile(chance)
        method = chance.choice(METHODS)
        if era == "modern" and isinstance(params, dict):
            told = meta()
            if chance.random() < 0.3:
                told[chance.choice(list(told))] = hostile(chance)
            params["_meta"] = told
        elif isinstance(params, dict) and chance.random() < 0.3:
            params["_meta"] = hostile(chance)
        wire.ask(method, params, id=f"n{id}")
        if id % 50 == 49:  # so that only some run at once
            await asyncio.sleep(0)
    wire.send({"jsonrpc": "2.0", "id": "last", "method": "nonsense"})
    answers = {}
    while "last" not in answers:
        message = await wire.receive()
        answers[message.get("id")] = message

    for answer in answers.values():
        if "error" in answer:
            assert answer["error"]["code"] != -32603, answer
    assert caplog.text == ""
    assert wire.lost is None


@each_row("params", [[], "x", 5, True])
async def test_params_must_be_an_object(wire, params):
    wire.send({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": params})
    answer = await wire.receive()

    assert answer["id"] == 7
    assert answer["error"]["code"] == -32602


async def test_an_answer_has_exactly_the_id_of_the_request(wire):
    for id in ("1", 1, "", "ü", -5, 10**18):
        wire.send({"jsonrpc": "2.0", "id": id, "method": "ping"})
        answer = await wire.receive()
        assert answer["id"] == id
        assert type(answer["id"]) is type(id)


async def test_unknown_notifications_and_unrequested_answers_are_ignored(wire):
    wire.send(
        {"jsonrpc": "2.0", "method": "notifications/unknown"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}},
        {"jsonrpc": "2.0", "id": 5, "result": {}},
        {"jsonrpc": "2.0", "id": 5, "error": {"code": 1, "message": ""}},
    )

    assert (await wire.call("ping"))["result"] == {}


async def test_an_id_that_is_in_use_is_refused(server, wire, meta):
    release = asyncio.Event()

    @server.tool
    async def wait() -> str:
        await release.wait()
        return "first"

    params = {"name": "wait", "_meta": meta()}
    wire.ask("tools/call", params, id=7)
    wire.ask("tools/call", params, id=7)
    refused = await wire.receive()
    release.set()
    answer = await wire.receive()

    assert "is still running" in refused["error"]["message"]
    assert "id" not in refused
    assert (answer["id"], text_of(answer)) == (7, "first")


async def test_requests_over_the_limit_are_refused_one_by_one(server, wire, meta):
    release = asyncio.Event()

    @server.tool
    async def wait() -> str:
        await release.wait()
        return ""

    for id in range(1, 1_002):
        wire.ask("tools/call", {"name": "wait", "_meta": meta()}, id=id)
    refused = await wire.receive()
    release.set()
    answered = {(await wire.receive())["id"] for _ in range(1_000)}

    assert refused["id"] == 1_001
    assert "over 1000 requests at once" in refused["error"]["message"]
    assert answered == set(range(1, 1_001))


# Batches


async def test_batches_are_accepted_in_2025_03_26(wire):
    await wire.initialize("2025-03-26")
    ping = {"jsonrpc": "2.0", "method": "ping"}
    wire.send(
        [{**ping, "id": 1}, {"jsonrpc": "2.0", "method": "notifications/x"}, {**ping, "id": "b"}]
    )
    answers = await wire.receive()

    assert [each["id"] for each in answers] == [1, "b"]
    wire.send([{"jsonrpc": "2.0", "method": "notifications/x"}])  # nothing to answer
    wire.send([])
    assert (await wire.receive())["error"]["code"] == -32600


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_batches_are_refused_in_other_revisions(wire, revision):
    await wire.initialize(revision)
    wire.send([{"jsonrpc": "2.0", "id": 1, "method": "ping"}])

    assert (await wire.receive())["error"]["code"] == -32600


# Cancelling and the end


async def test_a_cancelled_request_is_not_answered_and_its_handler_ends(server, wire, meta):
    begun, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    id = wire.ask("tools/call", {"name": "wait", "_meta": meta()})
    await begun.wait()
    params = {"requestId": id, "reason": "enough"}
    wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    await ended.wait()

    assert (await wire.call("ping"))["result"] == {}


async def test_a_request_that_is_cancelled_at_once_does_not_run(server, wire, meta):
    ran = []

    @server.tool
    async def run() -> None:
        """Wait first, so that an eager task has started but not gone on."""
        await asyncio.sleep(0)
        ran.append(1)

    id = wire.ask("tools/call", {"name": "run", "_meta": meta()})
    params = {"requestId": id}
    wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    assert (await wire.call("ping"))["result"] == {}
    assert ran == []


async def test_the_end_of_a_connection_cancels_its_requests(server, wire, meta):
    begun, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    wire.ask("tools/call", {"name": "wait", "_meta": meta()})
    await begun.wait()
    await wire.transport.close()
    await ended.wait()


async def test_connections_have_separate_sessions_and_revisions(server, connect):
    one, other = await connect(server), await connect(server)
    await one.initialize("2024-11-05")

    assert (await other.call("tools/list"))["error"]
    await other.initialize("2025-11-25")
    assert text_of(await one.call("tools/call", {"name": "echo", "arguments": {"text": ""}})) == (
        "2024-11-05: "
    )


# Notifications


async def notifications(wire) -> list[tuple[str, Any]]:
    """Return the notifications that the server has sent, up to the answer to a ping."""
    id = wire.ask("ping")
    told = []
    while (message := await wire.receive()).get("id") != id:
        told.append((message["method"], message.get("params")))
    return told


def change_everything(server: Server) -> None:
    server.tool(name="new")(lambda: "")
    server.prompt(name="new")(lambda: "")
    server.resource("new://a")(lambda: "")
    server.resource_updated("notes://all")


ALL_LISTS_CHANGED = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
]


async def test_a_session_is_notified_of_changes_once_it_is_initialized(server, wire):
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}
    await wire.call("initialize", params)
    server.tool(name="early")(lambda: "")
    assert await notifications(wire) == []  # the session is not open yet
    wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert await notifications(wire) == []

    change_everything(server)

    assert await notifications(wire) == [(each, None) for each in ALL_LISTS_CHANGED]


async def test_a_client_without_initialize_is_not_notified_of_changes(server, wire):
    wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert await notifications(wire) == []
    change_everything(server)

    assert await notifications(wire) == []


async def test_a_session_is_notified_of_subscribed_resources_only(server, wire):
    await wire.initialize()
    await wire.call("resources/subscribe", {"uri": "notes://all"})
    server.resource_updated("notes://all")
    server.resource_updated("notes://other")
    assert await notifications(wire) == [
        ("notifications/resources/updated", {"uri": "notes://all"})
    ]

    await wire.call("resources/unsubscribe", {"uri": "notes://all"})
    server.resource_updated("notes://all")
    assert await notifications(wire) == []


async def test_subscribing_to_an_unknown_resource_or_too_many_is_refused(wire, monkeypatch):
    await wire.initialize()
    answer = await wire.call("resources/subscribe", {"uri": "other://x"})
    assert answer["error"]["code"] == -32002
    assert (await wire.call("resources/subscribe", {}))["error"]["code"] == -32602

    long = {"uri": "notes://" + "x" * subscribers.MAX_URI}
    assert (await wire.call("resources/subscribe", long))["error"]["code"] == -32602
    monkeypatch.setattr(subscribers, "MAX_URIS", 2)
    for name in ("a", "b"):
        assert "result" in await wire.call("resources/subscribe", {"uri": f"notes://{name}"})
    refused = await wire.call("resources/subscribe", {"uri": "notes://c"})
    assert "too many subscriptions (limit 2)" in refused["error"]["message"]


async def subscribe(wire, meta, **wanted: Any) -> Any:
    """Open a subscription; return its id and what the server honours."""
    id = wire.ask("subscriptions/listen", {"notifications": wanted, "_meta": meta()})
    told = await wire.receive()
    assert told["method"] == "notifications/subscriptions/acknowledged"
    assert told["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": id}
    return id, told["params"]["notifications"]


async def test_a_subscription_stream_has_the_requested_notifications_only(server, wire, meta):
    id, honoured = await subscribe(
        wire, meta, promptsListChanged=True, resourceSubscriptions=["notes://all"]
    )
    assert honoured == {"promptsListChanged": True, "resourceSubscriptions": ["notes://all"]}

    change_everything(server)

    tag = {"_meta": {"io.modelcontextprotocol/subscriptionId": id}}
    assert await notifications(wire) == [
        ("notifications/prompts/list_changed", tag),
        ("notifications/resources/updated", {"uri": "notes://all", **tag}),
    ]


async def test_subscriptions_on_one_connection_are_independent(server, wire, meta):
    first, _ = await subscribe(wire, meta, toolsListChanged=True)
    second, _ = await subscribe(wire, meta, toolsListChanged=True)
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    wire.send({**cancelled, "params": {"requestId": first}})
    assert await notifications(wire) == []

    server.tool(name="new")(lambda: "")

    ((_, params),) = await notifications(wire)
    assert params["_meta"]["io.modelcontextprotocol/subscriptionId"] == second


async def test_a_subscription_honours_only_capabilities_of_the_server(connect, meta):
    server = Server("s")
    server.tool(name="t")(lambda: "")
    wire = await connect(server)

    _, honoured = await subscribe(
        wire, meta, toolsListChanged=True, promptsListChanged=True, resourceSubscriptions=["a://b"]
    )

    assert honoured == {"toolsListChanged": True}


async def test_subscriptions_are_limited_and_end_with_their_connection(
    server, connect, meta, monkeypatch
):
    monkeypatch.setattr(subscribers, "MAX_SUBSCRIBERS", 2)
    wire = await connect(server)
    for _ in range(2):
        await subscribe(wire, meta, toolsListChanged=True)
    refused = await wire.modern("subscriptions/listen", {"notifications": {}})
    assert "too many subscriptions (limit 2)" in refused["error"]["message"]

    await wire.transport.close()
    while server.subscribers._open:  # noqa: ASYNC110 - the other end closes in its own time
        await asyncio.sleep(0)
    await subscribe(await connect(server), meta, toolsListChanged=True)


async def test_a_subscription_has_a_limited_number_of_resources(wire):
    uris = [f"notes://{number}" for number in range(1_001)]
    answer = await wire.modern(
        "subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}
    )

    assert "too many resources" in answer["error"]["message"]


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_a_client_sees_added_and_removed_tools(server, revision):
    changed: asyncio.Queue[str] = asyncio.Queue()
    async with Client.memory(
        server, revision=revision, on_list_changed=changed.put_nowait
    ) as client:
        before = {tool.name for tool in await client.list_tools()}
        await client.ping()  # by now the subscription is acknowledged
        server.tool(name="new")(lambda: "")
        assert await changed.get() == "tools"
        after = {tool.name for tool in await client.list_tools()}
        server.remove_tool("new")
        assert await changed.get() == "tools"
        assert {tool.name for tool in await client.list_tools()} == before
        assert after == before | {"new"}


@pytest.mark.parametrize("revision", ["2025-11-25", MODERN])
async def test_a_plain_function_can_notify_of_changes_from_its_thread(server, revision):
    heard: asyncio.Queue[Any] = asyncio.Queue()

    @server.tool
    def work() -> str:
        assert threading.current_thread() is not threading.main_thread()
        server.resource_updated("notes://all")
        server.tool(name="new")(lambda: "")
        return ""

    client = Client.memory(
        server,
        revision=revision,
        on_list_changed=lambda kind: heard.put_nowait((kind, threading.current_thread())),
        on_resource_updated=lambda uri: heard.put_nowait((uri, threading.current_thread())),
    )
    async with client:
        await client.subscribe("notes://all")
        await client.call_tool("work")
        news = {await heard.get(), await heard.get()}

    here = threading.current_thread()
    assert news == {("notes://all", here), ("tools", here)}


# Errors


async def test_lone_surrogates_in_an_error_are_replaced(connect):
    server = Server("s")

    @server.resource("file://{name}")
    async def read(name: str) -> str:
        raise RemoteError(-32000, "caf\udce9", {"file": "caf\udce9"})

    wire = await connect(server)

    answer = await wire.modern("resources/read", {"uri": "file://a"})

    assert answer["error"] == {
        "code": -32000, "message": "caf\ufffd", "data": {"file": "caf\ufffd"}
    }  # fmt: skip


async def test_a_cancelled_handler_finds_the_clients_reason(server, wire, meta):
    begun, reasons = asyncio.Event(), []

    @server.tool
    async def wait(context: Context) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            reasons.append(context.cancel_reason(error))
            raise
        return ""

    for reason in ({"reason": "the user left"}, {}):
        begun.clear()
        id = wire.ask("tools/call", {"name": "wait", "_meta": meta()})
        await begun.wait()
        cancelled = {"requestId": id, **reason}
        wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
        await wire.modern("server/discover")

    assert reasons == ["the user left", ""]


# Resources and prompts


async def test_reading_an_unknown_resource_has_the_error_code_of_the_era(wire):
    await wire.initialize()
    uri = "none://" + "x" * 5_000

    modern = (await wire.modern("resources/read", {"uri": uri}))["error"]
    legacy = (await wire.call("resources/read", {"uri": uri}))["error"]

    assert (modern["code"], modern["data"]) == (-32602, {"uri": uri})
    assert legacy["code"] == -32002
    assert len(modern["message"]) < 300


async def test_prompt_arguments_must_be_strings(wire):
    for arguments in ({"name": 1}, {"name": None}, {}, {"name": "a", "other": "b"}, []):
        answer = await wire.modern("prompts/get", {"name": "greet", "arguments": arguments})
        assert answer["error"]["code"] == -32602, arguments
    assert (await wire.modern("prompts/get", {"name": "none"}))["error"]["code"] == -32602
    answer = await wire.modern("prompts/get", {"name": "greet", "arguments": {"name": "a"}})
    assert answer["result"]["messages"][0]["content"]["text"] == "a"


@pytest.mark.parametrize("kind", ["resource", "prompt", "completion"])
async def test_a_failing_handler_is_an_internal_error_with_a_reference(connect, kind, caplog):
    server = Server("s")

    def fail(value: str) -> str:
        raise SystemExit("canary-11")

    server.resource("fail://{value}")(fail)
    server.prompt(fail)
    server.completion("fail", "value")(fail)
    wire = await connect(server)
    ref = {"type": "ref/prompt", "name": "fail"}
    method, params = {
        "resource": ("resources/read", {"uri": "fail://x"}),
        "prompt": ("prompts/get", {"name": "fail", "arguments": {"value": "a"}}),
        "completion": (
            "completion/complete",
            {"ref": ref, "argument": {"name": "value", "value": ""}},
        ),
    }[kind]

    answer = await wire.modern(method, params)

    assert answer["error"]["code"] == -32603
    words, _, reference = answer["error"]["message"].rpartition(" ")
    assert words == "internal error; the server's log on stderr has the details under"
    assert f"{method} failed, reference {reference}" in caplog.text
    assert "canary-11" in caplog.text
    assert "result" in await wire.modern("server/discover")
