"""What a client sends and makes of the answers, in both eras, over a transport in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from interlock import Toolbox
from interlock.client import Client, cache
from interlock.client import client as client_module
from interlock.errors import (
    ConnectionClosed,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
)
from interlock.protocol import Progress
from interlock.types import (
    ElicitParams,
    ElicitResult,
    LogMessage,
    PromptReference,
    ResourceTemplateReference,
)
from tests.client.scripted import both_eras, client_of, settle, without_meta
from tests.support.clock import SetClock, run_stepped
from tests.support.rows import each_row
from tests.support.scripted_server import (
    LEGACY,
    MODERN,
    SUBSCRIPTION_KEY,
    Answer,
    Json,
    ScriptedServer,
    text,
    tool,
)

PREFIX = "io.modelcontextprotocol/"


# Opening and closing


@both_eras
async def test_open_client_has_the_servers_revision_and_info(revision: str):
    server = ScriptedServer(revision, capabilities={"tools": {"listChanged": True}})

    async with client_of(server) as client:
        assert client.revision == revision
        assert (client.server_info.name, client.server_info.version) == ("scripted", "1")
        assert client.capabilities.tools == {"listChanged": True}
        assert client.capabilities.prompts is None
        assert client.instructions == "Be kind."


async def test_call_on_a_client_that_is_not_open_is_an_error():
    client = client_of(ScriptedServer())

    assert (client.revision, client.instructions) == ("", None)
    with pytest.raises(ConnectionClosed, match="use it in 'async with'"):
        await client.call_tool("x")
    await client.close()


@each_row("revision", ["2025-01-01", "", "AUTO"])
def test_unknown_revision_is_refused_by_the_constructor(revision: str):
    with pytest.raises(
        LocalProtocolError, match=f"unknown revision '{revision}'; use auto, legacy or one of"
    ):
        Client(ScriptedServer().connect, revision=revision)


@each_row("make", [Client.stdio, Client.http, Toolbox])
def test_unknown_option_is_refused_by_each_constructor(make: Any):
    with pytest.raises(LocalProtocolError, match="unknown option 'timout'; the options of a cl"):
        make({} if make is Toolbox else "http://127.0.0.1:9/mcp", timout=3)


async def test_close_fails_open_calls_and_is_idempotent():
    server = ScriptedServer(answers={"tools/call": lambda _: None})
    client = client_of(server)
    await client.open()
    calls = [asyncio.create_task(client.call_tool("x")) for _ in range(3)]
    await server.heard("tools/call", times=3)

    await asyncio.gather(client.close(), client.close())
    await client.close()

    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, ConnectionClosed)
    with pytest.raises(ConnectionClosed):
        await client.call_tool("x")


async def test_close_waits_for_running_handlers():
    asked, ended = asyncio.Event(), asyncio.Event()

    async def fill(_question: object) -> ElicitResult:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # to tidy up
            ended.set()
        raise AssertionError

    server = ScriptedServer(LEGACY)
    async with client_of(server, elicitation=fill):
        question = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        asking = asyncio.create_task(server.ask("elicitation/create", question))
        await asked.wait()
    assert ended.is_set()
    asking.cancel()


async def test_lost_connection_fails_open_calls_and_is_reported_only_once():
    losses: list[Exception] = []
    server = ScriptedServer(answers={"tools/call": lambda _: None})
    async with client_of(server, on_loss=losses.append) as client:
        call = asyncio.create_task(client.call_tool("x"))
        await server.heard("tools/call")
        await server.end()

        with pytest.raises(ConnectionClosed, match="the other end"):
            await call
        with pytest.raises(ConnectionClosed, match="the other end"):
            await client.call_tool("x")
    assert [str(loss) for loss in losses] == ["the other end closed the connection"]


async def test_close_does_not_report_a_loss():
    losses: list[Exception] = []
    async with client_of(ScriptedServer(), on_loss=losses.append):
        pass
    await settle()

    assert losses == []


@both_eras
async def test_client_can_be_opened_called_and_closed_by_different_tasks(revision: str):
    server = ScriptedServer(revision, {"tools/call": lambda params: text(params["name"])})
    client = client_of(server)
    await asyncio.create_task(client.open())

    results = await asyncio.gather(
        *(asyncio.create_task(client.call_tool(str(number))) for number in range(50))
    )

    assert [result.text for result in results] == [str(number) for number in range(50)]
    await asyncio.create_task(client.close())


async def test_responses_in_any_order_reach_their_calls():
    asked: dict[str, asyncio.Event] = {name: asyncio.Event() for name in "abc"}

    async def answer(params: Json) -> Json:
        await asked[params["name"]].wait()
        return text(params["name"])

    server = ScriptedServer(answers={"tools/call": answer})
    async with client_of(server) as client:
        calls = {name: asyncio.create_task(client.call_tool(name)) for name in asked}
        for name in ("c", "a", "b"):
            asked[name].set()
            assert (await calls[name]).text == name


# What goes over the wire

REF = PromptReference(name="p")
TEMPLATE = ResourceTemplateReference(uri="memo://{id}")
COMPLETION = {"completion": {"values": ["a", "b"], "total": 2}}
Call = Callable[[Client], Awaitable[Any]]
CALLS: list[tuple[str, Call, Json, Json]] = [
    ("tools/list", lambda c: c.list_tools(), {}, {"tools": []}),
    ("tools/call", lambda c: c.call_tool("x"), {"name": "x"}, text("")),
    ("tools/call", lambda c: c.call_tool("x", {}), {"name": "x", "arguments": {}}, text("")),
    (
        "tools/call",
        lambda c: c.call_tool("x", {"a": None, "b": [1.5]}),
        {"name": "x", "arguments": {"a": None, "b": [1.5]}},
        text(""),
    ),
    (
        "tools/call",
        lambda c: c.call_tool("x", Raw(b'{"a":1}')),
        {"name": "x", "arguments": {"a": 1}},
        text(""),
    ),
    ("resources/list", lambda c: c.list_resources(), {}, {"resources": []}),
    (
        "resources/templates/list",
        lambda c: c.list_resource_templates(),
        {},
        {"resourceTemplates": []},
    ),
    ("resources/read", lambda c: c.read_resource("a:b"), {"uri": "a:b"}, {"contents": []}),
    ("prompts/list", lambda c: c.list_prompts(), {}, {"prompts": []}),
    ("prompts/get", lambda c: c.get_prompt("p"), {"name": "p"}, {"messages": []}),
    (
        "prompts/get",
        lambda c: c.get_prompt("p", {"a": "1"}),
        {"name": "p", "arguments": {"a": "1"}},
        {"messages": []},
    ),
    (
        "completion/complete",
        lambda c: c.complete(REF, "a", "x", context={"b": "y"}),
        {
            "ref": {"type": "ref/prompt", "name": "p"},
            "argument": {"name": "a", "value": "x"},
            "context": {"arguments": {"b": "y"}},
        },
        COMPLETION,
    ),
    (
        "completion/complete",
        lambda c: c.complete(TEMPLATE, "id", ""),
        {
            "ref": {"type": "ref/resource", "uri": "memo://{id}"},
            "argument": {"name": "id", "value": ""},
        },
        COMPLETION,
    ),
    ("x/y", lambda c: c.request("x/y", {"a": 1}), {"a": 1}, {}),
]


@both_eras
@each_row(("method", "call", "params", "result"), CALLS)
async def test_params_of_each_method_match_the_specification(
    revision: str, method: str, call: Call, params: Json, result: Json
):
    server = ScriptedServer(revision, {method: result})
    async with client_of(server) as client:
        await call(client)

    (sent,) = server.sent(method)
    assert without_meta(sent) == params
    assert ("_meta" in sent) == (revision == MODERN)


async def test_modern_request_states_revision_client_and_capabilities():
    async def elicit(_: ElicitParams) -> ElicitResult:
        return ElicitResult(action="decline")

    server = ScriptedServer(MODERN, {"tools/call": text("")})
    async with client_of(server, elicitation=elicit, roots=[]) as client:
        await client.call_tool("x")

    for method in ("server/discover", "tools/call"):
        (sent,) = server.sent(method)
        meta = sent["_meta"]
        assert set(meta) == {
            PREFIX + key for key in ("protocolVersion", "clientInfo", "clientCapabilities")
        }
        assert meta[PREFIX + "protocolVersion"] == MODERN
        assert meta[PREFIX + "clientInfo"]["name"] == "interlock"
        assert meta[PREFIX + "clientCapabilities"] == {
            "roots": {},
            "elicitation": {"form": {}, "url": {}},
        }


async def test_legacy_server_gets_capabilities_in_initialize_only():
    server = ScriptedServer("2025-06-18", {"tools/call": text("")})
    async with client_of(server, roots=[]) as client:
        await client.call_tool("x")

    (sent,) = server.sent("initialize")
    assert sent["protocolVersion"] == "2025-06-18"
    assert sent["capabilities"] == {"roots": {"listChanged": True}}
    assert sent["clientInfo"]["name"] == "interlock"
    assert server.sent("notifications/initialized") == [{}]
    methods = [each["method"] for each in server.received]
    assert methods == ["initialize", "notifications/initialized", "tools/call"]


@both_eras
async def test_meta_of_a_call_is_merged_with_the_meta_of_the_connection(revision: str):
    server = ScriptedServer(revision, {"tools/call": text(""), "x/y": {}})
    async with client_of(server) as client:
        await client.call_tool("x", meta={"traceparent": "00-1"}, progress=lambda _: None)
        await client.request("x/y", {"_meta": {"traceparent": "00-2"}, "a": 1})

    (call,), (other,) = server.sent("tools/call"), server.sent("x/y")
    assert call["_meta"]["traceparent"] == "00-1"
    assert "progressToken" in call["_meta"]
    assert other["_meta"]["traceparent"] == "00-2"
    for each in (call, other):
        assert (PREFIX + "protocolVersion" in each["_meta"]) == (revision == MODERN)


@each_row("revision", ["2024-11-05", "2025-03-26"])
async def test_completion_context_is_not_sent_to_older_revisions(revision: str):
    server = ScriptedServer(revision, {"completion/complete": COMPLETION})
    async with client_of(server) as client:
        completion = await client.complete(REF, "a", "x", context={"b": "y"})

    assert (completion.values, completion.total, completion.has_more) == (["a", "b"], 2, False)
    assert "context" not in server.sent("completion/complete")[0]


@each_row(
    ("revision", "method"), [(LEGACY, "ping"), (MODERN, "server/discover"), ("2024-11-05", "ping")]
)
async def test_ping_uses_the_method_of_the_revision(revision: str, method: str):
    server = ScriptedServer(revision)
    async with client_of(server) as client:
        before = len(server.sent(method))
        await client.ping()
        assert len(server.sent(method)) == before + 1


@each_row(
    ("revision", "method"),
    [(MODERN, "ping"), (MODERN, "logging/setLevel"), (LEGACY, "subscriptions/listen")],
)
async def test_method_that_the_revision_lacks_is_refused_locally(revision: str, method: str):
    server = ScriptedServer(revision)
    async with client_of(server) as client:
        with pytest.raises(LocalProtocolError, match=f"revision {revision} has no '{method}'"):
            await client.request(method)
    assert server.sent(method) == []


@both_eras
async def test_arguments_that_are_not_json_are_refused_before_sending(revision: str):
    server = ScriptedServer(revision)
    async with client_of(server) as client:
        for arguments in ({"a": object()}, {"a": {1, 2j}}):
            with pytest.raises(TypeError):
                await client.call_tool("x", arguments)
        assert server.sent("tools/call") == []


# Results and errors


async def test_error_response_is_raised_with_code_and_data():
    def refuse(_: Json) -> Json:
        raise RemoteError(-32602, "no resource", {"uri": "a:b"})

    async with client_of(ScriptedServer(answers={"resources/read": refuse})) as client:
        with pytest.raises(RemoteError) as caught:
            await client.read_resource("a:b")

    error = caught.value
    assert (error.code, error.message, error.data) == (-32602, "no resource", {"uri": "a:b"})


async def test_failed_tool_returns_a_result_with_is_error():
    async with client_of(
        ScriptedServer(answers={"tools/call": text("no", isError=True)})
    ) as client:
        result = await client.call_tool("x")

    assert (result.is_error, result.text) == (True, "no")


async def test_malformed_result_fails_only_its_own_call():
    results = [{"content": 5}, {"content": [{"text": None}]}, text("good")]
    server = ScriptedServer(answers={"tools/call": lambda _: results.pop(0)})
    async with client_of(server) as client:
        first, second, third = await asyncio.gather(
            *(client.call_tool("x") for _ in range(3)), return_exceptions=True
        )

    assert isinstance(first, RemoteProtocolError)
    assert isinstance(second, RemoteProtocolError)
    assert not isinstance(third, BaseException)
    assert third.text == "good"


async def test_a_problem_of_a_list_is_logged_once(caplog: pytest.LogCaptureFixture):
    tools = [{"name": 7}, {"name": "x", "inputSchema": {}}]
    server = ScriptedServer(answers={"tools/list": {"tools": tools, "ttlMs": 0}})
    async with client_of(server) as client:
        for _ in range(3):
            await client.list_tools()
        tools.append({"name": 8})
        await client.list_tools()
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == len(set(lines)) == 2


async def test_garbage_between_messages_is_dropped():
    server = ScriptedServer(answers={"tools/call": lambda _: None})
    async with client_of(server) as client:
        call = asyncio.create_task(client.call_tool("x"))
        await server.heard("tools/call")
        id = server.received[-1]["id"]
        server.send(b"\xff", b"no json", b"[]", b"null", b'{"jsonrpc":"2.0","result":{}}')
        server.send({"jsonrpc": "2.0", "id": f"0{id}", "result": text("wrong id")})
        server.send({"jsonrpc": "2.0", "id": id, "result": text("right")})

        assert (await call).text == "right"


async def test_silent_server_times_out_and_is_sent_a_cancellation():
    server = ScriptedServer(answers={"tools/call": lambda _: None})
    async with client_of(server) as client:
        with pytest.raises(RequestTimeout, match=r"no answer to tools/call within 0\.01 s"):
            await client.call_tool("x", timeout=0.01)
        told = await server.heard("notifications/cancelled")

    assert told == {"requestId": server.received[-2]["id"], "reason": "timeout"}


def test_endless_progress_ends_at_the_hard_timeout():
    told: list[Progress] = []

    async def go_on(params: Json) -> None:
        token = params["_meta"]["progressToken"]
        for step in itertools.count():
            server.notify("notifications/progress", progressToken=token, progress=step)
            await asyncio.sleep(1)

    async def use() -> None:
        async with client_of(server, hard_timeout=50, timeout=40) as client:
            with pytest.raises(RequestTimeout, match="within the hard limit"):
                await client.call_tool("x", progress=told.append)

    server = ScriptedServer(answers={"tools/call": go_on})
    run_stepped(use())
    assert 49 <= len(told) <= 51


@each_row(
    ("options", "timeout", "limit"),
    [
        ({"hard_timeout": 5.0}, None, 5.0),
        ({"hard_timeout": 5.0}, 60.0, 60.0),
        ({"timeout": 3_600.0}, None, 3_600.0),
    ],
)
async def test_longer_timeout_of_a_call_raises_the_hard_timeout(
    options: Json, timeout: float | None, limit: float
):
    def endless(_: Progress) -> None: ...

    before = monotonic()
    server = ScriptedServer(answers={"tools/call": lambda _: None})
    async with client_of(server, **options) as client:
        call = asyncio.create_task(client.call_tool("x", timeout=timeout, progress=endless))
        await server.heard("tools/call")
        (pending,) = client._connection.protocol._pending.values()
        assert before + limit <= pending.hard_deadline <= monotonic() + limit
        call.cancel()


async def test_call_without_progress_times_out_after_two_minutes_by_default():
    server = ScriptedServer(answers={"tools/call": lambda _: None})
    before = monotonic()
    async with client_of(server) as client:
        call = asyncio.create_task(client.call_tool("x"))
        await server.heard("tools/call")
        (pending,) = client._connection.protocol._pending.values()
        assert before + 120 <= pending.idle_deadline <= monotonic() + 120
        call.cancel()


async def test_list_with_slow_pages_times_out_as_a_whole(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("interlock.client.client.LIST_TIMEOUT", 0.1)

    async def page(params: Json) -> Json:
        await asyncio.sleep(0.03)
        return {"tools": [], "nextCursor": params.get("cursor", "") + "x"}

    server = ScriptedServer(answers={"tools/list": page})
    async with client_of(server) as client:
        with pytest.raises(RequestTimeout, match=r"no end of tools/list within 0\.1 s"):
            await client.list_tools()
    assert len(server.sent("tools/list")) < 5


async def test_reopened_client_keeps_no_old_state():
    async def leave(_: Json) -> None:
        await server.end()

    losses: list[Exception] = []
    tools = {"tools": [tool("a")], "ttlMs": 60_000, "cacheScope": "private"}
    server = ScriptedServer(answers={"server/discover": leave, "tools/list": tools})
    client = client_of(server, revision="auto", on_loss=losses.append)
    for times in (1, 2):
        async with client:
            assert client.revision == LEGACY
            await client.list_tools()
            assert len(server.sent("tools/list")) == times
    assert losses == []


# Progress, cancellation, logging


@both_eras
async def test_progress_reaches_the_call_that_requested_it(revision: str):
    async def work(params: Json) -> Json:
        token = params["_meta"]["progressToken"]
        for step in (1, 2, 2, 1, 3):
            server.notify(
                "notifications/progress", progressToken=token, progress=step, total=3, message="m"
            )
        return text(params["name"])

    server = ScriptedServer(revision, {"tools/call": work})
    told: dict[str, list[Progress]] = {"a": [], "b": []}
    async with client_of(server) as client:
        await asyncio.gather(*(client.call_tool(name, progress=told[name].append) for name in told))

    for steps in told.values():
        assert [step.progress for step in steps] == [1, 2, 3]
        assert (steps[0].total, steps[0].message) == (3, "m")
        assert len({step.id for step in steps}) == 1


@both_eras
async def test_cancelled_call_sends_a_cancellation(revision: str):
    server = ScriptedServer(revision, {"tools/call": lambda _: None})
    async with client_of(server) as client:
        call = asyncio.create_task(client.call_tool("x"))
        await server.heard("tools/call")
        id = server.received[-1]["id"]
        call.cancel()

        assert await server.heard("notifications/cancelled") == {"requestId": id}
        server.send({"jsonrpc": "2.0", "id": id, "result": text("too late")})
        await settle()
    assert call.cancelled()


async def test_answered_call_sends_no_cancellation():
    server = ScriptedServer(answers={"tools/call": text("")})
    async with client_of(server) as client:
        await client.call_tool("x")
        await settle()

    assert server.sent("notifications/cancelled") == []


async def test_log_level_is_sent_once_to_a_legacy_server():
    logs: list[LogMessage] = []
    answers: dict[str, Answer] = {"logging/setLevel": {}, "tools/call": text("")}
    server = ScriptedServer(LEGACY, answers)
    async with client_of(server, on_log=logs.append) as client:
        await client.set_log_level("warning")
        server.notify("notifications/message", level="error", data={"a": 1}, logger="db")
        await client.call_tool("x")

    assert server.sent("logging/setLevel") == [{"level": "warning"}]
    assert logs == [LogMessage(level="error", data={"a": 1}, logger="db")]


async def test_log_level_is_in_each_request_to_a_modern_server():
    server = ScriptedServer(MODERN, {"tools/call": text("")})
    async with client_of(server) as client:
        await client.call_tool("x")
        await client.set_log_level("debug")
        await client.call_tool("x")

    before, after = (each["_meta"] for each in server.sent("tools/call"))
    assert after == {**before, PREFIX + "logLevel": "debug"}


# Lists and their cache


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    clock = SetClock()
    monkeypatch.setattr(cache, "monotonic", clock)
    return clock


@both_eras
async def test_list_contains_the_items_of_all_pages(revision: str):
    def page(params: Json) -> Json:
        if "cursor" not in params:
            return {"tools": [tool("a"), {"name": 7}], "nextCursor": "2"}
        return {"tools": [tool("b")]}

    server = ScriptedServer(revision, {"tools/list": page})
    async with client_of(server) as client:
        tools = await client.list_tools()

    assert [each.name for each in tools] == ["a", "b"]
    assert len(tools.skipped) == 1
    assert [without_meta(each) for each in server.sent("tools/list")] == [{}, {"cursor": "2"}]


LISTS: list[tuple[str, str, Call, Json]] = [
    ("tools/list", "tools", lambda c: c.list_tools(), {"tools": []}),
    ("prompts/list", "prompts", lambda c: c.list_prompts(), {"prompts": []}),
    ("resources/list", "resources", lambda c: c.list_resources(), {"resources": []}),
    (
        "resources/templates/list",
        "resources",
        lambda c: c.list_resource_templates(),
        {"resourceTemplates": []},
    ),
    (
        "resources/read",
        "resources",
        lambda c: c.read_resource("a:b"),
        {"contents": [{"uri": "a:b", "text": "x"}]},
    ),
]


@each_row(("method", "kind", "ask", "result"), LISTS)
async def test_results_are_cached_until_they_expire_or_change(
    clock: SetClock, method: str, kind: str, ask: Call, result: Json
):
    changed: list[str] = []
    server = ScriptedServer(MODERN, {method: {**result, "ttlMs": 5_000, "cacheScope": "private"}})
    async with client_of(server, on_list_changed=changed.append) as client:
        first = await ask(client)
        assert await ask(client) is first
        assert len(server.sent(method)) == 1
        clock.now += 5
        await ask(client)
        assert len(server.sent(method)) == 2

        server.notify(f"notifications/{kind}/list_changed")
        await settle()
        await ask(client)
        assert len(server.sent(method)) == 3
    assert changed == [kind]


@each_row(("method", "kind", "ask", "result"), LISTS)
async def test_result_overtaken_by_a_change_is_not_cached(
    method: str, kind: str, ask: Call, result: Json
):
    def overtaken(_: Json) -> Json:
        if len(server.sent(method)) == 1:
            server.notify(f"notifications/{kind}/list_changed")
        return {**result, "ttlMs": 5_000, "cacheScope": "private"}

    server = ScriptedServer(MODERN, {method: overtaken})
    async with client_of(server) as client:
        old = await ask(client)
        new = await ask(client)
        assert new is not old
        assert await ask(client) is new


async def test_list_without_ttl_is_requested_every_time():
    server = ScriptedServer(answers={"tools/list": {"tools": []}})
    async with client_of(server) as client:
        await client.list_tools()
        await client.list_tools()

    assert len(server.sent("tools/list")) == 2


async def test_changed_resource_is_read_again(clock: SetClock):
    updated: list[str] = []
    answers: dict[str, Answer] = {
        "resources/read": lambda params: {
            "contents": [{"uri": params["uri"], "text": "x"}],
            "ttlMs": 5_000,
            "cacheScope": "private",
        }
    }
    server = ScriptedServer(MODERN, answers)
    async with client_of(server, on_resource_updated=updated.append) as client:
        for uri in ("a:1", "a:2", "a:1", "a:2"):
            assert (await client.read_resource(uri)).contents[0].uri == uri
        server.notify("notifications/resources/updated", uri="a:1")
        await settle()
        await client.read_resource("a:1")
        await client.read_resource("a:2")

    assert [each["uri"] for each in server.sent("resources/read")] == ["a:1", "a:2", "a:1"]
    assert updated == ["a:1"]


async def test_resource_read_after_a_question_is_not_cached(clock: SetClock):
    asks = [{"resultType": "input_required", "requestState": "s"}, None] * 2
    contents = {"contents": [{"uri": "a:b", "text": "x"}], "ttlMs": 5_000, "cacheScope": "private"}
    server = ScriptedServer(MODERN, {"resources/read": lambda _: asks.pop(0) or contents})
    async with client_of(server) as client:
        await client.read_resource("a:b")
        await client.read_resource("a:b")

    assert len(server.sent("resources/read")) == 4


async def test_large_resource_is_not_cached(monkeypatch: pytest.MonkeyPatch):
    """R-118."""
    monkeypatch.setattr(client_module, "MAX_RESOURCE", 10)

    def read(params: Json) -> Json:
        content = {"uri": params["uri"], "text": "x" * int(params["uri"].partition(":")[2])}
        return {"contents": [content], "ttlMs": 60_000}

    server = ScriptedServer(MODERN, {"resources/read": read}, capabilities={"resources": {}})
    async with client_of(server) as client:
        for uri in ("a:10", "a:10", "a:11", "a:11"):
            await client.read_resource(uri)

    assert [each["uri"] for each in server.sent("resources/read")] == ["a:10", "a:11", "a:11"]


# Subscriptions


async def test_subscribe_sends_a_request_to_a_legacy_server():
    updated: list[str] = []
    answers: dict[str, Answer] = {"resources/subscribe": {}, "resources/unsubscribe": {}}
    server = ScriptedServer(LEGACY, answers)
    async with client_of(server, on_resource_updated=updated.append) as client:
        await client.subscribe("a:b")
        server.notify("notifications/resources/updated", uri="a:b")
        await client.unsubscribe("a:b")

    assert server.sent("resources/subscribe") == [{"uri": "a:b"}]
    assert server.sent("resources/unsubscribe") == [{"uri": "a:b"}]
    assert updated == ["a:b"]


async def test_legacy_subscriptions_are_limited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "MAX_SUBSCRIPTIONS", 2)
    server = ScriptedServer(LEGACY, {"resources/subscribe": {}, "resources/unsubscribe": {}})
    async with client_of(server) as client:
        for uri in ("a:1", "a:2", "a:2"):
            await client.subscribe(uri)
        with pytest.raises(LocalProtocolError, match=r"limit 2\); end some first"):
            await client.subscribe("a:3")
        await client.unsubscribe("a:1")
        await client.subscribe("a:3")

    assert len(server.sent("resources/subscribe")) == 4


async def test_subscribe_opens_a_stream_at_a_modern_server():
    updated: list[str] = []
    server = ScriptedServer(MODERN, {"subscriptions/listen": lambda _: None})
    async with client_of(server, on_resource_updated=updated.append) as client:
        subscribing = asyncio.create_task(client.subscribe("a:b"))
        sent = await server.heard("subscriptions/listen")
        id = server.received[-1]["id"]
        await settle()
        assert not subscribing.done()  # not before the server has said that it holds

        meta = {SUBSCRIPTION_KEY: id}
        server.notify("notifications/subscriptions/acknowledged", notifications={}, _meta=meta)
        await subscribing
        server.notify("notifications/resources/updated", uri="a:b", _meta=meta)
        await client.unsubscribe("a:b")
        assert await server.heard("notifications/cancelled") == {"requestId": id}

    assert without_meta(sent) == {"notifications": {"resourceSubscriptions": ["a:b"]}}
    assert updated == ["a:b"]


# Raw requests


async def test_request_returns_the_encoded_result():
    server = ScriptedServer(answers={"x/y": {"a": [1]}})
    async with client_of(server) as client:
        assert msgspec.json.decode(await client.request("x/y")) == {"a": [1]}
