"""The chat over a WebSocket, with a real client and a real server."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from interlock.web.chat import socket as socket_module
from interlock.web.chat import turn_log
from interlock.web.chat.turn import TurnLimits
from tests.web.conftest import Client, Event, Serve, check_numbers, kinds


def content_of(events: list[Event]) -> str:
    return "".join(event["content"] for event in events if event["type"] == "token")


async def closed_with(client: Client) -> int:
    with suppress(ConnectionClosed):
        while True:
            await client.next()
    code = client.connection.close_code
    assert code is not None
    return code


# Turns


async def test_a_turn_has_text_parallel_calls_and_an_answer(serve: Serve) -> None:
    async with serve(("Let me see.", 1, "bad"), "It is so.") as chat, chat.socket() as client:
        events = await client.ask(message_id="m-7")

    assert kinds(events)[:3] == ["started", "token", "tool_start"]
    check_numbers(events)
    assert content_of(events) == "Let me see.It is so."
    assert events[0]["message_id"] == "m-7"
    starts = {each["tool_call_id"]: each for each in events if each["type"] == "tool_start"}
    ends = {each["tool_call_id"]: each for each in events if each["type"] == "tool_complete"}
    assert json.loads(starts["call_1"]["tool_input"]) == {"x": 1}
    assert starts["call_1"]["tool_name"] == "kb:get"
    assert starts["call_1"]["timestamp"].endswith("Z")
    assert (ends["call_1"]["tool_result"], ends["call_1"]["outcome"]) == ("got 1", "ran")
    assert (ends["call_2"]["tool_result"], ends["call_2"]["is_error"]) == ("it is broken", True)
    assert ends["call_2"]["outcome"] == "failed"
    assert starts["call_1"]["call_id"] == ends["call_1"]["call_id"] != ""
    assert {each["turn_id"] for each in events} == {events[0]["turn_id"]}
    assert (events[-1]["content"], events[-1]["stop_reason"]) == ("It is so.", "end")


async def test_conversation_continues_when_its_id_is_sent(serve: Serve) -> None:
    async with serve("One.", "Two.") as chat, chat.socket() as client:
        id = (await client.ask())[0]["conversation_id"]
        events = await client.ask("more", conversation_id=id)
        await client.send(type="resume", conversation_id=id, turn_id="t-of-long-ago", after=0)
        snapshot = await client.next()

    assert events[0]["conversation_id"] == id
    assert snapshot["type"] == "snapshot"
    assert [(each["role"], each["content"]) for each in snapshot["messages"]] == [
        ("user", "go"),
        ("assistant", "One."),
        ("user", "more"),
        ("assistant", "Two."),
    ]


async def test_progress_of_a_tool_is_an_event(serve: Serve) -> None:
    async with serve(("", "slow"), "done") as chat, chat.socket() as client:
        events = await client.ask()

    progress = next(each for each in events if each["type"] == "tool_progress")
    assert (progress["tool_call_id"], progress["progress"]) == ("call_1", 1)
    assert (progress["total"], progress["message"]) == (2, "half")


async def test_a_long_result_is_cut_in_the_event(serve_agent: Serve) -> None:
    async with serve_agent(("", "x" * 20_000), "done") as chat, chat.socket() as client:
        events = await client.ask()

    end = next(each for each in events if each["type"] == "tool_complete")
    assert end["truncated"] is True
    assert end["tool_result"].endswith("[cut: the whole result has 20,004 characters]")


async def test_a_repeated_message_is_answered_and_not_run_again(serve: Serve) -> None:
    async with serve("One.", "Two.") as chat, chat.socket() as client:
        first = await client.ask(message_id="m-1")
        again = await client.ask(message_id="m-1")

    assert again[0]["turn_id"] == first[0]["turn_id"]
    assert again[-1]["content"] == "One."


# Stopping


# Approvals


# Coming back


@pytest.mark.slow("works through much data")
async def test_client_that_reconnects_gets_the_events_it_missed(serve: Serve) -> None:
    async with serve(("Wait.", "wait"), "It is so.") as chat:
        async with chat.socket() as client:
            await client.send(type="message", content="go")
            seen = await client.until("tool_start")
        await chat.desk.waiting.wait()
        chat.desk.go_on.set()
        async with chat.socket() as client:
            id, after = seen["conversation_id"], seen["seq"]
            await client.send(type="resume", conversation_id=id, after=after)
            await client.until("complete")
            assert client.events[1].get("from", client.events[1]["seq"]) == after + 1
            assert content_of(client.events) == "It is so."


async def test_a_client_gets_a_snapshot_if_the_events_are_gone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_log, "MAX_EVENTS", 3)
    async with serve("a b c d e f") as chat, chat.socket() as client:
        events = await client.ask()
        await client.send(type="resume", conversation_id=events[0]["conversation_id"], after=0)
        snapshot = await client.next()

    assert snapshot["type"] == "snapshot"
    assert snapshot["seq"] == events[-1]["seq"]
    assert snapshot["messages"][-1] == {"role": "assistant", "content": "a b c d e f"}


# Whose


async def test_a_conversation_of_another_user_is_not_found(serve: Serve) -> None:
    async with serve("One.", "Two.") as chat, chat.socket() as ann, chat.socket("bob-token") as bob:
        id = (await ann.ask())[0]["conversation_id"]
        answers = []
        for wanted in (id, "does-not-exist"):
            await bob.send(type="message", content="go", conversation_id=wanted)
            answers.append(await bob.next())
            await bob.send(type="resume", conversation_id=wanted)
            answers.append(await bob.next())
            await bob.send(type="stop", conversation_id=wanted)
            answers.append(await bob.next())

    assert {each["code"] for each in answers} == {"not_found"}


# Connecting


async def test_an_origin_that_is_not_allowed_is_refused(serve_agent: Serve) -> None:
    async with serve_agent() as chat:
        with pytest.raises(InvalidStatus) as refused:
            async with chat.socket(origin="https://evil.example"):
                pass
        assert refused.value.response.status_code == 403


async def test_the_subprotocol_is_chosen_if_it_is_offered(serve_agent: Serve) -> None:
    async with serve_agent() as chat, chat.socket(subprotocols=["interlock.chat.1"]) as client:
        assert client.connection.subprotocol == "interlock.chat.1"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ('{"type":"hello","token":"wrong"}', 4401),
        ('{"type":"hello"}', 4401),
        ('{"type":"message","content":"go"}', 4401),
        ("[1]", 4400),
        ("{", 4400),
        ("[" * 4_000, 4400),
        (b"\0", 4400),
        ('{"type":"hello","token":"%s"}' % ("x" * 5_000), 4413),
    ],
    ids=lambda given: str(given)[:30],
)
async def test_a_wrong_first_frame_closes_the_connection(
    serve_agent: Serve, frame: Any, code: int
) -> None:
    async with serve_agent() as chat, chat.socket(None) as client:
        await client.connection.send(frame)
        assert await closed_with(client) == code


async def test_a_late_hello_closes_the_connection(
    serve_agent: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_module, "HELLO_SECONDS", 0.05)
    async with serve_agent() as chat, chat.socket(None) as client:
        assert await closed_with(client) == 4401


async def test_a_frame_that_is_too_large_closes_the_connection(serve_agent: Serve) -> None:
    async with serve_agent() as chat, chat.socket() as client:
        await client.send(type="message", content="x" * 70_000)
        assert await closed_with(client) == 4413


async def test_an_unknown_or_wrong_message_is_answered(serve_agent: Serve) -> None:
    async with serve_agent() as chat, chat.socket() as client:
        for frame in ({"type": "dance"}, {"type": "message", "content": 3}, {"type": "message"}):
            await client.send(**frame)
            assert (await client.next())["code"] == "bad_message"


async def test_a_revoked_token_ends_its_connections(
    serve_agent: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_module, "CHECK_SECONDS", 0.05)
    async with serve_agent() as chat, chat.socket() as ann, chat.socket("bob-token") as bob:
        del chat.keys.users["ann-token"]
        assert await closed_with(ann) == 4401
        await bob.send(type="dance")
        assert (await bob.next())["type"] == "error"


async def test_a_client_that_disconnects_leaves_no_error(
    serve_agent: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_agent("a", "b") as chat:
        for _ in range(2):
            async with chat.socket() as client:
                await client.ask()

    assert caplog.messages == []


async def test_too_many_connections_of_a_user_are_refused(serve_agent: Serve) -> None:
    limits = TurnLimits(sockets=1)
    async with serve_agent(limits=limits) as chat, chat.socket(), chat.socket(None) as second:
        await second.send(type="hello", token="ann-token")
        assert await closed_with(second) == 4429


async def test_the_end_of_the_server_ends_turns_and_connections(serve: Serve) -> None:
    async with serve(("", "wait")) as chat, chat.socket() as client:
        await client.send(type="message", content="go")
        await client.until("tool_start")
        await chat.desk.waiting.wait()
        await chat.app.close()
        assert (await client.until("error"))["code"] == "interrupted"
        assert await closed_with(client) in (1001, 1012)


@pytest.mark.slow("works through much data")
async def test_a_slow_reader_is_disconnected_and_the_turn_continues(
    serve_agent: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_module, "MAX_QUEUE", 1_000)
    monkeypatch.setattr(socket_module, "SLOW_SECONDS", 0.05)
    script = [("", *["y" * 15_000] * 40) for _ in range(9)]
    async with serve_agent(*script, "done") as chat, chat.socket(max_queue=1) as client:
        await client.send(type="message", content="go")
        started = await client.next()
        turn = chat.app.turns.find("/ann", started["conversation_id"])
        ended = asyncio.Event()
        turn.follow(lambda turn, _: ended.set() if turn.has_ended else None)
        await ended.wait()  # the client reads nothing meanwhile
        assert await closed_with(client) == 4408
