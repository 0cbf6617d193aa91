"""Modern clients whose calls wait at legacy servers while they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from interlock import Client
from interlock.auth.principal import Principal
from interlock.calls import Call, Caller, Item, Outcome
from interlock.config.gateway import KeyLimits, Limits
from interlock.context import Context
from interlock.errors import AskRefused, InputRequired, InvalidArguments
from interlock.gateway import ForwardingServer
from interlock.gateway.forwarding import parking
from interlock.gateway.forwarding.parking import Parking, StaleState, Ticket
from interlock.layers.fair_queue import FairQueue, queued
from interlock.layers.limits import Limiter
from interlock.policy import Policy
from interlock.protocol import Request
from interlock.types import ClientCapabilities, ElicitParams, ElicitResult
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text, tool

FORM = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}
ANNA, BERT, CARLA = (
    Principal(f"user:{each}", frozenset({"mcp:*"})) for each in ("anna", "bert", "carla")
)
ACCEPT = {"action": "accept", "content": {"name": "anna"}}


def asking(*names: str) -> ScriptedServer:
    """A legacy server whose tools ask for a name, once or `times` times, and return it."""
    server = ScriptedServer(LEGACY, {"tools/list": {"tools": [tool(each) for each in names]}})

    async def call(params: Json) -> Json:
        heard = []
        for _ in range(params.get("arguments", {}).get("times", 1)):
            answer = await server.ask("elicitation/create", FORM)
            heard.append(answer.get("result", answer))
        return text(msgspec.json.encode(heard).decode())

    server.answers["tools/call"] = call
    return server


class Link:
    """A client's way back that keeps what it gets."""

    def __init__(self) -> None:
        self.caller = object()
        self.notified: list[str] = []

    def notify(self, method: str, params: bytes) -> None:
        self.notified.append(method)

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Any:
        raise AssertionError("a modern client is not asked by requests")

    def close_stream(self, retry_ms: int) -> None: ...


def context_of(principal: Principal) -> Context:
    return Context(
        revision=MODERN,
        request_id=1,
        link=Link(),
        loop=asyncio.get_running_loop(),
        client_capabilities=ClientCapabilities(elicitation={"form": {}}),
        principal=principal,
    )


async def call(
    gateway: ForwardingServer,
    name: str,
    arguments: Json | None = None,
    *,
    principal: Principal = ANNA,
    **round: Any,
) -> Json:
    """Send one request of a modern client, and return the decoded result."""
    params = {"name": name, "arguments": arguments or {}, **round}
    context = context_of(principal)
    request = Request(1, "tools/call", msgspec.Raw(msgspec.json.encode(params)))
    answer: Json = msgspec.json.decode(await gateway.answer(request, context))
    return answer


def answered(result: Json, answer: Json = ACCEPT) -> Json:
    """The members of the next round."""
    return {
        "inputResponses": dict.fromkeys(result["inputRequests"], answer),
        "requestState": result["requestState"],
    }


@pytest.fixture
async def gateway() -> AsyncIterator[ForwardingServer]:
    servers = {"s": asking("who", "other"), "plain": asking()}
    gateway = ForwardingServer(servers, Policy.compile(None), environ={})
    async with gateway.running():
        yield gateway


async def anna(_: ElicitParams) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "anna"})


async def test_question_of_a_legacy_server_is_answered_by_a_modern_client():
    server = asking("who")
    gateway = ForwardingServer({"s": server}, Policy.compile(None), environ={})
    async with Client.memory(gateway, revision=MODERN, elicitation=anna) as client:
        result = await client.call_tool("s__who", {"times": 3})

    assert result.text.count("anna") == 3
    assert len(server.sent("tools/call")) == 1


async def test_abandoned_call_costs_other_calls_at_most_one_question(
    gateway: ForwardingServer, monkeypatch: pytest.MonkeyPatch
):
    asked = await call(gateway, "s__who")
    kept = await call(gateway, "s__who", principal=BERT)  # Anna may be about to answer
    monkeypatch.setattr(parking, "ABANDONED", 0.0)
    refused = await call(gateway, "s__who", principal=BERT)
    later = await call(gateway, "s__who", principal=BERT)
    done = await call(gateway, "s__who", principal=BERT, **answered(later))

    for each in (kept, refused):
        assert "ask_ambiguous" in each["content"][0]["text"]
    assert '"name":"anna"' in done["content"][0]["text"]
    ended = await call(gateway, "s__who", **answered(asked))
    assert ended["_meta"]["interlock/reason"]["code"] == "cancelled"


async def test_state_of_a_parked_call_is_used_once(gateway: ForwardingServer):
    asked = await call(gateway, "s__who", {"times": 2})
    more = await call(gateway, "s__who", {"times": 2}, **answered(asked))

    with pytest.raises(InvalidArguments, match="was used already"):
        await call(gateway, "s__who", {"times": 2}, **answered(asked))
    done = await call(gateway, "s__who", {"times": 2}, **answered(more))
    assert done["content"][0]["text"].count("anna") == 2
    with pytest.raises(InvalidArguments, match="was used already"):
        await call(gateway, "s__who", {"times": 2}, **answered(more))


