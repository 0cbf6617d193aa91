"""Requests, notifications and batches within a legacy session."""

from __future__ import annotations

import asyncio
import json

import pytest

from interlock import Context
from interlock.errors import ConfigError
from interlock.server.http import legacy_session, streams
from tests.support.rows import each_row

# Requests


async def test_an_answer_alone_is_plain_json(http):
    client = await http.initialize()
    reply = await client.call("add", {"a": 1})

    assert (reply.code, reply.header("content-type")) == (200, "application/json")


async def test_a_session_beyond_the_limit_of_listeners_still_works(server, http, monkeypatch):
    monkeypatch.setattr("interlock.server.subscribers.MAX_SUBSCRIBERS", 0)
    client = await http.initialize()

    assert (await client.call("add", {"a": 1})).text == "2"


async def test_error_of_a_handler_is_a_json_rpc_error_with_status_200(http):
    client = await http.initialize()
    reply = await client.ask("no/method", id="x")

    assert (reply.code, reply.error, reply.json["id"]) == (200, -32601, "x")


async def test_notifications_and_responses_get_an_empty_202(server, http):
    client = await http.initialize()

    for reply in (
        await client.notify("notifications/roots/list_changed"),
        await client.answer(99, {}),
    ):
        assert (reply.code, reply.body) == (202, b"")
    assert server.dropped == {"unexpected response": 1}


CALL = '{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"a":1}}}'
LISTED = '{"jsonrpc":"2.0","id":7,"method":"tools/list","params":%s}'


@each_row(
    ("body", "headers"),
    [
        (CALL, {"content-type": "application/vnd.example+json"}),
        (CALL.replace(":7", ":7.0"), {}),
        ("\ufeff" + CALL, {}),
        (json.dumps(json.loads(CALL), indent=2), {}),
        (CALL.replace('"arguments"', '"_meta":null,"arguments"'), {}),
        (LISTED % "null", {}),
        (LISTED % '{"cursor":null,"_meta":null}', {}),
    ],
)
async def test_a_request_whose_meaning_is_plain_is_served(http, body, headers):
    client = await http.initialize()
    reply = await client.post(body.encode(), headers).finished()

    assert (reply.code, reply.json["id"]) == (200, 7)
    assert reply.json["result"].get("tools") or reply.text == "2"


@each_row(
    ("body", "headers", "code"),
    [
        (CALL, {"content-type": "text/plain"}, 415),
        (CALL, {"content-type": "-"}, 415),  # a page could send this to another origin
        (CALL.replace(":7", ":7.5"), {}, 400),
        (LISTED % "[]", {}, 400),
        (CALL.replace(":7", ":null"), {}, 400),
    ],
)
async def test_a_request_with_another_meaning_is_refused(http, body, headers, code):
    client = await http.initialize()
    reply = await client.post(body.encode(), headers).finished()

    assert reply.code == code
    assert reply.error


async def test_an_id_is_recognised_in_other_forms(server, http, gate):
    client = await http.initialize()
    call = client.begin_call("hold", id="7")
    await gate.entered.wait()
    cancelled = '{"jsonrpc":"2.0","id":null,"method":"notifications/cancelled"%s}'
    body = (cancelled % ',"params":{"requestId":7.0}').encode()

    assert (await client.post(body).finished()).code == 202
    await gate.cancelled.wait()
    assert (await call.finished()).body == b""


async def test_an_id_that_is_in_use_is_refused(http, gate):
    client = await http.initialize()
    first = client.begin_call("hold", {"word": "first"}, id=7)
    await gate.entered.wait()
    second = await client.call("hold", {"word": "second"}, id=7)
    assert (second.code, second.error) == (400, -32600)

    gate.opened.set()
    assert (await first.finished()).text == "first"
    assert (await client.call("add", {"a": 1}, id=7)).text == "2"


async def test_requests_of_two_sessions_may_have_the_same_id(http, gate):
    clients = [await http.initialize(), await http.initialize()]
    replies = [each.begin_call("hold", {"word": each.id}, id=7) for each in clients]
    gate.opened.set()

    for client, reply in zip(clients, replies, strict=True):
        assert (await reply.finished()).text == client.id


async def test_requests_of_a_session_are_limited(http, gate, monkeypatch):
    monkeypatch.setattr(legacy_session, "MAX_RUNNING", 2)
    client = await http.initialize()
    running = [client.begin_call("hold", id=id) for id in (1, 2)]
    await gate.entered.wait()

    assert (await client.call("add", {"a": 1}, id=3)).code == 503
    gate.opened.set()
    for reply in running:
        await reply.finished()
    assert (await client.call("add", {"a": 1}, id=3)).code == 200


