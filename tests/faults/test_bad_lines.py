"""Malformed and unexpected lines: R-05, R-06, R-07 (unreadable), R-08, R-09 (ids)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from interlock.client import Client
from interlock.errors import ParseError, RemoteProtocolError, RequestTimeout
from interlock.protocol.envelope import MAX_NODES
from interlock.types import ElicitResult
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("nothing_is_left")

Evil = Callable[..., Client]
GOOD = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"good"}]}}'


def around(members: str) -> str:
    """Return an answer whose result also has these members."""
    return f'{{"jsonrpc":"2.0","id":$ID,"result":{{"content":[],{members}}}}}'


def dropped(client: Client) -> dict[str, int]:
    return client.dropped


async def say(client: Client, *lines: Any, timeout: float = 10) -> str:
    """Call a tool during which the server sends these lines; return its text."""
    return (await client.call_tool("say", {"lines": list(lines)}, timeout=timeout)).text


async def test_garbage_lines_are_dropped_and_counted(evil: Evil):
    """R-07: garbage between two good replies."""
    garbage = [
        "hello, this is a banner",
        "\xff",
        "\xc3\x28 half a character",
        '{"jsonrpc":"2.0","id":',
        '{"jsonrpc":"1.0","id":424242,"result":{}}',
        '{"id":424242,"result":{}}',
        '{"jsonrpc":"2.0","id":007,"result":{}}',
        "[]",
        "null",
        "\x00",
        "\xef\xbb\xbf{}",
    ]
    async with evil() as client:
        assert (await client.call_tool("echo", {"text": "before"})).text == "before"
        assert await say(client, *garbage, GOOD) == "good"
        assert (await client.call_tool("echo", {"text": "after"})).text == "after"

        assert dropped(client) == {"garbage": len(garbage)}


async def test_blank_lines_and_carriage_returns_are_ignored(evil: Evil):
    async with evil() as client:
        assert await say(client, "", "\r", GOOD + "\r", "") == "good"
        assert await say(client, GOOD) == "good"
        assert dropped(client) == {}


async def test_garbage_does_not_fail_other_pending_calls(evil: Evil):
    async with evil() as client:
        noisy = client.call_tool("say", {"lines": [[["\xff\n", 100]]]}, timeout=0.3)
        texts = [client.call_tool("echo", {"text": str(each)}) for each in range(100)]
        noise, *results = await asyncio.gather(noisy, *texts, return_exceptions=True)

        assert isinstance(noise, RequestTimeout)
        assert [result.text for result in results] == [str(each) for each in range(100)]


@pytest.mark.parametrize("levels", [65, 1_000, 100_000, 2_000_000])
async def test_deeply_nested_answer_fails_only_its_own_call(evil: Evil, levels: int):
    """R-05: over 64 levels."""
    head, tail = around('"a":').split("}", 1)[0], "}}"
    async with evil() as client:
        used = process_time()
        bomb = [(head, 1), ("[", levels), ("]", levels), (tail, 1)]
        with pytest.raises(ParseError, match=r"over 64 levels deep|values"):
            await say(client, bomb)

        assert process_time() - used < 1
        assert await say(client, GOOD) == "good"


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ('"a":' + "9" * 21, "integer of over 20 digits"),
        ('"a":-' + "9" * 5000, "integer of over 20 digits"),
        ('"a":NaN', "not JSON"),
        ('"a":-Infinity', "not JSON"),
        ('"a":"\x01"', "not JSON"),
        ('"a":"\xff"', "not UTF-8"),
        ('"a":1,}', "not JSON"),
        ('"a":[' + "0," * MAX_NODES + "0]", "over 1,048,576 values"),
    ],
    ids=lambda value: value[:12] if len(value) > 30 else None,
)
async def test_invalid_json_with_a_readable_id_fails_only_its_own_call(
    evil: Evil, members: str, reason: str
):
    """R-05 and R-06, when the id can be read."""
    async with evil() as client:
        with pytest.raises(ParseError, match=reason):
            await say(client, around(members))

        assert await say(client, GOOD) == "good"


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":$ID,"result":{},"result":{"content":[]}}',
        '{"jsonrpc":"2.0","id":$ID,"id":1,"result":{}}',
        '{"jsonrpc":"2.0","id":$ID,"\\u0069d":1,"result":{}}',
    ],
)
async def test_an_envelope_member_given_twice_is_refused(evil: Evil, line: str):
    async with evil() as client:
        with pytest.raises(ParseError, match="given twice"):
            await say(client, line)


async def test_envelope_members_are_case_sensitive(evil: Evil):
    async with evil() as client:
        with pytest.raises(RemoteProtocolError):
            await say(client, '{"jsonrpc":"2.0","id":$ID,"Result":{"content":[]}}')
        assert await say(client, '{"jsonrpc":"2.0","ID":$ID,"result":{}}', GOOD) == "good"


@each_row(("line", "counted"), [(f"[{GOOD}]", "unexpected response"), (f"[[{GOOD}]]", "garbage")])
async def test_an_answer_in_a_list_is_read_but_a_list_in_a_list_is_garbage(
    evil: Evil, line: str, counted: str
):
    async with evil() as client:
        assert await say(client, line, GOOD) == "good"
        await say(client, GOOD)  # after this answer, both lines have been read
        assert dropped(client) == {counted: 1}


async def test_an_answer_after_its_call_was_cancelled_is_dropped(evil: Evil):
    """R-08 and R-24: the server receives the cancellation, but still answers."""
    async with evil() as client:
        call = asyncio.create_task(client.call_tool("mute"))
        await asyncio.sleep(0)
        hearing = asyncio.create_task(client.call_tool("hear", {"lines": []}))
        await asyncio.sleep(0)
        call.cancel()
        told = (await hearing).text
        late = '{"jsonrpc":"2.0","id":2,"result":{"content":[]}}'

        assert '"method":"notifications/cancelled","params":{"requestId":2' in told
        assert await say(client, late, GOOD) == "good"
        assert call.cancelled()
        assert dropped(client) == {"unexpected response": 1}


async def test_answers_in_any_order_reach_their_own_calls(evil: Evil):
    """R-09, for a client."""
    async with evil() as client:
        held = [asyncio.create_task(client.call_tool("mute")) for _ in range(3)]
        await asyncio.sleep(0)
        answers = [
            f'{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{id}"}}]}}}}'
            for id in (4, 2, 3)
        ]
        assert await say(client, *answers, GOOD) == "good"

        assert [(await each).text for each in held] == ["2", "3", "4"]


async def test_server_request_with_an_id_in_use_is_dropped(evil: Evil):
    """R-09: the server could not tell two answers with one id apart."""
    params = '{"message":"?","requestedSchema":{"type":"object","properties":{}}}'
    ask = f'{{"jsonrpc":"2.0","id":"same","method":"elicitation/create","params":{params}}}'

    async def decline(_: object) -> ElicitResult:
        await asyncio.sleep(0)  # so that the second one comes before this is answered
        return ElicitResult(action="decline")

    async with evil("revision=2025-11-25", elicitation=decline) as client:
        heard = (await client.call_tool("hear", {"lines": [f"{ask}\n{ask}\n"]})).text
        again = (await client.call_tool("hear", {"lines": [ask]})).text

        assert '"id":"same"' in heard
        assert '"id":"same"' in again
        assert dropped(client) == {"garbage": 1}
