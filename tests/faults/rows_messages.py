"""Faults of a server's messages, on every transport."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from interlock.client import Client
from interlock.errors import (
    ConnectionClosed,
    HttpError,
    MessageTooLarge,
    ParseError,
    RemoteProtocolError,
    RequestTimeout,
)
from interlock.protocol.core import MAX_PROGRESS
from interlock.protocol.envelope import MAX_NODES
from tests.faults.ground import DEFAULTS, Ground, all_of, good, until
from tests.faults.matrix import ALL, HTTP, JSON, MEMORY, MESSAGES, OLDEST, SESSION, SSE, STDIO, row

GOOD = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"good"}]}}'
GARBAGE = ["hello, this is a banner", "\xff", '{"jsonrpc":"2.0","id":', "[]", "null", "\x00"]


async def say(client: Client, *lines: Any, **options: Any) -> str:
    """Call a tool during which the server sends these lines; return its text."""
    return (await client.call_tool("say", {"lines": list(lines)}, **options)).text


def dropped(ground: Ground) -> Counter[str]:
    """Return how many messages the first client dropped, by reason."""
    return Counter(ground.clients[0].dropped)


def with_member(members: str) -> str:
    """Return an answer whose result also has these members."""
    return f'{{"jsonrpc":"2.0","id":$ID,"result":{{"content":[],{members}}}}}'


# Time


@row("Server hangs", "RequestTimeout at the deadline (0.2 s); others go on", *ALL, within=0.7)
async def hangs(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(RequestTimeout, r"no answer to tools/call within 0\.2 s"):
        hanging = asyncio.create_task(client.call_tool("mute", timeout=0.2))
        for _ in range(5):
            await good(client)
        if hanging.done():
            ground.keep(math.inf, "others had to wait")
        await hanging
    await good(client)
    await wait_until_notified(ground, client)


async def wait_until_notified(ground: Ground, client: Client) -> None:
    """Wait until the server has been notified of the cancelled call."""
    if ground.transport == STDIO:  # the server reports what it received
        hearing = asyncio.create_task(client.call_tool("hear", {"lines": []}))
        (end,) = await all_of(client.call_tool("mute", timeout=0.05))
        assert isinstance(end, RequestTimeout)
        heard = json.loads((await hearing).text)
        assert (heard["method"], heard["params"]["reason"]) == (
            "notifications/cancelled",
            "timeout",
        )
        return
    asked = next(each for each in ground.server.asked if "mute" in str(each.message))
    if ground.transport in (JSON, SSE):  # a request is cancelled by closing its connection
        await until(asked.gone.is_set)
    else:
        told = {"requestId": asked.message["id"], "reason": "timeout"}
        await until(lambda: told in [each.message.get("params") for each in ground.server.asked])


@row("Server hangs: at the start", "RequestTimeout at the deadline (0.3 s)", *ALL, within=0.8)
async def hangs_at_the_start(ground: Ground) -> None:
    client = await ground.client("server/discover=mute", "initialize=mute", connect_timeout=0.3)
    if ground.transport == OLDEST:
        ground.http.tell("GET", "mute")
    with ground.promise(RequestTimeout, r"no answer .*within 0\.\d+ s"):
        await client.open()


@row("Server hangs: in a list", "RequestTimeout at the deadline (0.3 s)", *ALL, within=0.8)
async def hangs_in_a_list(ground: Ground) -> None:
    client = await ground.open("tools/list=mute", timeout=0.3)
    with ground.promise(RequestTimeout, r"tools/list within 0\.3 s"), limited_lists(0.3):
        await client.list_tools()
    await good(client)


@row(
    "Server floods progress",
    "RequestTimeout at the hard deadline (0.4 s)",
    *MESSAGES,
    within=0.9,
)
async def floods_progress(ground: Ground) -> None:
    client = await ground.open(hard_timeout=0.4, timeout=100)
    told: list[object] = []
    with ground.promise(RequestTimeout, "no answer to tools/call within the hard limit"):
        await client.call_tool("progress", progress=told.append)
    assert len(told) <= MAX_PROGRESS
    await good(client)


@row("Slow drip", "RequestTimeout at the deadline (0.2 s)", STDIO, *HTTP, within=0.7)
async def drips(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(RequestTimeout, r"no answer to tools/call within 0\.2 s"):
        await client.call_tool("drip", {"every": 0.05}, timeout=0.2)
    if ground.transport in (STDIO, OLDEST):  # half a line is left, which costs the next answer
        await all_of(client.call_tool("echo", {"text": ""}, timeout=0.1))
    await good(client)


@row(
    "Server hangs: with the times that nobody has chosen",
    "10 s for the start, 120 s without progress, 600 s in all",
    MEMORY,
    JSON,
    within=605.0,
)
async def hangs_for_long(ground: Ground) -> None:
    client = await ground.client(**DEFAULTS)
    ground.server.tell("server/discover", "mute")
    ground.server.tell("initialize", "mute")
    with ground.flying_time():
        with ground.promise(RequestTimeout, r"within \d+ s"):
            await client.open()
        assert 10 <= ground.kept[-1][0] < 100
        ground.server.behave()
        await ground.stack.enter_async_context(client)
        with ground.promise(RequestTimeout, "within 120 s"):
            await client.call_tool("mute")
        assert 120 <= ground.kept[-1][0] < 240
        if ground.transport == MEMORY:
            with ground.promise(RequestTimeout, "within the hard limit"):
                await client.call_tool("progress", {"every": 50}, progress=lambda _: None)
            assert 600 <= ground.kept[-1][0] < 1_200


@row(
    "Server exits mid-call: one in this program",
    "ConnectionClosed, on all its calls",
    MEMORY,
    within=0.1,
)
async def leaves(ground: Ground) -> None:
    client = await ground.open()
    waiting = [asyncio.create_task(client.call_tool("mute")) for _ in range(10)]
    await asyncio.sleep(0)
    with ground.promise(ConnectionClosed, "the other end closed the connection"):
        errors = await all_of(client.call_tool("leave"), *waiting)
        assert {type(error) for error in errors} == {ConnectionClosed}
        raise errors[0]
    assert isinstance((await all_of(good(client)))[0], ConnectionClosed)


# Lines that are no messages


@row(
    "Garbage / invalid UTF-8 line",
    "the call is answered, each line is counted",
    *(STDIO, MEMORY, OLDEST),
    within=0.5,
)
async def says_garbage(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(outcome="answered"):
        assert await say(client, *GARBAGE, GOOD) == "good"
    await good(client)
    assert dropped(ground) == {"garbage": len(GARBAGE)}


@row(
    "Garbage / invalid UTF-8 line: as the answer to a request",
    "ParseError, for that call only",
    *(JSON, SSE, SESSION),
    within=0.5,
)
async def answers_garbage(ground: Ground) -> None:
    client = await ground.open()
    for garbage in GARBAGE:
        with ground.promise(ParseError):
            _, error, _ = await all_of(good(client), say(client, garbage), good(client))
            raise error
    await good(client)
    assert dropped(ground) == {"garbage": len(GARBAGE)}


@row(
    "Garbage / invalid UTF-8 line: over 4 MiB a minute",
    "RemoteProtocolError, the connection is given up",
    *(STDIO, MEMORY, OLDEST),
    within=0.5,
)
async def says_nothing_but_garbage(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(RemoteProtocolError, "over 4 MiB of malformed messages within 60 s"):
        await say(client, *["\xff" * 50_000] * 101)


@row(
    "Depth bomb / huge ints / NaN",
    "ParseError, for that call only",
    *ALL,
    within=0.2,
)
async def bombs(ground: Ground) -> None:
    client = await ground.open()
    head, tail = with_member('"a":').removesuffix("}}"), "}}"
    depths = (63, 1_000, 100_000, 2_000_000)  # and two around it
    deep = ([(head, 1), ("[", each), ("]", each), (tail, 1)] for each in depths)
    wide = [(head + "[", 1), ("0,", MAX_NODES), ("0]" + tail, 1)]
    numbers = (with_member(f'"a":{number}') for number in ("9" * 21, "NaN", "-Infinity"))
    twice = GOOD.replace('"id":$ID', '"id":$ID,"id":1')
    bombs = (*deep, wide, *numbers, twice)
    for bomb in bombs:
        with ground.promise(ParseError):
            await say(client, bomb)
        await good(client)
    assert dropped(ground) == {"garbage": len(bombs)}


# Size


@row(
    "100 MB line / endless line: a message over the limit",
    "MessageTooLarge, with size or limit",
    *ALL,
    within=1.0,
)
async def says_too_much(ground: Ground) -> None:
    options = {} if ground.transport == MEMORY else {"max_frame_bytes": 2**20}
    client = await ground.open(**options)
    size = 16 * 2**20 if ground.transport == MEMORY else 2**20
    with ground.promise(MessageTooLarge, "MiB"):
        await client.call_tool("frame", {"size": size + 1})


@row("100 MB line / endless line: up to the limit", "it is taken", *ALL, within=3.0)
async def says_as_much_as_it_may(ground: Ground) -> None:
    client = await ground.open()
    for size in (63 * 1024, 64 * 1024, 65 * 1024, 2**20, 16 * 2**20):
        with ground.promise(outcome="up to 16 MiB"):
            assert len((await client.call_tool("frame", {"size": size})).text) > size - 200


# Ids


@row("Duplicate reply", "the first wins, the second is counted", *MESSAGES, within=0.5)
async def answers_twice(ground: Ground) -> None:
    client = await ground.open()
    with ground.promise(outcome="the first one's result"):
        assert await say(client, GOOD, GOOD.replace("good", "second")) == "good"
        await good(client)
    assert dropped(ground) == {"unexpected response": 1}


@row(
    "Unknown id / wrong id type",
    "the call waits on, and gets its own answer",
    *MESSAGES,
    within=0.5,
)
async def answers_others(ground: Ground) -> None:
    client = await ground.open()
    wrong = [GOOD.replace("$ID", id) for id in ('"0$ID"', "999", "-1", '"999"')]
    with ground.promise(outcome="answered"):
        assert await say(client, *wrong, GOOD) == "good"
    assert dropped(ground).total() == len(wrong)


@row(
    "Unknown id / wrong id type: none that JSON-RPC allows",
    "the call waits on; or ParseError where nothing else can be meant",
    *MESSAGES,
    within=0.5,
)
async def answers_an_invalid_id(ground: Ground) -> None:
    client = await ground.open()
    for id in ("$ID.5", "true", "[$ID]"):
        wrong = GOOD.replace("$ID", id)
        if ground.transport in (SSE, SESSION):
            with ground.promise(ParseError, "not a JSON-RPC message"):
                await say(client, wrong, GOOD)
        else:
            with ground.promise(outcome="answered"):
                assert await say(client, wrong, GOOD) == "good"
    assert dropped(ground)["garbage"] == 3


@row("Unknown id / wrong id type: and no other answer", "HttpError", JSON, within=0.5)
async def answers_only_others(ground: Ground) -> None:
    client = await ground.open()
    for id in ('"0$ID"', "999"):
        with ground.promise(HttpError, "its JSON does not answer the request"):
            await say(client, GOOD.replace("$ID", id))
    await good(client)


@row(
    "Unknown id / wrong id type: answers on another call's stream",
    "each call gets what came for it on its own request",
    *(SSE, SESSION),
    within=0.5,
)
async def crosses_answers(ground: Ground) -> None:
    client = await ground.open()
    held = asyncio.create_task(client.call_tool("mute"))
    await ground.http.heard("tools/call")
    victim = ground.http.asked[-1].id
    with ground.promise(outcome="not mixed up"):
        assert await say(client, GOOD.replace("$ID", victim), GOOD) == "good"
    held.cancel()
    assert isinstance((await all_of(held))[0], asyncio.CancelledError)
    assert dropped(ground)["response to another request"] == 1


# Types


@row("Wrong types in result", "RemoteProtocolError, for that call only", *ALL, within=0.5)
async def has_wrong_types(ground: Ground) -> None:
    client = await ground.open()
    results = ("3", '"x"', "[]", '{"content":3}', '{"content":[{"type":5}]}')
    for result in (*results, '{"content":[],"resultType":"?"}'):
        with ground.promise(RemoteProtocolError):
            await say(client, f'{{"jsonrpc":"2.0","id":$ID,"result":{result}}}')
        await good(client)
    for error in ("3", '{"code":"x"}', '{"code":1,"message":{}}'):
        with ground.promise(RemoteProtocolError):
            await say(client, f'{{"jsonrpc":"2.0","id":$ID,"error":{error}}}')


@row("Endless pagination", "the first 100 pages, and a word that there are more", *ALL, within=2.0)
async def has_endless_pages(ground: Ground) -> None:
    client = await ground.open("pages=endless")
    with ground.promise(outcome="100 tools, marked as cut"):
        tools = await client.list_tools()
    assert len(tools) == 100
    assert "100 pages" in tools.truncated


# Cancelling


@row("Cancel races with result", "exactly one outcome, a late one is dropped", *ALL, within=5.0)
async def races(ground: Ground) -> None:
    client = await ground.open()
    chance = random.Random(24)
    ends: Counter[str] = Counter()
    with ground.promise(outcome="200 calls, each ended once"):
        for _ in range(200):
            call = asyncio.create_task(client.call_tool("echo", {"text": "a"}))
            for _ in range(chance.randint(0, 12)):
                await asyncio.sleep(0)
            call.cancel()
            (end,) = await all_of(call)
            ends[type(end).__name__] += 1
    assert ends.keys() <= {"CancelledError", "CallToolResult"}
    assert ends["CancelledError"] > 20
    await good(client)


def limited_lists(seconds: float) -> AbstractContextManager[object]:
    """Limit the time for lists in here."""
    return mock.patch("interlock.client.client.LIST_TIMEOUT", seconds)
