"""Progress, cancelling, log messages and questions in all four pairs of eras."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from interlock import Client
from interlock.auth.principal import Principal
from interlock.client import features
from interlock.errors import RemoteError
from interlock.gateway import ForwardingServer
from interlock.policy import Policy
from interlock.protocol.decoding import CHECKS
from interlock.store import AuditReader
from interlock.types import ElicitParams, ElicitResult, LogMessage
from tests.gateway.support import as_principal
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text, tool

ANNA, BERT = (Principal(f"user:{each}", frozenset({"mcp:*"})) for each in ("anna", "bert"))
pairs = pytest.mark.parametrize(
    ("ours", "theirs"), [(LEGACY, LEGACY), (LEGACY, MODERN), (MODERN, LEGACY), (MODERN, MODERN)]
)


def server(revision: str, call: Any) -> ScriptedServer:
    answers = {
        "tools/list": {"tools": [tool("work")]},
        "tools/call": call,
        "logging/setLevel": {},
    }
    return ScriptedServer(revision, answers, capabilities={"tools": {}, "logging": {}})


def gateway_of(upstream: ScriptedServer) -> ForwardingServer:
    return ForwardingServer({"s": upstream}, Policy.compile(None), environ={})


@pairs
async def test_progress_is_forwarded_at_most_twenty_times_a_second(ours: str, theirs: str):
    async def work(params: Json) -> Json:
        token = params["_meta"]["progressToken"]
        for step in range(1, 101):
            s.notify("notifications/progress", progressToken=token, progress=step, total=100)
            await asyncio.sleep(0)
        return text("done")

    s = server(theirs, work)
    seen: list[float] = []
    loop = asyncio.get_running_loop()
    async with Client.memory(gateway_of(s), revision=ours) as client:
        await client.list_tools()
        began = loop.time()
        await client.call_tool("s__work", progress=lambda each: seen.append(each.progress))
        seconds = loop.time() - began

    assert seen == sorted(seen)
    assert (seen[0], seen[-1]) == (1, 100)
    assert len(seen) <= 20 * seconds + 2


@pairs
async def test_cancelled_call_is_cancelled_upstream_by_its_own_id_within_a_second(
    ours: str, theirs: str
):
    begun = asyncio.Event()

    async def work(_: Json) -> None:
        begun.set()

    s = server(theirs, work)
    async with Client.memory(gateway_of(s), revision=ours, elicitation=never) as client:
        await client.list_tools()
        for _ in range(5):  # so that the ids of the two connections differ
            await client.request("tools/list")
        calling = asyncio.create_task(client.call_tool("s__work"))
        await begun.wait()
        calling.cancel()
        cancelled = await s.heard("notifications/cancelled")

    (sent,) = [each for each in s.received if each.get("method") == "tools/call"]
    assert cancelled["requestId"] == sent["id"]


async def never(_: ElicitParams) -> ElicitResult:
    raise AssertionError


@pairs
async def test_log_messages_of_a_call_pass_at_the_level_of_the_client(ours: str, theirs: str):
    async def work(_: Json) -> Json:
        for level in ("debug", "info", "error"):
            s.notify("notifications/message", level=level, data=level)
        return text("done")

    s = server(theirs, work)
    heard: list[LogMessage] = []
    async with Client.memory(gateway_of(s), revision=ours, on_log=heard.append) as client:
        await client.set_log_level("info")
        await client.call_tool("s__work")
        assert [each.level for each in heard] == ["info", "error"]
        heard.clear()
        await client.set_log_level("debug")
        await client.call_tool("s__work")
        assert [each.level for each in heard] == ["debug", "info", "error"]

    if theirs == LEGACY:
        assert [each["level"] for each in s.sent("logging/setLevel")] == ["info", "debug"]
    else:
        key = "io.modelcontextprotocol/logLevel"
        levels = [each["_meta"][key] for each in s.sent("tools/call")]
        assert levels == ["info", "debug"]


async def test_modern_client_that_states_no_level_gets_no_log_messages():
    async def work(_: Json) -> Json:
        s.notify("notifications/message", level="error", data="x")
        return text("done")

    s = server(LEGACY, work)
    heard: list[LogMessage] = []
    async with Client.memory(gateway_of(s), revision=MODERN, on_log=heard.append) as client:
        await client.call_tool("s__work")

    assert heard == []


@each_row("theirs", [LEGACY, MODERN])
async def test_progress_logs_and_questions_of_a_call_reach_no_other_client(theirs: str):
    """Anna calls, and Bert is connected: he must see no trace of it."""

    async def work(params: Json) -> Json:
        if "inputResponses" in params:
            return text("done")
        token = params["_meta"]["progressToken"]
        s.notify("notifications/progress", progressToken=token, progress=1, message="canary")
        s.notify("notifications/message", level="error", data="canary")
        if theirs == LEGACY:
            await s.ask("elicitation/create", FORM)
            return text("done")
        question = {"method": "elicitation/create", "params": FORM}
        return {"resultType": "input_required", "inputRequests": {"q": question}}

    s = server(theirs, work)
    gateway = gateway_of(s)
    heard: list[Any] = []
    asked: list[str] = []

    async def anna(params: ElicitParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={})

    async def bert(params: ElicitParams) -> ElicitResult:
        heard.append(params)
        return ElicitResult(action="decline")

    for ours in (LEGACY, MODERN):
        async with (
            Client.memory(
                as_principal(gateway, BERT),
                revision=LEGACY,
                elicitation=bert,
                on_log=heard.append,
            ) as other,
            Client.memory(as_principal(gateway, ANNA), revision=ours, elicitation=anna) as client,
        ):
            await other.set_log_level("debug")
            await client.call_tool("s__work", progress=lambda _: None)
            await other.ping()

    assert asked == ["s asks: canary", "s asks: canary"]
    assert heard == []


FORM = {"message": "canary", "requestedSchema": {"type": "object", "properties": {}}}


@each_row("theirs", [LEGACY, MODERN])
@each_row("ours", [LEGACY, MODERN])
async def test_default_that_does_not_fit_is_not_passed_on(theirs: str, ours: str):
    fields = {"n": {"type": "integer", "default": "5"}, "m": {"type": "integer", "default": 5}}
    form = {"message": "?", "requestedSchema": {"type": "object", "properties": fields}}

    async def work(params: Json) -> Json:
        if theirs == LEGACY:
            return text(str((await s.ask("elicitation/create", form))["result"]["content"]))
        if "inputResponses" in params:
            return text(str(params["inputResponses"]["q"]["content"]))
        question = {"method": "elicitation/create", "params": form}
        return {"resultType": "input_required", "inputRequests": {"q": question}}

    async def anna(params: ElicitParams) -> ElicitResult:
        assert params.requested_schema is not None
        assert params.requested_schema["properties"]["n"] == {"type": "integer"}
        return ElicitResult(action="accept", content={})

    s = server(theirs, work)
    async with Client.memory(gateway_of(s), revision=ours, elicitation=anna) as client:
        assert (await client.call_tool("s__work")).text == "{'m': 5}"


async def test_client_without_the_capability_is_not_asked():
    reasons: list[Any] = []

    async def work(_: Json) -> Json:
        reasons.append((await s.ask("elicitation/create", FORM))["error"])
        return text("went on")

    s = server(LEGACY, work)
    gateway = gateway_of(s)
    for ours in (LEGACY, MODERN):
        async with Client.memory(gateway, revision=ours) as client:
            assert (await client.call_tool("s__work")).text == "went on"

    assert [(each["code"], each["data"]) for each in reasons] == [
        (-32601, {"reason": "cannot_ask"})
    ] * 2


async def test_question_that_the_client_does_not_support_ends_the_call():
    question = {"method": "elicitation/create", "params": FORM}
    asking = {"resultType": "input_required", "inputRequests": {"q": question}}
    s = server(MODERN, lambda _: asking)
    gateway = gateway_of(s)
    async with Client.memory(gateway, revision=MODERN) as client:
        with pytest.raises(RemoteError) as caught:
            await client.call_tool("s__work")
    async with Client.memory(gateway, revision=LEGACY) as client:
        result = await client.call_tool("s__work")

    assert caught.value.code == -32021
    assert (result.meta or {})["interlock/reason"]["code"] == "cannot_ask"


@each_row("ours", [LEGACY, MODERN])
async def test_server_that_asks_too_often_is_refused(ours: str):
    errors: list[Any] = []

    async def work(_: Json) -> Json:
        for _ in range(features.MAX_ASKS + 1):
            answer = await s.ask("elicitation/create", FORM)
            if "error" in answer:
                errors.append(answer["error"]["data"])
        return text("went on")

    async def accept(_: ElicitParams) -> ElicitResult:
        return ElicitResult(action="accept", content={})

    s = server(LEGACY, work)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(features, "MAX_ASKS", 5)
        async with Client.memory(gateway_of(s), revision=ours, elicitation=accept) as client:
            assert (await client.call_tool("s__work")).text == "went on"

    assert errors == [{"reason": "asks_exceeded"}]


async def test_name_of_a_session_is_bounded():
    s = server(LEGACY, lambda _: text("done"))
    async with Client.memory(gateway_of(s), revision=MODERN) as client:
        for length, is_error in ((64, False), (65, True)):
            meta = {"interlock/session": "x" * length}
            assert (await client.call_tool("s__work", meta=meta)).is_error is is_error

    assert len(s.sent("tools/call")) == 1


def refuse(_: Json) -> Json:
    raise RemoteError(-32603, "out of order")


@pytest.mark.slow("fills a database")
async def test_outcome_states_the_revision_and_messages_only_if_they_differ(
    running, tmp_path: Path
):
    old = server(LEGACY, text("done"))
    broken = server(LEGACY, {"content": 7})
    again = {"resultType": "input_required", "requestState": "once"}
    rounds = server(MODERN, lambda params: text("done") if "requestState" in params else again)
    mute = server(LEGACY, text("done"))
    servers = {"old": old, "broken": broken, "new": server(MODERN, text("done"))}
    async with running(**servers, rounds=rounds, gone=mute) as gateway:
        key = await gateway.key()
        for name in ("old__work", "broken__work", "new__work"):
            await gateway.call(name, key)
        session = await gateway.http.initialize(headers={"authorization": f"Bearer {key}"})
        await session.call("rounds__work")
        mute.answers["initialize"] = mute.answers["server/discover"] = refuse
        await mute.end()
        await gateway.call("gone__work", key)
    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        records = [each async for piece in reader.export() for each in piece]
    intents, outcomes = (
        {each["tool"]: each for each in records if each["kind"] == kind}
        for kind in ("intent", "outcome")
    )

    assert {tool: each["revision"] for tool, each in intents.items()} == {
        **dict.fromkeys(("old:work", "broken:work", "new:work", "gone:work"), MODERN),
        "rounds:work": LEGACY,
    }
    assert {
        tool: (each.get("revision"), each.get("messages")) for tool, each in outcomes.items()
    } == {
        "old:work": (LEGACY, None),
        "broken:work": (LEGACY, None),
        "new:work": (None, None),
        "rounds:work": (MODERN, 2),
        "gone:work": (None, 0),
    }


async def test_arguments_with_a_number_out_of_range_are_not_forwarded():
    s = server(MODERN, text("done"))
    async with Client.memory(gateway_of(s)) as client:
        await client.list_tools()
        result = await client.call_tool("s__work", Raw(b'{"a":1e999}'))

    assert (result.is_error, result.text) == (True, "arguments: Number out of range - at `$[...]`")


DONE = {"type": "text", "text": "done"}
IMAGE = {"type": "image", "mimeType": "image/png"}


@each_row("ours", [LEGACY, MODERN])
@each_row(
    ("sent", "content", "is_error"),
    [
        # https://github.com/BerriAI/litellm/pull/36920
        ({"content": [DONE, {"type": "widget"}]}, [DONE, {"type": "widget"}], False),
        ({"content": [IMAGE, DONE]}, [IMAGE, DONE], False),
        ({"content": [{"type": "text", "text": None}]}, [{"type": "text", "text": ""}], False),
        ({"content": DONE, "isError": "true", "_meta": []}, [DONE], True),
        ({"content": "done", "isError": 0}, [DONE], False),
        ({"content": [DONE | {"x-vendor": 1}]}, [DONE | {"x-vendor": 1}], False),
    ],
)
async def test_strict_clients_can_read_malformed_content_of_a_server(
    ours: str, sent: Json, content: list[Json], is_error: bool
):
    async with Client.memory(gateway_of(server(LEGACY, sent)), revision=ours) as client:
        await client.list_tools()
        raw = await client.request("tools/call", {"name": "s__work", "arguments": {}})

    CHECKS["tools/call"](raw)  # as a strict client does
    result = msgspec.json.decode(raw)
    assert result.get("isError", False) is is_error
    for block, wanted in zip(result["content"], content, strict=True):
        if wanted["type"] in ("widget", "image"):
            assert block["type"] == "text"
            assert msgspec.json.decode(block["text"]) == wanted
        else:
            assert block == wanted


@each_row("wrong", [{"content": [5]}, {"content": 5}, {"content": [], "isError": "perhaps"}])
async def test_result_without_a_plain_meaning_is_an_error_of_the_server(wrong: Json):
    async with Client.memory(gateway_of(server(LEGACY, wrong)), revision=LEGACY) as client:
        await client.list_tools()
        result = await client.call_tool("s__work")

    assert result.is_error
    assert "malformed tools/call result" in result.text


async def test_empty_list_as_arguments_counts_as_an_empty_object():
    """Clients in PHP write it: https://github.com/modelcontextprotocol/php-sdk/issues/284."""
    s = server(MODERN, text("done"))
    async with Client.memory(gateway_of(s)) as client:
        await client.list_tools()
        assert (await client.call_tool("s__work", Raw(b"[]"))).text == "done"
        refused = await client.call_tool("s__work", Raw(b"[1]"))

    assert [each["arguments"] for each in s.sent("tools/call")] == [{}]
    assert (refused.is_error, refused.text) == (True, "the arguments must be an object")
