"""Requests that a server answers with questions; `test_tasks` has those that it runs as tasks."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import interlock
from interlock.client import Client
from interlock.client.interactive import MAX_ROUNDS
from interlock.errors import CapabilityError, RemoteProtocolError
from interlock.types import ClientCapabilities, ElicitParams, ElicitResult
from tests.client.scripted import client_of
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, MODERN, Answer, Json, ScriptedServer, text

OURS = str(Path(interlock.__file__).parent)

Call = Callable[[Client], Awaitable[Any]]


def asking(*rounds: Json | None) -> tuple[dict[str, Answer], list[Json]]:
    """Make answers that ask `rounds`, one after the other, before the call succeeds."""
    left = list(rounds)
    retries: list[Json] = []

    def answer(params: Json) -> Json:
        retries.append({key: value for key, value in params.items() if key != "_meta"})
        question = left.pop(0) if left else None
        if question is None:
            return {**text("done"), "messages": [], "contents": [{"uri": "a:b", "text": "x"}]}
        return {"resultType": "input_required", **question}

    return dict.fromkeys(("tools/call", "prompts/get", "resources/read"), answer), retries


def elicitation(message: str) -> Json:
    params = {"mode": "form", "message": message, "requestedSchema": {"type": "object"}}
    return {"method": "elicitation/create", "params": params}


async def accept(asked: ElicitParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"to": asked.message})


@each_row(
    ("call", "params"),
    [
        (lambda c: c.call_tool("x", {"a": 1}), {"name": "x", "arguments": {"a": 1}}),
        (lambda c: c.get_prompt("p", {"a": "1"}), {"name": "p", "arguments": {"a": "1"}}),
        (lambda c: c.read_resource("a:b"), {"uri": "a:b"}),
    ],
    ids=["tool", "prompt", "resource"],
)
async def test_questions_are_answered_and_the_request_is_repeated(call: Call, params: Json):
    answers, retries = asking(
        {"inputRequests": {"k": elicitation("one")}, "requestState": "state-1"},
        {"inputRequests": {"k": elicitation("two"), "r": {"method": "roots/list"}}},
    )
    server = ScriptedServer(MODERN, answers)
    async with client_of(server, elicitation=accept, roots=["file:///r"]) as client:
        await call(client)

    def answer(message: str) -> Json:
        return {"action": "accept", "content": {"to": message}}

    assert retries == [
        params,
        {**params, "inputResponses": {"k": answer("one")}, "requestState": "state-1"},
        {**params, "inputResponses": {"k": answer("two"), "r": {"roots": [{"uri": "file:///r"}]}}},
    ]
    ids = [each["id"] for each in server.received]
    assert len(set(ids)) == len(ids)


async def test_state_without_questions_is_returned_at_once():
    answers, retries = asking({"requestState": ""}, {"requestState": "b"})
    async with client_of(ScriptedServer(MODERN, answers)) as client:
        assert (await client.call_tool("x")).text == "done"

    assert retries[1:] == [{"name": "x", "requestState": ""}, {"name": "x", "requestState": "b"}]


async def test_declined_elicitation_is_sent_to_the_server():
    async def decline(_: ElicitParams) -> ElicitResult:
        return ElicitResult(action="decline")

    answers, retries = asking({"inputRequests": {"k": elicitation("may I?")}})
    async with client_of(ScriptedServer(MODERN, answers), elicitation=decline) as client:
        await client.call_tool("x")

    assert retries[1]["inputResponses"] == {"k": {"action": "decline"}}


async def test_unanswerable_question_is_raised_and_the_request_not_repeated():
    answers, retries = asking({"inputRequests": {"k": elicitation("one")}})
    async with client_of(ScriptedServer(MODERN, answers)) as client:
        with pytest.raises(CapabilityError, match="has no handler for 'elicitation/create'"):
            await client.call_tool("x")

    assert len(retries) == 1


@each_row(
    ("result", "problem"),
    [
        ({}, "input_required has neither inputRequests nor requestState"),
        ({"inputRequests": {}}, "input_required has neither"),
        ({"inputRequests": {"k": {}}}, "malformed tools/call result"),
        ({"inputRequests": []}, "input_required has neither"),
        ({"inputRequests": [1]}, "malformed tools/call result"),
        ({"inputRequests": {"k": {"method": "elicitation/create"}}}, "malformed elicitation"),
        ({"resultType": "task", "taskId": "1"}, "malformed task"),
        ({"resultType": ""}, "unknown resultType ''"),
    ],
)
async def test_malformed_questions_are_protocol_errors(result: Json, problem: str):
    answers, retries = asking(result)
    async with client_of(ScriptedServer(MODERN, answers), elicitation=accept) as client:
        with pytest.raises(RemoteProtocolError, match=problem):
            await client.call_tool("x")

    assert len(retries) == 1


async def test_server_may_ask_in_ten_rounds():
    answers, retries = asking(*[{"requestState": str(n)} for n in range(MAX_ROUNDS)])
    async with client_of(ScriptedServer(MODERN, answers)) as client:
        assert (await client.call_tool("x")).text == "done"
    assert len(retries) == MAX_ROUNDS + 1


async def test_eleventh_round_of_questions_is_an_error():
    answers, retries = asking(*[{"requestState": str(n)} for n in range(99)])
    async with client_of(ScriptedServer(MODERN, answers)) as client:
        with pytest.raises(RemoteProtocolError, match="still asks for input after 10 rounds"):
            await client.call_tool("x")
    assert len(retries) == MAX_ROUNDS + 1


async def test_cancelled_call_cancels_its_question():
    asked, withdrawn = asyncio.Event(), asyncio.Event()

    async def wait_for_the_person(_: ElicitParams) -> ElicitResult:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return ElicitResult(action="cancel")

    answers, retries = asking({"inputRequests": {"k": elicitation("one")}})
    server = ScriptedServer(MODERN, answers)
    async with client_of(server, elicitation=wait_for_the_person) as client:
        call = asyncio.create_task(client.call_tool("x"))
        await asked.wait()
        call.cancel()
        await asyncio.wait({call})

        assert withdrawn.is_set()
        assert len(retries) == 1


# The path of a forwarded call


@each_row(("revision", "functions"), [(LEGACY, 19), (MODERN, 22)])
async def test_forwarded_call_passes_through_few_functions(revision: str, functions: int):
    passed: list[str] = []

    def note_call(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            passed.append(frame.f_code.co_qualname)

    async def forward() -> None:
        await client.forward(
            "tools/call",
            b'{"name":"x","arguments":{}}',
            name="x",
            capabilities=ClientCapabilities(elicitation={}),  # each request decodes them again
        )

    async with client_of(ScriptedServer(revision, {"tools/call": text("done")})) as client:
        await forward()  # what is done once
        sys.setprofile(note_call)
        try:
            await forward()
        finally:
            sys.setprofile(None)

    assert len(passed) <= functions, passed
