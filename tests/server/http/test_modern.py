"""Modern requests that are more than one question and one answer."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from msgspec import UNSET

from interlock import Context
from interlock.auth import Principal
from interlock.server.http import header_checks, request, streams
from tests.support.rows import each_row

PROGRESS = {"progressToken": "p"}


async def test_a_quick_answer_is_plain_json(http):
    reply = await http.call("add", {"a": 1}, meta=PROGRESS)

    assert (reply.code, reply.header("content-type")) == (200, "application/json")
    assert reply.header("content-length") == str(len(reply.body))


async def test_the_first_notification_makes_the_reply_a_stream(http):
    reply = await http.call("count", {"to": 2}, meta=PROGRESS)

    assert reply.header("content-type") == "text/event-stream"
    assert reply.header("cache-control") == "no-cache, no-transform"
    assert reply.header("x-accel-buffering") == "no"
    first, second, last = [await reply.message() for _ in range(3)]
    assert [each["params"]["progress"] for each in (first, second)] == [0, 1]
    assert last["result"]["content"][0]["text"] == "counted to 2"
    assert b"id:" not in reply.body
    assert b"retry:" not in reply.body


async def test_a_notification_is_sent_before_the_answer_is_known(http, gate):
    reply = http.begin("tools/call", {"name": "tell_and_hold"}, meta=PROGRESS)

    assert (await reply.message())["params"]["progress"] == 1
    gate.opened.set()
    assert (await reply.message())["id"] == 1


async def test_long_silence_turns_the_reply_into_a_stream_with_comments(make, gate):
    http = make(json_silence=0.01, keep_alive=0.01)
    reply = http.begin("tools/call", {"name": "hold"})

    assert await reply.part() == ": "
    assert await reply.part() == ": "
    gate.opened.set()
    assert (await reply.message())["result"]["content"][0]["text"] == "done"


async def test_a_client_without_streams_gets_the_answer_alone(make):
    http = make(json_silence=0.0)
    reply = await http.call("count", meta=PROGRESS, headers={"accept": "application/json"})

    assert reply.text == "counted to 3"


async def test_client_that_accepts_only_streams_gets_a_stream(http):
    reply = await http.call("add", {"a": 1}, headers={"accept": "text/event-stream"})

    assert (await reply.message())["result"]["structuredContent"] == 2


@each_row("accept", ["-", "*/*", "application/*, text/*", "application/json;q=0.5"])
async def test_client_without_accept_gets_json(http, accept):
    reply = await http.call("add", {"a": 1}, headers={"accept": accept})

    assert reply.text == "2"


@each_row("accept", ["text/html", "image/*", "application/json;q=0"])
async def test_client_that_accepts_neither_type_gets_406(http, accept):
    assert (await http.call("add", {"a": 1}, headers={"accept": accept})).code == 406


async def test_an_error_after_the_stream_has_begun_comes_in_it(server, http):
    @server.tool
    async def late(context: Context) -> str:
        context.progress(1)
        await context.sample("hello", 1)
        return ""

    reply = await http.call("late", meta=PROGRESS)
    assert reply.code == 200
    await reply.message()
    assert (await reply.message())["error"]["code"] == -32021


# Disconnecting


async def test_a_client_that_leaves_cancels_its_request(http, gate):
    reply = http.begin("tools/call", {"name": "hold"})
    await gate.entered.wait()
    reply.disconnect()

    await reply.finished()
    assert gate.cancelled.is_set()
    assert reply.body == b""


async def test_a_client_that_leaves_a_stream_cancels_its_request(http, gate):
    reply = http.begin("tools/call", {"name": "tell_and_hold"}, meta=PROGRESS)
    await reply.message()
    reply.disconnect()

    await reply.finished()
    assert gate.cancelled.is_set()


async def test_disconnecting_client_does_not_affect_other_clients(http, gate):
    leaving = http.begin("tools/call", {"name": "hold"}, id=7)
    staying = http.begin("tools/call", {"name": "hold", "arguments": {"word": "here"}}, id=7)
    await gate.entered.wait()
    leaving.disconnect()
    await leaving.finished()
    gate.opened.set()

    assert (await staying.finished()).text == "here"


async def test_the_task_of_the_application_can_be_cancelled_by_its_host(http, gate):
    reply = http.begin("tools/call", {"name": "hold"})
    await gate.entered.wait()
    reply.task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await reply.task
    assert gate.cancelled.is_set()


async def test_a_stream_whose_host_cancels_its_task_is_ended(http, gate):
    await http.ask("tools/list")
    before = asyncio.all_tasks()
    reply = http.begin("tools/call", {"name": "tell_and_hold"}, meta=PROGRESS)
    await reply.message()
    reply.task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await reply.task
    assert gate.cancelled.is_set()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before  # no task writes to the stream any more


async def test_a_cancelled_request_leaves_its_task_uncancelled(http, gate):
    reply = http.begin("tools/call", {"name": "hold"})
    await gate.entered.wait()
    reply.disconnect()
    await reply.finished()

    assert reply.task.cancelling() == 0


async def test_a_hundred_requests_cancelled_at_any_point_answer_nothing(make, gate, monkeypatch):
    http = make(json_silence=0.0, keep_alive=0.001)
    monkeypatch.setattr(request, "TICK", 0.0)
    for turns in range(100):
        reply = http.begin("tools/call", {"name": "tell_and_hold"}, meta=PROGRESS)
        for _ in range(turns % 25):
            await asyncio.sleep(0)
        reply.disconnect()
        await reply.finished()
        assert b"result" not in reply.body


async def test_watching_stops_once_the_answer_is_sent(make, gate, monkeypatch):
    http = make(json_silence=1234.0)
    monkeypatch.setattr(request, "TICK", 0.0)
    await http.call("add", {"a": 1})
    before = asyncio.all_tasks()
    loop, timers = asyncio.get_running_loop(), []
    call_later = loop.call_later

    def noted(delay, *what):
        timers.append((delay, call_later(delay, *what)))
        return timers[-1][1]

    monkeypatch.setattr(loop, "call_later", noted)
    reply = http.begin("tools/call", {"name": "hold"})
    await gate.entered.wait()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(asyncio.all_tasks() - before - {reply.task}) == 1
    gate.opened.set()
    await reply.finished()
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == before
    assert [timer.cancelled() for delay, timer in timers if delay == 1234.0] == [True]


async def test_no_watcher_task_runs_while_the_answer_is_sent(http, monkeypatch):
    monkeypatch.setattr(request, "TICK", 0.0)
    await http.call("add", {"a": 1})
    before = asyncio.all_tasks()
    reply = http.begin("tools/call", {"name": "add", "arguments": {"a": 1}})
    reply.stop_reading()
    for _ in range(10):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {*before, reply.task}
    reply.read_again()

    assert (await reply.finished()).text == "2"


async def test_request_sends_no_notification_after_its_answer(server, http, caplog):
    kept = []

    @server.tool
    async def keep(context: Context) -> str:
        kept.append(context)
        return "kept"

    reply = await http.call("keep", meta=PROGRESS)
    caplog.clear()
    kept[0].progress(1)
    for _ in range(5):
        await asyncio.sleep(0)

    assert reply.text == "kept"
    assert caplog.text == ""  # such as of a second reply to one request


async def test_client_that_reads_nothing_and_disconnects_is_dropped(http, gate, monkeypatch):
    monkeypatch.setattr(request, "TICK", 0.0)
    reply = http.begin("tools/call", {"name": "tell_and_hold"}, meta=PROGRESS)
    await gate.entered.wait()
    reply.stop_reading()
    for _ in range(10):
        await asyncio.sleep(0)
    reply._incoming.put_nowait({"type": "http.disconnect"})

    await reply.finished()
    assert gate.cancelled.is_set()


async def test_the_answer_of_a_stream_that_was_watched_is_sent(http, gate, monkeypatch):
    monkeypatch.setattr(request, "TICK", 0.0)
    reply = http.begin("tools/call", {"name": "tell_and_hold"}, meta=PROGRESS)
    await gate.entered.wait()
    reply.stop_reading()
    for _ in range(10):
        await asyncio.sleep(0)
    gate.opened.set()
    for _ in range(10):
        await asyncio.sleep(0)
    reply.read_again()
    await reply.finished()

    assert (await reply.message())["params"]["progress"] == 1
    assert (await reply.message())["result"]["content"][0]["text"] == "done"


# Overlapping


async def test_overlapping_requests_with_one_id_get_their_own_answers(http, gate):
    first = http.begin("tools/call", {"name": "hold", "arguments": {"word": "first"}}, id=7)
    second = http.begin("tools/call", {"name": "hold", "arguments": {"word": "second"}}, id=7)
    await gate.entered.wait()
    gate.opened.set()

    assert (await first.finished()).text == "first"
    assert (await second.finished()).text == "second"


# Questions


async def test_question_ends_the_modern_request_and_the_next_request_brings_the_answer(http):
    asked = await http.call("sample", capabilities={"sampling": {}})
    result = asked.json["result"]
    assert result["resultType"] == "input_required"

    answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}
    responses = dict.fromkeys(result["inputRequests"], answer)
    params = {
        "name": "sample",
        "arguments": {},
        "inputResponses": responses,
        "requestState": result["requestState"],
    }
    reply = await http.ask("tools/call", params, id=2, capabilities={"sampling": {}})
    assert reply.text == "the model said hi"


# Listening

FILTER = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["notes://one"]}}


async def test_subscriber_gets_an_acknowledgement_and_notifications(server, http):
    reply = http.begin("subscriptions/listen", FILTER, id="sub")
    first = await reply.message()
    assert first["method"] == "notifications/subscriptions/acknowledged"

    server.remove_tool("add")
    server.resource_updated("notes://one")
    server.remove_prompt("greet")
    server.remove_tool("count")
    told = [await reply.message() for _ in range(3)]
    assert [each["method"].removeprefix("notifications/") for each in told] == [
        "tools/list_changed", "resources/updated", "tools/list_changed",
    ]  # fmt: skip
    for each in (first, *told):
        assert each["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "sub"}


async def test_subscriber_that_disconnects_is_removed(server, http):
    reply = http.begin("subscriptions/listen", FILTER)
    await reply.message()
    reply.disconnect()

    await reply.finished()
    assert not server.subscribers._open
    assert not http.app._modern._listening


async def test_subscriber_that_accepts_no_stream_is_refused(http):
    reply = await http.ask("subscriptions/listen", FILTER, headers={"accept": "application/json"})

    assert (reply.code, reply.json["id"]) == (406, 1)


async def test_subscriptions_can_be_switched_off(make):
    http = make(listen=False)
    reply = await http.ask("subscriptions/listen", FILTER)
    assert (reply.code, reply.error) == (404, -32601)

    capabilities = (await http.ask("server/discover")).json["result"]["capabilities"]
    assert "listChanged" not in json.dumps(capabilities)
    assert "tools" in capabilities


async def test_number_of_subscribers_is_limited(make):
    http = make(max_streams=1)
    first = http.begin("subscriptions/listen", FILTER)
    await first.message()
    assert (await http.ask("subscriptions/listen", FILTER, id=2)).code == 503

    first.disconnect()
    await first.finished()
    again = http.begin("subscriptions/listen", FILTER, id=3)
    await again.message()


async def verify(token: str) -> Principal | None:
    tenant, _, name = token.partition("-")
    return Principal(name, tenant=tenant)


async def test_streams_are_limited_per_principal(make):
    http = make(
        max_streams_per_principal=2, verify_token=verify, resource="https://api.example.com/mcp"
    )

    async def open_stream(token):
        headers = {"authorization": f"Bearer {token}"}
        return http.begin("subscriptions/listen", FILTER, headers=headers)

    opened = [await open_stream("north-anna") for _ in range(2)]
    assert [await each.status() for each in opened] == [200, 200]
    assert await (await open_stream("north-anna")).status() == 503
    assert await (await open_stream("north-bob")).status() == 200
    assert await (await open_stream("south-anna")).status() == 200

    opened[0].disconnect()
    await opened[0].finished()
    assert await (await open_stream("north-anna")).status() == 200


@pytest.mark.parametrize(
    "uris", [["notes://one"] * 1001, ["notes://" + "x" * 2050]], ids=["many", "long"]
)
@pytest.mark.parametrize("with_resources", [True, False])
async def test_a_filter_too_large_to_keep_is_refused(make, server, uris, with_resources):
    http = make()
    if not with_resources:
        server.remove_resource("notes://one")
    wanted = {"notifications": {"resourceSubscriptions": uris}}
    reply = await http.ask("subscriptions/listen", wanted)

    assert reply.error == -32602


async def test_parameters_of_a_subscription_stream_are_limited_in_size(http):
    reply = await http.ask("subscriptions/listen", FILTER | {"padding": "x" * 262_144})

    assert (reply.code, reply.json["id"]) == (413, 1)


async def test_end_of_the_server_ends_subscriptions_with_a_result(http):
    reply = http.begin("subscriptions/listen", FILTER, id=9)
    await reply.message()
    await http.app.close()

    cancelled, result = await reply.message(), await reply.message()
    assert cancelled["method"] == "notifications/cancelled"
    assert cancelled["params"] == {"requestId": 9}
    assert (result["id"], result["result"]["resultType"]) == (9, "complete")
    assert result["result"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 9}
    assert (await reply.finished()).ended


# Slow readers


async def test_a_client_that_reads_nothing_is_cut_off(server, http, caplog):
    ended = asyncio.Event()

    @server.tool
    async def flood(context: Context) -> str:
        try:
            for number in range(1_000_000):
                context.progress(number, message="x" * 1000)
                if number % 100 == 0:
                    await asyncio.sleep(0)
        finally:
            ended.set()
        return "all sent"

    reply = http.begin("tools/call", {"name": "flood"}, meta=PROGRESS)
    reply.stop_reading()
    await reply.finished()
    assert ended.is_set()
    assert b"all sent" not in reply.body
    assert "cut a stream" in caplog.text
    assert server.dropped == {"stream that is not read": 1}


async def test_client_that_stops_reading_does_not_affect_other_clients(http, monkeypatch):
    monkeypatch.setattr(streams, "SEND_DEADLINE", 0.01)
    reply = http.begin("tools/call", {"name": "count"}, meta=PROGRESS)
    reply.stop_reading()
    await reply.finished()

    assert not reply.ended
    assert (reply.task.cancelled(), reply.task.cancelling()) == (False, 0)


def test_the_headers_of_tools_that_are_gone_are_not_kept_for_ever(monkeypatch):
    """R-118."""
    monkeypatch.setattr(header_checks, "MAX_REMEMBERED", 3)
    asked = SimpleNamespace(header=lambda _name: None)
    expected = header_checks.ToolHeaderChecks()
    region = {"type": "string", "x-mcp-header": "Region"}
    plain, annotated = {}, {"region": region}
    for number in range(10):
        for kind, properties in (("plain", plain), ("annotated", annotated)):
            definition = {"inputSchema": {"properties": properties}}
            expected.check(asked, f"{kind}{number}", definition, UNSET)

    assert len(expected._known) <= 3
    assert len(expected.unannotated) <= 3