@pytest.mark.parametrize(
    "changed",
    [{"name": "s__other"}, {"arguments": {"times": 2}}, {"principal": BERT}],
    ids=["tool", "arguments", "user"],
)
async def test_state_of_a_parked_call_is_refused_with_another_request(
    gateway: ForwardingServer, changed: Json
):
    asked = await call(gateway, "s__who", {"times": 1})
    request = {"name": "s__who", "arguments": {"times": 1}} | changed

    with pytest.raises(InvalidArguments, match="belongs to another request"):
        await call(gateway, **request, **answered(asked))


async def test_malformed_answer_is_refused_and_the_call_stays_parked(gateway: ForwardingServer):
    asked = await call(gateway, "s__who")

    with pytest.raises(InvalidArguments, match="is not an answer"):
        await call(gateway, "s__who", **answered(asked, {"action": 5}))
    assert "anna" in str(await call(gateway, "s__who", **answered(asked)))


# Parking by itself


def calls_of(parking: Parking, *, server: str = "s") -> Any:
    """Return a function that begins a call, which asks and returns the answer."""

    async def begin(principal: Principal) -> Ticket:
        entry = Item("prompts", server, "p")
        with pytest.raises(InputRequired) as asked:
            await parking.run(Call(entry, {}, Caller(principal)), context_of(principal))
        return msgspec.json.decode(asked.value.state or "", type=Ticket)

    return begin


async def ask(call: Call) -> Outcome:
    assert call.back is not None
    answer = await call.back.ask("elicitation/create", b"{}", timeout=1)
    return Outcome(answer)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_parked_calls_are_bounded_for_each_user_and_each_server(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(parking, "MAX_OF_SERVER", parking.MAX_EACH + 1)
    parked = Parking(ask)
    for _ in range(parking.MAX_EACH):
        await calls_of(parked)(ANNA)
    with pytest.raises(AskRefused, match="limit 8"):
        await parked.run(Call(Item("prompts", "s", "p"), {}), context_of(ANNA))
    await calls_of(parked)(BERT)
    with pytest.raises(AskRefused, match="limit 9"):
        await parked.run(Call(Item("prompts", "s", "p"), {}), context_of(CARLA))
    await calls_of(parked, server="other")(CARLA)
    assert len(parked) == 10
    await parked.close()


async def test_simultaneous_questions_of_a_server_are_sent_in_one_answer():
    async def ask_twice(call: Call) -> Outcome:
        assert call.back is not None
        asked = [call.back.ask("elicitation/create", b"{}", timeout=1) for _ in range(3)]
        answers = b",".join(map(bytes, await asyncio.gather(*asked)))
        return Outcome(msgspec.Raw(b'{"answers":[%b]}' % answers))

    parked = Parking(ask_twice)
    with pytest.raises(InputRequired) as asked:
        await parked.run(Call(Item("prompts", "s", "p"), {}, Caller(ANNA)), context_of(ANNA))
    context = context_of(ANNA)
    context.answers = {
        key: msgspec.Raw(msgspec.json.encode(ACCEPT)) for key in asked.value.questions
    }
    ticket = msgspec.json.decode(asked.value.state or "", type=Ticket)

    assert len(asked.value.questions) == 3
    assert bytes((await parked.resume(ticket, context)).raw).count(b"anna") == 3


async def test_parked_call_does_not_count_towards_the_concurrency_limit():
    queue = FairQueue("s", 1, 1)
    limiter = Limiter(Limits(per_key=KeyLimits(concurrent=1), concurrent=1))
    handle = limiter.around(queued({"s": queue})(ask))
    parked = Parking(handle)
    tickets = [await calls_of(parked)(ANNA) for _ in range(3)]

    for ticket in tickets:
        context = context_of(ANNA)
        context.answers = {"question-1": msgspec.Raw(msgspec.json.encode(ACCEPT))}
        assert b"anna" in bytes((await parked.resume(ticket, context)).raw)
    await queue.acquire("user:anna")  # the slot was released exactly once


async def test_parked_call_ends_after_its_time_to_live(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parking, "TTL", 0.01)
    monkeypatch.setattr(parking, "TOGETHER", 0)
    parked = Parking(ask)
    ticket = await calls_of(parked)(ANNA)
    await until(lambda: not len(parked))

    with pytest.raises(StaleState, match="its call has ended"):
        await parked.resume(ticket, context_of(ANNA))


async def test_parked_calls_end_with_their_user_and_with_their_server():
    parked = Parking(ask)
    await calls_of(parked)(ANNA)
    await calls_of(parked)(BERT)
    await calls_of(parked, server="gone")(BERT)
    parked.end(lambda principal: principal == ANNA)
    parked.keep({"s"})
    await until(lambda: len(parked) == 1)

    (left,) = parked._parked
    assert (left.link.context.principal, left.call.entry.server) == (BERT, "s")
    await parked.close()


async def test_cancelled_request_ends_a_call_that_is_not_parked():
    ended = []

    async def hang(call: Call) -> Outcome:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as error:
            ended.append(error.args)
            raise
        raise AssertionError

    request = asyncio.create_task(
        Parking(hang).run(Call(Item("prompts", "s", "p"), {}), context_of(ANNA))
    )
    for _ in range(3):
        await asyncio.sleep(0)
    request.cancel("the client's reason")
    await asyncio.wait({request})
    for _ in range(3):
        await asyncio.sleep(0)

    assert ended == [("the client's reason",)]