async def test_a_client_that_leaves_does_not_cancel_its_request(http, gate):
    client = await http.initialize()
    reply = client.begin_call("tell_and_hold", progressToken=1)
    await reply.message()
    await reply.leave()

    assert not gate.cancelled.is_set()
    gate.opened.set()
    await reply.finished()
    assert not gate.cancelled.is_set()


async def test_a_request_is_cancelled_by_a_notification_and_not_answered(http, gate):
    client = await http.initialize()
    reply = client.begin_call("hold", id="c")
    await gate.entered.wait()
    await client.notify("notifications/cancelled", {"requestId": "c"})

    await reply.finished()
    assert gate.cancelled.is_set()
    assert (reply.code, reply.body) == (200, b"")


async def test_cancellation_that_a_tool_catches_leaves_the_task_of_the_request_alone(
    http, server, gate
):
    @server.tool
    async def stubborn(context: Context) -> str:
        gate.entered.set()
        try:
            await gate.opened.wait()
        except asyncio.CancelledError:
            return "stayed"
        return "opened"

    client = await http.initialize()
    reply = client.begin_call("stubborn", id="c")
    await gate.entered.wait()
    await client.notify("notifications/cancelled", {"requestId": "c"})
    await reply.finished()
    assert reply.task.cancelling() == 0

    gate.entered.clear()
    modern = http.begin("tools/call", {"name": "stubborn"})
    await gate.entered.wait()
    http.app._requests._on_tick()
    http.app._requests._on_tick()
    await modern.leave()
    await modern.finished()
    assert modern.task.cancelling() == 0


@pytest.mark.parametrize("params", [{}, {"requestId": []}, {"requestId": 2}, None])
async def test_a_cancellation_without_a_running_request_is_ignored(http, gate, params):
    client = await http.initialize()
    reply = client.begin_call("hold", id="1")
    await gate.entered.wait()
    await client.notify("notifications/cancelled", params)
    gate.opened.set()

    assert (await reply.finished()).text == "done"


async def test_a_cancelled_call_that_ends_late_keeps_the_next_call_with_its_id(server, http, gate):
    begun, cleaning, cleaned = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @server.tool
    async def clean_up() -> str:
        begun.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            cleaning.set()
            await cleaned.wait()

    client = await http.initialize()
    first = client.begin_call("clean_up", id=7)
    await begun.wait()
    await client.notify("notifications/cancelled", {"requestId": 7})
    await cleaning.wait()
    second = client.begin_call("hold", id=7)
    await gate.entered.wait()
    cleaned.set()
    await first.finished()

    await client.notify("notifications/cancelled", {"requestId": 7})
    await gate.cancelled.wait()
    await second.finished()


# Batches


async def test_a_batch_is_answered_by_a_batch(http):
    client = await http.initialize("2025-03-26")
    parts = [
        http.rpc("ping", id=1),
        http.rpc("notifications/roots/list_changed"),
        http.rpc("no/method", id="2"),
    ]
    reply = await client.post(b" [%b]" % b",".join(parts)).finished()

    assert {each["id"] for each in reply.json} == {1, "2"}


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
async def test_answer_to_a_batch_has_all_results_of_any_size(http, monkeypatch, accept):
    monkeypatch.setattr(streams, "MAX_QUEUED", 10)
    http.app.sessions.budget.max_bytes = 20
    client = await http.initialize("2025-03-26")
    body = b"[%b]" % b",".join(http.rpc("ping", id=id) for id in range(5))
    reply = await client.post(body, {"accept": accept}).finished()

    assert {each["id"] for each in reply.json} == set(range(5))


async def test_a_batch_that_became_a_stream_has_all_answers(http, monkeypatch):
    monkeypatch.setattr(streams, "MAX_QUEUED", 10)
    client = await http.initialize("2025-03-26")
    call = {"name": "count", "arguments": {"to": 1}, "_meta": {"progressToken": 1}}
    parts = [*(http.rpc("ping", id=id) for id in range(5)), http.rpc("tools/call", call, id=5)]
    reply = await client.post(b"[%b]" % b",".join(parts)).finished()

    messages = [await reply.message() for _ in range(7)]
    assert {each.get("id") for each in messages} == {None, *range(6)}


async def test_batch_of_notifications_gets_an_empty_202(http):
    client = await http.initialize("2025-03-26")
    reply = await client.post(b"[%b]" % http.rpc("notifications/roots/list_changed")).finished()

    assert (reply.code, reply.body) == (202, b"")


