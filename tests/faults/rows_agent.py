"""Faults of model providers and of models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any, NamedTuple

from interlock.agent import Agent
from interlock.agent.tool_calls import MAX_CALLS
from interlock.errors import (
    InterlockError,
    ModelInterrupted,
    ModelOverloaded,
    ModelRefused,
    ModelUnavailable,
    StepLimit,
)
from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from interlock.models import Model
from interlock.models.answer_size import MAX_ANSWER_BYTES
from interlock.models.anthropic import AnthropicModel
from interlock.models.openai import OpenAIModel
from interlock.models.scripted import ScriptedModel
from interlock.toolbox import Toolbox
from tests.faults.ground import CANARY, Ground
from tests.faults.matrix import row
from tests.models import wire_anthropic, wire_openai
from tests.models.wire_http import Answer, WireServer, failure, page
from tests.servers.evil_memory import EvilMemory

ANTHROPIC, OPENAI, ANY = "Anthropic", "OpenAI", "any model"
BOTH = (ANTHROPIC, OPENAI)


class Provider(NamedTuple):
    """A provider of models on loopback.

    Attributes:
        server: Plays its script, one answer per request.
        model: Its model, with a secret API key.
        says: An answer of text.
        calls: Returns an answer that calls `evil:echo` with these arguments.
        begins: An answer that is cut off after its first word.
    """

    server: WireServer
    model: Model
    says: Answer
    calls: Callable[[str], Answer]
    begins: Answer


async def provider(ground: Ground) -> Provider:
    """Start the provider of this ground's transport."""
    wire: Any = wire_anthropic if ground.transport == ANTHROPIC else wire_openai
    server: WireServer = wire.server()
    await server.start()
    ground.stack.push_async_callback(server.stop)
    model: Model
    if ground.transport == ANTHROPIC:
        model = AnthropicModel("m", api_key=CANARY, base_url=server.root)
        ground.stack.push_async_callback(model.close)
        started = [wire.start(), *wire.text(0, "It is")[:-1]]
        begins = wire.events(*started, cut=True)
    else:
        model = OpenAIModel("m", api_key=CANARY, base_url=f"{server.root}/v1")
        ground.stack.push_async_callback(model.close)
        begins = wire.chunks(wire.chunk(content="It is"), done=False, cut=True)
    calls = _anthropic_calls if ground.transport == ANTHROPIC else _openai_calls
    return Provider(server, model, wire.says("Good day."), calls, begins)


def _anthropic_calls(arguments: str) -> Answer:
    wire = wire_anthropic
    call = wire.tool_use(0, "call_1", "evil__echo", arguments)
    return wire.events(wire.start(), *call, *wire.stop("tool_use"))


def _openai_calls(arguments: str) -> Answer:
    wire = wire_openai
    call = wire.fragment(0, arguments, id="call_1", name="evil__echo")
    return wire.chunks(wire.chunk(role="assistant"), call, wire.chunk("tool_calls"))


class Turn:
    """One turn of an agent with a tool, with its conversation and the tool's calls."""

    def __init__(self, ground: Ground, model: Model) -> None:
        self._ground = ground
        self._model = model
        self.messages: list[Message] = [UserMessage("What time is it?")]
        self.server = EvilMemory()

    async def take(self) -> AssistantMessage:
        """Run the agent."""
        async with Toolbox({"evil": self.server}, environ={}) as toolbox:
            return await Agent(self._model, toolbox).complete(self.messages)

    @property
    def calls(self) -> int:
        """How many tool calls reached the server."""
        return sum(each.method == "tools/call" for each in self.server.asked)

    def check_valid(self) -> None:
        """Assert that each call has its result right after it and in order."""
        expected: list[str] = []
        for message in self.messages:
            if isinstance(message, ToolMessage):
                assert expected.pop(0) == message.tool_call_id
            else:
                assert expected == []
            if isinstance(message, AssistantMessage):
                expected = [call.id for call in message.tool_calls]
        assert expected == []


