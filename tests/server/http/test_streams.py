"""Streams of legacy sessions: what comes on which, and how a client finds back to one."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from interlock import Context
from interlock.server.http import legacy_session, streams
from interlock.server.http.responses import Message
from tests.support.rows import each_row

TOKEN = {"progressToken": "p"}


async def test_stream_that_is_read_has_no_length_limit(monkeypatch):
    monkeypatch.setattr(streams, "MAX_QUEUED", 10)
    sent: asyncio.Queue = asyncio.Queue()
    outlet = streams.EventWriter(
        sent.put, (), keep_alive=streams.KeepAlive(10.0), dropped=Counter()
    )
    running = asyncio.create_task(outlet.run())
    assert (await sent.get())["type"] == "http.response.start"
    assert (await sent.get())["body"] == b": \n\n"
    for _ in range(20):
        outlet.put(b"x" * 8)
        assert (await sent.get())["body"] == b"x" * 8
    outlet.end()
    await running

    assert not outlet.was_cut


@each_row("error", [BrokenPipeError, TimeoutError])
async def test_a_stream_that_fails_to_send_drops_its_queue(error: type[Exception]):
    async def send(_: object) -> None:
        outlet.put(b"waits")
        raise error

    outlet = streams.EventWriter(send, (), keep_alive=streams.KeepAlive(10.0), dropped=Counter())
    await outlet.run()

    assert outlet.was_cut
    assert not outlet._queue


def test_message_after_the_end_of_a_stream_is_dropped():
    budget = streams.Budget(1, Counter())
    stream = streams.ReplayStream(1, budget)
    stream.end()
    stream.put(b"late")

    assert (budget.bytes, list(stream.frames)) == (0, [])


# Which stream


async def test_notification_of_a_request_is_sent_on_its_stream(http):
    client = await http.initialize()
    standalone = client.listen()
    await standalone.status()
    reply = await client.call("count", {"to": 2}, **TOKEN)

    first, second, last = [await reply.message() for _ in range(3)]
    assert [each["params"]["progress"] for each in (first, second)] == [0, 1]
    assert last["id"] == 1
    assert b"progress" not in standalone.body


async def test_waiting_message_is_sent_to_the_first_reader_only(server, http):
    client = await http.initialize()
    server.remove_tool("add")
    first = client.listen()
    assert (await first.message())["method"] == "notifications/tools/list_changed"
    first.disconnect()
    await first.finished()
    second = client.listen()
    await second.status()
    server.remove_resource("notes://one")

    assert (await second.message())["method"] == "notifications/resources/list_changed"


async def test_notifications_for_a_client_without_streams_are_not_kept(http, gate):
    client = await http.initialize()
    client.headers["accept"] = "application/json"
    running = client.begin_call("tell_and_hold", **TOKEN)
    await gate.entered.wait()
    assert http.app._legacy._budget.bytes == 0
    gate.opened.set()

    assert (await running.finished()).text == "done"


async def test_notification_without_a_request_is_sent_on_the_standalone_stream(server, http, gate):
    client = await http.initialize()
    standalone, running = client.listen(), client.begin_call("tell_and_hold", **TOKEN)
    await standalone.status()
    await running.message()
    server.remove_tool("add")

    assert (await standalone.message())["method"] == "notifications/tools/list_changed"
    gate.opened.set()
    await running.finished()
    assert b"list_changed" not in running.body


async def test_notification_before_the_first_reader_is_kept(server, http):
    client = await http.initialize()
    server.remove_tool("add")
    standalone = client.listen()

    assert (await standalone.message())["method"] == "notifications/tools/list_changed"


async def test_message_that_was_read_is_not_sent_to_the_next_reader(server, http):
    client = await http.initialize()
    first = client.listen()
    await first.status()
    server.remove_tool("add")
    await first.message()
    first.disconnect()
    await first.finished()
    second = client.listen()
    await second.status()
    server.remove_prompt("greet")

    assert (await second.message())["method"] == "notifications/prompts/list_changed"


async def test_a_second_standalone_stream_is_refused(http):
    client = await http.initialize()
    await client.listen().status()

    assert (await client.listen().finished()).code == 409


async def test_subscribed_resource_sends_updates(server, http):
    client = await http.initialize()
    standalone = client.listen()
    await client.ask("resources/subscribe", {"uri": "notes://one"})
    server.resource_updated("notes://one")

    assert (await standalone.message())["params"]["uri"] == "notes://one"


async def test_stream_without_accept_is_refused(http):
    client = await http.initialize()
    client.headers["accept"] = "application/json"

    assert (await client.listen().finished()).code == 406


async def test_standalone_streams_are_limited(make):
    http = make(max_streams=1)
    clients = [await http.initialize(), await http.initialize()]
    assert await clients[0].listen().status() == 200

    assert (await clients[1].listen().finished()).code == 503


# Events


@pytest.mark.parametrize(("revision", "primed"), [("2025-06-18", False), ("2025-11-25", True)])
async def test_an_event_without_data_is_sent_since_2025_11_25(http, revision, primed):
    client = await http.initialize(revision)
    reply = await client.call("count", {"to": 1}, **TOKEN)

    assert reply.body.startswith(b"id: 1-0\ndata: \n\n") is primed


async def test_event_ids_are_unique_in_a_session(http):
    client = await http.initialize()
    ids = []
    for id in range(3):
        reply = await client.call("count", {"to": 2}, id=id, **TOKEN)
        ids += [(await reply.event())[0] for _ in range(3)]

    assert len(set(ids)) == 9


async def test_a_line_break_within_a_message_does_not_end_its_event():
    assert streams.event(b'{"a":\r\n1}') == b'data: {"a":  1}\n\n'


# Coming back


async def test_a_resumed_stream_has_the_rest_of_the_answer(http, gate):
    client = await http.initialize()
    reply = client.begin_call("tell_and_hold", **TOKEN)
    last, _ = await reply.event()
    await reply.leave()
    gate.opened.set()
    again = client.listen(last)

    assert (await again.message())["result"]["content"][0]["text"] == "done"
    assert (await again.finished()).ended
    assert b"progress" not in again.body


async def test_an_ended_stream_can_be_replayed_from_any_event(http):
    client = await http.initialize()
    reply = await client.call("count", {"to": 2}, **TOKEN)
    seen = [await reply.event() for _ in range(3)]

    again = await client.listen("1-0").finished()
    assert [await again.event() for _ in range(3)] == seen
    rest = await client.listen(seen[1][0]).finished()
    assert await rest.event() == seen[2]


async def test_replay_contains_only_the_same_stream(http):
    client = await http.initialize()
    await client.call("count", {"to": 1}, id=1, **TOKEN)
    await client.call("count", {"to": 1}, id=2, **TOKEN)

    again = await client.listen("1-1").finished()
    assert (await again.message())["id"] == 1
    assert b'"id":2' not in again.body


async def test_resumed_standalone_stream_replaces_the_open_one(server, http):
    client = await http.initialize()
    old = client.listen()
    await old.status()
    server.remove_tool("add")
    id, _ = await old.event()
    new = client.listen(id)
    assert await new.status() == 200
    await old.finished()

    server.remove_tool("count")
    assert (await new.message())["method"] == "notifications/tools/list_changed"


@each_row("last", ["", "7-1", "1", "--", "1-x", "x-1", "1" * 50, "1-1-1", "\xb2-1"])
async def test_an_event_that_is_not_kept_is_refused(http, last):
    client = await http.initialize()

    assert (await client.listen(last).finished()).code == 400


async def test_an_event_of_another_session_is_not_found(http):
    one, other = await http.initialize(), await http.initialize()
    await one.call("count", {"to": 1}, **TOKEN)

    assert (await other.listen("1-0").finished()).code == 400


async def test_answers_sent_as_json_are_not_kept(http):
    client = await http.initialize()
    for id in range(10):
        await client.call("add", {"a": 1}, id=id)

    assert http.app._legacy._budget.bytes == 0


async def test_number_of_kept_streams_is_limited(http, monkeypatch):
    monkeypatch.setattr(legacy_session, "MAX_STREAMS", 3)
    client = await http.initialize()
    for id in range(6):
        await client.call("count", {"to": 1}, id=id, **TOKEN)

    assert (await client.listen("1-0").finished()).code == 400
    assert (await client.listen("6-0").finished()).code == 200
    await client.delete()
    assert http.app._legacy._budget.bytes == 0


async def test_size_of_kept_messages_is_limited(server, http, monkeypatch):
    monkeypatch.setattr(streams, "MAX_QUEUED", 2000)
    client = await http.initialize()
    for _ in range(100):
        server.resource_updated("notes://one")
        server.subscribers.list_changed("tools")

    assert http.app._legacy._budget.bytes <= 2000
    assert (await client.listen().message())["method"] == "notifications/tools/list_changed"


async def test_flood_in_one_session_drops_no_messages_of_other_sessions(server, http):
    http.app._legacy._budget.max_bytes = 3000
    one, other = await http.initialize(), await http.initialize()
    await one.call("count", {"to": 3}, **TOKEN)
    await other.call("count", {"to": 100}, **TOKEN)
    assert http.app._legacy._budget.bytes <= 3000

    again = await one.listen("1-0").finished()
    assert again.body.count(b"progressToken") == 3


async def test_messages_kept_for_all_clients_are_limited_and_the_oldest_make_room(http):
    http.app._legacy._budget.max_bytes = 3000
    client = await http.initialize()
    for id in range(1, 61):
        await client.call("count", {"to": 0}, id=id, **TOKEN)
        await client.call("count", {"to": 1}, id=-id, **TOKEN)
    assert http.app._legacy._budget.bytes <= 3000

    newest, oldest = await client.listen("60-0").finished(), await client.listen("1-0").finished()
    assert b'"id":-60' in newest.body
    assert oldest.body == b""


# Leaving early


async def test_close_stream_ends_the_response_and_the_client_resumes_it(http, gate):
    client = await http.initialize()
    reply = client.begin_call("release")
    assert await reply.part() == "id: 1-0\ndata: "
    assert await reply.part() == "retry: 500"
    await reply.complete()

    again = client.listen("1-0")
    assert await again.status() == 200
    gate.opened.set()
    assert (await again.message())["result"]["content"][0]["text"] == "released"
    assert (await again.finished()).ended


async def test_client_whose_stream_is_closed_midway_gets_the_rest(server, http):
    steps = asyncio.Queue()

    @server.tool
    async def work(context: Context) -> str:
        context.progress(1)
        await steps.get()
        context.close_stream(100)
        context.progress(2)
        await steps.get()
        return "worked"

    client = await http.initialize()
    reply = client.begin_call("work", **TOKEN)
    id, _ = await reply.event()
    steps.put_nowait(1)
    assert await reply.part() == "retry: 100"
    await reply.complete()
    again = client.listen(id)
    assert (await again.message())["params"]["progress"] == 2
    steps.put_nowait(2)
    assert (await again.message())["result"]["content"][0]["text"] == "worked"


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18"])
async def test_close_stream_does_nothing_for_older_clients(http, gate, revision):
    client = await http.initialize(revision)
    gate.opened.set()

    assert (await client.call("release")).text == "released"


async def test_close_stream_does_nothing_for_modern_clients(http, gate):
    gate.opened.set()

    assert (await http.call("release")).text == "released"


# Questions

ANSWER = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}


async def test_a_client_is_asked_on_the_stream_of_the_request(http):
    client = await http.initialize(capabilities={"sampling": {}})
    standalone, reply = client.listen(), client.begin_call("sample", id=5)
    question = await reply.message()
    assert question["method"] == "sampling/createMessage"
    assert (await client.answer(question["id"], ANSWER)).code == 202

    assert (await reply.message())["result"]["content"][0]["text"] == "the model said hi"
    assert b"sampling" not in standalone.body


async def test_answers_go_to_the_session_that_was_asked(http):
    clients = [await http.initialize(capabilities={"sampling": {}}) for _ in range(2)]
    replies = [each.begin_call("sample", id=5) for each in clients]
    asked = [(await each.message())["id"] for each in replies]
    for number, client in reversed(list(enumerate(clients))):
        content = {"type": "text", "text": f"to {number}"}
        await client.answer(asked[number], ANSWER | {"content": content})

    for number, reply in enumerate(replies):
        text = (await reply.message())["result"]["content"][0]["text"]
        assert text == f"the model said to {number}"


@each_row("error", [b'{"code":-1,"message":"no"}', b'{"code":"x"}', b"7", b"null"])
async def test_a_refused_question_is_an_error_of_the_tool(http, error):
    client = await http.initialize(capabilities={"sampling": {}})
    reply = client.begin_call("sample")
    id = (await reply.message())["id"]
    await client.post(b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (id, error)).finished()

    assert (await reply.message())["id"] == 1


async def test_answers_with_unknown_ids_leave_the_question_open(http):
    client = await http.initialize(capabilities={"sampling": {}})
    reply = client.begin_call("sample")
    id = (await reply.message())["id"]
    for wrong in (str(id), id + 100, True, -1):
        await client.answer(wrong, ANSWER)
    await client.answer(id, ANSWER)
    await client.answer(id, ANSWER | {"content": {"type": "text", "text": "late"}})

    assert (await reply.message())["result"]["content"][0]["text"] == "the model said hi"


async def test_a_question_times_out_and_is_cancelled(server, http, monkeypatch):
    monkeypatch.setattr("interlock.context.ASK_TIMEOUT", 0.01)
    client = await http.initialize(capabilities={"sampling": {}})
    reply = await client.call("sample")

    question, cancelled, answer = [await reply.message() for _ in range(3)]
    assert cancelled["params"] == {"requestId": question["id"]}
    assert answer["id"] == 1


async def test_client_without_streams_cannot_be_asked(http):
    client = await http.initialize(capabilities={"sampling": {}})
    client.headers["accept"] = "application/json"
    reply = await client.call("sample")

    assert "error" in reply.json or reply.json["result"]["isError"]


async def test_the_end_of_a_session_ends_its_questions(http):
    client = await http.initialize(capabilities={"sampling": {}})
    reply = client.begin_call("sample")
    await reply.message()
    await client.delete()

    await reply.finished()
    assert b'"id":1,"result"' not in reply.body


async def test_a_question_can_be_answered_after_reconnecting(http):
    client = await http.initialize(capabilities={"sampling": {}})
    reply = client.begin_call("sample")
    reply_id, question = await reply.event()
    await reply.leave()
    await client.answer(question["id"], ANSWER)

    again = client.listen(reply_id)
    assert (await again.message())["result"]["content"][0]["text"] == "the model said hi"


# Keeping alive


async def test_a_standalone_stream_is_kept_alive(make):
    http = make(keep_alive=0.01)
    client = await http.initialize("2025-06-18")
    standalone = client.listen()

    assert [await standalone.part() for _ in range(3)] == [": ", ": ", ": "]


@pytest.mark.usefixtures("nothing_is_left")
async def test_only_the_streams_that_are_silent_get_comments():
    keep_alive, parts = streams.KeepAlive(1_000.0), (list[bytes](), list[bytes]())

    def writer(sent: list[bytes]) -> streams.EventWriter:
        async def send(message: Message) -> None:
            sent.append(message.get("body", b""))

        return streams.EventWriter(send, (), keep_alive=keep_alive, dropped=Counter())

    silent, busy = map(writer, parts)
    async with asyncio.TaskGroup() as tasks:
        for each in (silent, busy):
            tasks.create_task(each.run())
        for tick in range(2 * streams._TICKS):
            if tick % 10 == 0:
                busy.put(b"event")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            keep_alive._tick()
        await asyncio.sleep(0)
        for each in (silent, busy):
            each.end()

    begin = [b"", b": \n\n"]  # the headers, and a comment that makes proxies send them on
    assert parts == ([*begin, b": \n\n", b": \n\n", b""], [b"", *[b"event"] * 3, b""])


async def test_a_silent_request_becomes_a_resumable_stream(make, gate):
    http = make(json_silence=0.01)
    client = await http.initialize()
    reply = client.begin_call("hold")
    assert await reply.part() == "id: 1-0\ndata: "
    gate.opened.set()

    assert (await reply.message())["id"] == 1


async def test_a_slow_reader_is_disconnected_and_resumes_at_a_recent_message(
    server, http, monkeypatch
):
    monkeypatch.setattr(streams, "MAX_QUEUED", 50_000)
    client = await http.initialize()
    standalone = client.listen()
    await standalone.status()
    standalone.stop_reading()
    for _ in range(5_000):
        server.subscribers.list_changed("tools")
        if not _ % 10:
            await asyncio.sleep(0)
    await standalone.finished()
    assert not standalone.ended

    assert http.app._legacy._budget.bytes <= 50_000
    again = client.listen("0-4990")
    assert (await again.event())[0] == "0-4991"


async def test_messages_sent_to_a_reader_are_not_counted_as_dropped(monkeypatch):
    monkeypatch.setattr(streams, "MAX_QUEUED", 1000)
    budget = streams.Budget(1, Counter())
    stream = streams.ReplayStream(1, budget)
    sent: asyncio.Queue = asyncio.Queue()
    outlet = streams.EventWriter(
        sent.put, (), keep_alive=streams.KeepAlive(10.0), dropped=budget.dropped
    )
    stream.attach(outlet, 0)
    for _ in range(50):
        stream.put(b"x" * 400)
        outlet._queue.clear()  # sent
        outlet._size = 0

    assert len(stream.frames) == 2
    assert budget.dropped == {}


def test_dropped_messages_leave_nothing_behind(monkeypatch):
    """R-118."""
    monkeypatch.setattr(streams, "MAX_QUEUED", 100)
    budget = streams.Budget(1, Counter())
    stream = streams.ReplayStream(1, budget)
    for _ in range(50):
        stream.put(b"x" * 40, is_answer=True)

    assert len(stream.frames) == 2
    assert budget.dropped == {"message for a client that is away": 48}
    assert stream._answers == {49, 50}
    assert not stream.needs_reader