async def test_batch_with_notifications_is_a_stream(http):
    client = await http.initialize("2025-03-26")
    call = {"name": "count", "arguments": {"to": 1}, "_meta": {"progressToken": 1}}
    parts = [http.rpc("ping", id=1), http.rpc("tools/call", call, id=2)]
    reply = await client.post(b"[%b]" % b",".join(parts)).finished()

    messages = [await reply.message() for _ in range(3)]
    assert {each.get("id") for each in messages} == {None, 1, 2}


@each_row("revision", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_only_revision_2025_03_26_has_batches(http, revision):
    client = await http.initialize(revision)
    reply = await client.post(b"[%b]" % http.rpc("ping", id=1)).finished()

    assert (reply.code, reply.error) == (400, -32600)


@each_row("version", ["2026-07-28", "v999"])
async def test_a_batch_in_the_name_of_another_revision_is_refused(http, version):
    client = await http.initialize("2025-03-26")
    batch = b"[%b]" % http.rpc("ping", id=1)
    reply = await client.post(batch, {"mcp-protocol-version": version}).finished()

    assert (reply.code, reply.error) == (400, -32600)


async def test_response_to_a_cancelled_question_is_dropped(http):
    client = await http.initialize("2025-03-26", capabilities={"sampling": {}})
    asking = client.begin_call("sample", id=5)
    question = await asking.message()
    cancel = http.rpc("notifications/cancelled", {"requestId": 5})
    answer = b'{"jsonrpc":"2.0","id":%d,"result":{}}' % question["id"]
    reply = await client.post(b"[%b,%b]" % (cancel, answer)).finished()

    assert reply.code == 202
    await asking.finished()


@each_row("bad", [b"7", b"{}", b'{"jsonrpc":"2.0","id":null,"method":"ping"}'])
async def test_a_batch_with_a_bad_part_is_refused_whole(http, bad):
    client = await http.initialize("2025-03-26")
    reply = await client.post(b"[%b,%b]" % (http.rpc("ping", id=1), bad)).finished()

    assert reply.code == 400


async def test_initialize_in_a_batch_and_oversized_batches_are_refused(http):
    client = await http.initialize("2025-03-26")
    for body in (b"[%b]" % http.initialize_body(), b"[]", b"[%b]" % b",".join([b"{}"] * 101)):
        assert (await client.post(body).finished()).code == 400
    twice = b"[%b,%b]" % (http.rpc("ping", id=1), http.rpc("ping", id=1))
    assert (await client.post(twice).finished()).code == 400


# Without sessions


@pytest.fixture
async def stateless(server, make):
    @server.tool
    async def confirm(context: Context) -> str:
        if not context.can("elicitation"):
            context.log("info", "cannot ask")
        return (await context.elicit("Sure?", bool)).action

    return make(stateless=True)


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_a_stateless_server_needs_no_session(stateless, revision):
    client = await stateless.initialize(revision, capabilities={"elicitation": {}})
    assert client.id == ""
    del client.headers["mcp-session-id"]
    assert (await client.notify("notifications/initialized")).code == 202
    assert (await client.call("add", {"a": 1})).text == "2"
    asked = await client.call("confirm")
    assert "(stateless=True)" in asked.text
    assert revision in asked.text
    assert asked.json["result"]["isError"]
    assert b"\nid:" not in asked.body  # nothing to reconnect to
    assert b"cannot ask" in asked.body
    refused = await client.ask("resources/subscribe", {"uri": "x://a"})
    assert "keeps no sessions" in str(refused.json)
    client.headers["mcp-session-id"] = "of-another-process"
    assert (await client.call("add", {"a": 2})).text == "3"
    assert (await client.listen().finished()).code == 405
    assert (await client.delete()).code == 405
    assert len(stateless.app.sessions) == 0


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
async def test_a_call_without_a_session_ends_with_its_client(make, gate, accept):
    http = make(stateless=True, json_silence=0.0)
    client = await http.initialize()
    client.headers["accept"] = accept
    reply = client.begin_call("hold")
    await gate.entered.wait()
    reply.disconnect()
    await gate.cancelled.wait()
    await reply.finished()


async def test_a_batch_without_a_session_is_answered(stateless):
    client = await stateless.initialize("2025-03-26")
    reply = await client.post(f"[{CALL},{CALL.replace(':7', ':8')}]".encode()).finished()

    assert sorted(each["id"] for each in reply.json) == [7, 8]


async def test_a_stateless_server_still_asks_modern_clients(stateless):
    reply = await stateless.call("confirm", capabilities={"elicitation": {}})

    assert reply.json["result"]["resultType"] == "input_required"


def test_sessions_of_http_sse_exclude_a_stateless_server(server):
    with pytest.raises(ConfigError, match="sse=True needs sessions"):
        server.asgi(sse=True, stateless=True)