async def fails(
    ground: Ground, kind: type[InterlockError], *answers: Answer, waits: bool = False
) -> None:
    """Fail before and after a tool call; assert that the conversation stays valid."""
    given = await provider(ground)
    for before in ([], [given.calls('{"text":"noon"}')]):
        given.server.script = [*before, *answers]
        turn = Turn(ground, given.model)
        passing = ground.flying_time(grace=0.05) if waits else nullcontext()
        with passing, ground.promise(kind):
            await turn.take()
        turn.check_valid()
        assert turn.calls == len(before)
        given.server.script = [given.says]
        assert (await turn.take()).content == "Good day."


LATER = {"retry-after": "3600", "content-type": "application/json"}
OVERLOADED = Answer(b'{"error":{"message":"slow down","type":"x"}}', 429, LATER)


@row(
    "Model provider down / cut / nonsense",
    "ModelUnavailable; the conversation is valid and goes on",
    *BOTH,
    within=30.0,
)
async def is_down(ground: Ground) -> None:
    given = await provider(ground)
    turn = Turn(ground, given.model)
    await given.server.stop()
    with ground.flying_time(grace=0.05), ground.promise(ModelUnavailable, r"127\.0\.0\.1"):
        await turn.take()
    turn.check_valid()


@row(
    "Model provider down / cut / nonsense: 500 and 502",
    "two retries, then ModelUnavailable",
    *BOTH,
    within=30.0,
)
async def has_an_error(ground: Ground) -> None:
    await fails(ground, ModelUnavailable, failure(500, {}), page(502), page(502), waits=True)


@row(
    "Model provider down / cut / nonsense: 429",
    "ModelOverloaded with the time of the next retry, without waiting",
    *BOTH,
    within=1.0,
)
async def is_overloaded(ground: Ground) -> None:
    await fails(ground, ModelOverloaded, OVERLOADED)


@row(
    "Model provider down / cut / nonsense: 401",
    "ModelRefused, without the key",
    *BOTH,
    within=1.0,
)
async def refuses_the_key(ground: Ground) -> None:
    message = {"error": {"message": f"wrong key {CANARY}", "type": "authentication_error"}}
    await fails(ground, ModelRefused, failure(401, message))


@row(
    "Model provider down / cut / nonsense: a stream that is cut",
    "ModelInterrupted; no tool runs twice",
    *BOTH,
    within=1.0,
)
async def cuts_its_stream(ground: Ground) -> None:
    given = await provider(ground)
    for before in ([], [given.calls('{"text":"noon"}')]):
        given.server.script = [*before, given.begins]
        turn = Turn(ground, given.model)
        with ground.promise(ModelInterrupted, "cut off"):
            await turn.take()
        turn.check_valid()
        assert turn.calls == len(before)


@row(
    "Model provider down / cut / nonsense: an answer that stops arriving",
    "ModelInterrupted after ten minutes without data, without a retry",
    *BOTH,
    within=620.0,
)
async def stops_sending(ground: Ground) -> None:
    given = await provider(ground)
    for hanging in (Answer(b"", hangs=True), given.begins._replace(cut=False, hangs=True)):
        given.server.script = [hanging]
        turn = Turn(ground, given.model)
        with ground.flying_time(grace=0.05), ground.promise(ModelInterrupted):
            await turn.take()
        turn.check_valid()


@row(
    "Model provider down / cut / nonsense: nonsense in its stream",
    "ModelInterrupted",
    *BOTH,
    within=1.0,
)
async def sends_nonsense(ground: Ground) -> None:
    given = await provider(ground)
    for nonsense in (b"data: {not json\n\n", b"data: 5\n\n", page(200).body, b""):
        given.server.script = [Answer(nonsense)]
        turn = Turn(ground, given.model)
        with ground.promise(ModelInterrupted):
            await turn.take()
        turn.check_valid()


@row(
    "Model provider down / cut / nonsense: broken arguments of a call",
    "an error result for the model; the tool does not run",
    *BOTH,
    within=1.0,
)
async def breaks_its_arguments(ground: Ground) -> None:
    given = await provider(ground)
    given.server.script = [given.calls('{"text": "no'), given.says]
    turn = Turn(ground, given.model)
    with ground.promise(outcome="an error result, then an answer"):
        assert (await turn.take()).content == "Good day."
    turn.check_valid()
    assert turn.calls == 0


@row(
    "Model provider down / cut / nonsense: a model that never stops calling",
    "StepLimit after 10 rounds",
    ANY,
    within=1.0,
)
async def never_stops(ground: Ground) -> None:
    calls = [[ToolCall(str(n), "evil__echo", {"text": "again"})] for n in range(20)]
    turn = Turn(ground, ScriptedModel(calls))
    with ground.promise(StepLimit, "after 10 rounds"):
        await turn.take()
    turn.check_valid()
    assert turn.calls == 10


@row(
    "Model provider down / cut / nonsense: an answer over 4 MiB",
    "ModelInterrupted; nothing of it is kept",
    *BOTH,
    within=5.0,
)
async def sends_too_much(ground: Ground) -> None:
    given = await provider(ground)
    answer = given.calls('{"text": "' + "x" * MAX_ANSWER_BYTES + '"}')
    given.server.script = [answer._replace(slice=1024 * 1024)]
    turn = Turn(ground, given.model)
    with ground.promise(ModelInterrupted, "too long"):
        await turn.take()
    assert turn.messages == [UserMessage("What time is it?")]
    assert turn.calls == 0


@row(
    "Model provider down / cut / nonsense: 2,000 tool calls in an answer",
    "64 run; the others are error results for the model",
    ANY,
    within=5.0,
)
async def calls_too_often(ground: Ground) -> None:
    calls = [ToolCall(str(n), "evil__echo", {"text": "a"}) for n in range(2_000)]
    turn = Turn(ground, ScriptedModel([calls, "Done."]))
    with ground.promise(outcome="64 results, 1,936 error results, then an answer"):
        assert (await turn.take()).content == "Done."
    turn.check_valid()
    assert turn.calls == MAX_CALLS


@row(
    "Model provider down / cut / nonsense: stopped at any moment",
    "the conversation is valid: each call has one result",
    ANY,
    within=5.0,
)
async def is_stopped(ground: Ground) -> None:
    calls = [ToolCall(str(n), "evil__echo", {"text": "a"}) for n in range(3)]
    with ground.promise(outcome="valid at each of 60 turns of the loop"):
        for turns in range(60):
            turn = Turn(ground, ScriptedModel([calls, "Done."]))
            taking = asyncio.create_task(turn.take())
            for _ in range(turns):
                await asyncio.sleep(0)
            taking.cancel()
            with suppress(asyncio.CancelledError):
                await taking
            turn.check_valid()


@row(
    "Server exits mid-call: and other failed calls of a model",
    "an error result for each; the turn goes on",
    ANY,
    within=1.0,
)
async def has_tools_that_fail(ground: Ground) -> None:
    calls = [
        ToolCall("1", "evil__error", {"code": -32000}),
        ToolCall("2", "evil__say", {"lines": ['{"jsonrpc":"2.0","id":$ID,"result":3}']}),
        ToolCall("3", "evil__no_such_tool", {}),
        ToolCall("4", "evil__echo", {"text": "fine"}),
    ]
    turn = Turn(ground, ScriptedModel([calls, "Done."]))
    with ground.promise(outcome="an error result, then an answer"):
        assert (await turn.take()).content == "Done."
    turn.check_valid()
    results = [each for each in turn.messages if isinstance(each, ToolMessage)]
    assert [each.is_error for each in results] == [True, True, True, False]
