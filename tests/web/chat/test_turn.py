"""Turns: how they wait, and how they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from interlock import streamed_answer
from interlock.agent import AgentEvent, ApprovalAsked, Done, QuestionAsked, Stopped, ToolStarted
from interlock.calls import LOCAL, Caller
from interlock.errors import ModelInterrupted, ModelUnavailable
from interlock.messages import AssistantMessage, Message, Unfinished, Usage
from interlock.models import ModelEvent, Reply, TextDelta, ToolDefinition
from interlock.models.scripted import ScriptedModel
from interlock.store import ConversationStore
from interlock.web.chat.engines import AgentEngine, agents_of
from interlock.web.chat.errors import TurnError
from interlock.web.chat.events import TurnEvent
from interlock.web.chat.turn import Asked, Turn, TurnLimits
from interlock.web.chat.turns import Turns
from tests.support.recorded_spans import named, recorded_spans
from tests.web.conftest import Client, Event, Serve, check_numbers, kinds, risky


async def test_a_failing_model_ends_the_turn_with_its_code_and_is_logged(
    serve_agent: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    error = ModelUnavailable("the key sk-123 is wrong")
    async with serve_agent(error) as chat, chat.socket() as client:
        events = await client.ask()

    assert events[-1]["code"] == "model_failed"
    assert "sk-123" not in json.dumps(events)
    assert "failed: the key sk-123 is wrong" in caplog.text


async def test_unexpected_exception_ends_the_turn_without_details(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(RuntimeError("secret")) as chat, chat.socket() as client:
        events = await client.ask()

    assert events[-1]["code"] == "internal"
    assert "secret" not in json.dumps(events)
    number = events[-1]["message"].partition("(")[2].rstrip(")")
    assert number in caplog.text


class Halting(ScriptedModel):
    """Says its text, and then raises an error or waits; a next answer is of its script."""

    def __init__(self, text: str, error: Exception | None, *script: Any) -> None:
        super().__init__(script)
        self._text = text
        self._error = error
        self.asked: list[list[str]] = []

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        self.asked.append([each.content for each in messages])
        if len(self.asked) > 1:
            async for event in super().stream(messages, tools):
                yield event
            return
        yield TextDelta(self._text)
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()


async def a_token(turn: Turn) -> None:
    while last_event(turn)["type"] == "started":  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)


async def stop(turns: Turns, turn: Turn) -> None:
    await turn.stop()


async def shut_down(turns: Turns, turn: Turn) -> None:
    await turns.close()


async def await_end(turns: Turns, turn: Turn) -> None:
    while not turn.has_ended:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("agent", ["agent", pytest.param("graph", marks=pytest.mark.product)])
@pytest.mark.parametrize(
    ("end", "error", "why"),
    [
        (stop, None, Unfinished("stopped")),
        (shut_down, None, Unfinished("interrupted", "the server was ended")),
        (await_end, None, Unfinished("timeout", "the turn took too long")),
        (await_end, ModelInterrupted("cut off"), Unfinished("model_failed", "cut off")),
    ],
)
async def test_text_of_an_answer_that_ends_early_is_stored_with_the_reason_and_sent_to_the_model(
    place: Path, agent: str, end: Any, error: Exception | None, why: Unfinished
) -> None:
    model = Halting("It is n", error, "It is noon.")
    async with ConversationStore.open(place) as store:
        engine = AgentEngine(model, None, store, agent=agents_of(agent))
        limits = TurnLimits(turn=0.2 if why.reason == "timeout" else 60)
        turns = Turns(engine, limits, is_local=True)
        turn = await turns.start(Caller(surface="web"), "When?")
        await a_token(turn)
        await end(turns, turn)
        await turn.settled()
        _, answer = await store.messages(turn.conversation)

        assert answer == AssistantMessage("It is n", unfinished=why)

        again = Turns(engine)
        turn = await again.start(Caller(surface="web"), "And?", turn.conversation)
        await await_end(again, turn)

    note = "stopped this answer" if why.reason == "stopped" else "answer was cut off"
    said, told, note_told, then = model.asked[1]
    assert (said, told, then) == ("When?", "It is n", "And?")
    assert note in note_told


async def test_clients_get_no_draft_of_an_answer_whose_events_they_follow(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_answer, "SAVE_SECONDS", 0.0)
    async with ConversationStore.open(place) as store:
        turns = Turns(AgentEngine(Halting("It is n", None), None, store))
        turn = await turns.start(Caller(surface="web"), "When?")
        await a_token(turn)
        while len(await store.messages(turn.conversation)) < 2:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
        running = await turns.snapshot("", turn.conversation)
        await turn.stop()
        ended = await turns.snapshot("", turn.conversation)

    assert [each["content"] for each in running] == ["When?"]
    assert [each["content"] for each in ended] == ["When?", "It is n"]


@pytest.mark.program("PostgreSQL")
async def test_turns_of_one_conversation_at_two_gateways_lose_no_message(
    postgres_server: str,
) -> None:
    async with (
        ConversationStore.open(postgres_server) as one,
        ConversationStore.open(postgres_server) as other,
    ):
        made = await one.create()
        models = [ScriptedModel([f"answer {number}"] * 5) for number in range(2)]
        gateways = [
            Turns(AgentEngine(model, None, store))
            for model, store in zip(models, (one, other), strict=True)
        ]

        async def ask(turns: Turns, content: str) -> Turn:
            turn = await turns.start(Caller(surface="web"), content, made.id)
            await await_end(turns, turn)
            return turn

        for number in range(5):
            turns = await asyncio.gather(
                *(ask(each, f"{number} {at}") for at, each in enumerate(gateways))
            )
            stored = await one.messages(made.id)
            for at, turn in enumerate(turns):
                assert turn.position is not None
                assert stored[turn.position].content == f"{number} {at}"
        contents = [each.content for each in stored]

    assert sorted(contents) == sorted(
        [f"{number} {at}" for number in range(5) for at in range(2)]
        + ["answer 0"] * 5
        + ["answer 1"] * 5
    )


async def test_answer_that_never_waits_can_be_stopped(place: Path) -> None:
    class Flooding(ScriptedModel):
        async def stream(
            self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
        ) -> AsyncGenerator[ModelEvent, None]:
            for _ in range(200_000):
                yield TextDelta("word ")
            yield Reply(AssistantMessage("It is over."))

    async with ConversationStore.open(place) as store:
        turns = Turns(AgentEngine(Flooding([]), None, store))
        turn = await turns.start(Caller(surface="web"), "When?")
        await a_token(turn)
        await turn.stop()

    assert last_event(turn)["stop_reason"] == "stopped"


async def test_stopping_a_turn_cancels_its_calls_at_the_server(serve: Serve) -> None:
    async with serve(("Wait.", "wait"), "later") as chat, chat.socket() as client:
        await client.send(type="message", content="go")
        started = await client.until("tool_start")
        await chat.desk.waiting.wait()
        await client.send(type="stop", conversation_id=started["conversation_id"])
        last = await client.until("complete")
        await chat.desk.server.heard("notifications/cancelled")
        more = await client.ask("and?", conversation_id=started["conversation_id"])

    assert last["stop_reason"] == "stopped"
    ended = next(each for each in client.events if each["type"] == "tool_complete")
    assert ended["outcome"] == "stopped"
    assert more[-1]["content"] == "later"


@pytest.mark.slow("waits for a timeout")
async def test_a_turn_that_takes_too_long_is_ended(serve: Serve) -> None:
    limits = TurnLimits(turn=0.5)
    async with serve(("", "wait"), limits=limits) as chat, chat.socket() as client:
        events = await client.ask()

    assert events[-1]["code"] == "timeout"
    assert "tool_complete" in kinds(events)


async def waiting_for_approval(client: Client) -> Event:
    await client.send(type="message", content="go")
    return await client.until("approval")


@pytest.mark.parametrize(
    ("decision", "state", "made"), [("allow", "approved", ["all"]), ("deny", "denied", [])]
)
async def test_call_that_needs_approval_waits_for_the_decision(
    serve: Serve, decision: str, state: str, made: list[str]
) -> None:
    async with serve(("", "all"), "done", approve=risky) as chat, chat.socket() as client:
        asked = await waiting_for_approval(client)
        assert asked["tool_name"] == "kb:get"
        assert json.loads(asked["tool_input"]) == {"x": "all"}
        answer = {"approval_id": asked["approval_id"], "hash": asked["hash"]}
        await client.send(type="approve", decision=decision, **answer)
        await client.until("complete")
        check_numbers(client.events[1:])
        done = next(each for each in client.events if each["type"] == "approval_done")
        assert (done["state"], done["by"]) == (state, "user:ann")
        assert chat.desk.made == made
        ended = next(each for each in client.events if each["type"] == "tool_complete")
        assert ended["outcome"] == ("ran" if made else "refused")

        await client.send(type="approve", decision=decision, **answer)
        assert (await client.next())["code"] == "approval_closed"


async def test_changed_arguments_are_asked_about_again(serve_agent: Serve) -> None:
    script = ("", "all"), "done"
    async with serve_agent(*script, approve=risky) as chat, chat.socket() as client:
        asked = await waiting_for_approval(client)
        answer = {"approval_id": asked["approval_id"], "hash": asked["hash"]}
        await client.send(type="change", arguments={"x": "all of b"}, **answer)
        again = await client.until("approval")
        assert json.loads(again["tool_input"]) == {"x": "all of b"}
        answer = {"approval_id": again["approval_id"], "hash": again["hash"]}
        await client.send(type="approve", decision="allow", **answer)
        await client.until("complete")

    assert chat.desk.made == ["all of b"]


async def test_a_call_that_waits_for_a_decision_can_be_stopped_alone(serve_agent: Serve) -> None:
    script = ("", "all"), "done"
    async with serve_agent(*script, approve=risky) as chat, chat.socket() as client:
        asked = await waiting_for_approval(client)
        await client.send(
            type="stop", conversation_id=asked["conversation_id"], call_id=asked["call_id"]
        )
        assert (await client.until("complete"))["content"] == "done"

    assert chat.desk.made == []


async def test_time_in_which_a_turn_waits_for_a_person_does_not_count(serve: Serve) -> None:
    limits = TurnLimits(turn=100)
    script = ("", "all"), "done"
    async with serve(*script, approve=risky, limits=limits) as chat, chat.socket() as client:
        asked = await waiting_for_approval(client)
        turn = chat.app.turns.find("/ann", asked["conversation_id"])
        task, limit = turn._task, turn._limit
        if limit.when() is not None:  # a graph ends its run, and holds nothing
            await asyncio.wait({task})
        assert turn.is_waiting
        assert 0 < turn._left < 100
        answer = {"approval_id": asked["approval_id"], "hash": asked["hash"]}
        await client.send(type="approve", decision="allow", **answer)
        await client.until("complete")


async def test_a_graph_that_asks_something_else_ends_the_turn_with_an_error() -> None:
    class Asking:
        async def open(self, owner: str, conversation: str | None, title: str) -> str:
            return "c1"

        async def run(self, turn: Turn, content: str) -> AsyncGenerator[AgentEvent, None]:
            yield ToolStarted("t1", "ask", {}, call_id="i1")
            yield Stopped("waiting")

    turns = Turns(Asking())  # type: ignore[arg-type]
    ended = asyncio.Event()
    turn = await turns.start(
        LOCAL, "go", follow=lambda turn, _: ended.set() if turn.has_ended else None
    )
    await ended.wait()

    *_, stopped, error = [event.fields for event in turn.log.since(0) or ()]
    assert (stopped["type"], stopped["outcome"]) == ("tool_complete", "stopped")
    assert (error["type"], error["code"]) == ("error", "interrupted")


async def test_a_decision_waits_until_the_run_that_asked_has_ended() -> None:
    order: list[str] = []

    class Slow:
        async def open(self, owner: str, conversation: str | None, title: str) -> str:
            return "c1"

        async def run(self, turn: Turn, content: str) -> AsyncGenerator[AgentEvent, None]:
            yield ApprovalAsked("a1", "t1", "kb:get", {}, "it deletes", "", "h1")
            for _ in range(10):  # such as the end of a step that is stored
                await asyncio.sleep(0)
            order.append("run")
            yield Stopped("waiting")

        async def resume(self, turn: Turn, decisions: Any) -> AsyncGenerator[AgentEvent, None]:
            order.append("resume")
            yield Done(AssistantMessage("so"), Usage(), "end")

    def decide(turn: Turn, event: TurnEvent) -> None:
        if event.kind == "approval":
            turn.decide("a1", "h1", "allow", "", "user:ann")
        if turn.has_ended:
            ended.set()

    ended = asyncio.Event()
    turn = await Turns(Slow()).start(LOCAL, "go", follow=decide)  # type: ignore[arg-type]
    await ended.wait()

    assert order == ["run", "resume"]
    assert [event.fields["type"] for event in turn.log.since(0) or ()][-1] == "complete"


async def test_an_approval_of_something_else_is_refused(serve: Serve) -> None:
    async with serve(("", "all"), "done", approve=risky) as chat, chat.socket() as client:
        asked = await waiting_for_approval(client)
        answer = {"type": "approve", "approval_id": asked["approval_id"], "decision": "allow"}
        await client.send(**answer, hash="0" * 64)
        assert (await client.next())["code"] == "approval_changed"
        async with chat.socket("bob-token") as other:
            await other.send(**answer, hash=asked["hash"])
            assert (await other.next())["code"] == "approval_closed"
        assert chat.desk.made == []


async def test_approval_can_be_given_from_another_connection_of_the_same_user(serve: Serve) -> None:
    async with serve(("", "all"), "done", approve=risky) as chat, chat.socket() as client:
        asked = await waiting_for_approval(client)
        async with chat.socket() as other:
            answer = {"approval_id": asked["approval_id"], "hash": asked["hash"]}
            await other.send(type="approve", decision="allow", **answer)
            assert (await client.until("complete"))["content"] == "done"


async def test_turn_waiting_for_a_decision_can_be_stopped(serve: Serve) -> None:
    async with serve(("", "all"), "later", approve=risky) as chat, chat.socket() as client:
        asked = await waiting_for_approval(client)
        await client.send(type="stop", conversation_id=asked["conversation_id"])
        assert (await client.until("complete"))["stop_reason"] == "stopped"
        more = await client.ask("and?", conversation_id=asked["conversation_id"])
        assert more[-1]["content"] == "later"
        assert chat.desk.made == []


# People who decide and answer, without a server


def idle_turn() -> Turn:
    """Return a turn of which nothing runs."""
    return Turn(cast("Any", None), TurnLimits(), "c1", "/ann", LOCAL, Asked("go"))


APPROVAL = ApprovalAsked("a1", "t1", "kb:get", {"x": 1}, "it deletes", "", "h1")
QUESTION = QuestionAsked("q1", "t1", "kb", "elicitation/create", {})


def last_event(turn: Turn) -> Event:
    events = turn.log.since(0)
    assert events
    return events[-1].fields


async def test_answer_to_a_question_is_passed_on_once() -> None:
    turn = idle_turn()
    asking = asyncio.create_task(turn.ask_question(QUESTION, 60))
    await asyncio.sleep(0)
    assert turn.is_waiting
    assert turn.state == "waiting"

    turn.answer("q1", {"action": "accept", "content": {}})
    with pytest.raises(TurnError, match="this question is not open"):
        turn.answer("q1", {"action": "decline"})

    assert await asking == {"action": "accept", "content": {}}
    assert (last_event(turn)["type"], last_event(turn)["action"]) == ("question_done", "accept")
    assert turn.state == "running"


async def test_undecided_approval_expires_and_cannot_be_given_later() -> None:
    turn = idle_turn()

    with pytest.raises(TimeoutError):
        await turn.ask(APPROVAL, 0)

    assert (last_event(turn)["type"], last_event(turn)["state"]) == ("approval_done", "expired")
    with pytest.raises(TurnError) as refused:
        turn.decide("a1", "h1", "allow", "", "user:ann")
    assert refused.value.code == "approval_closed"


async def test_approval_of_a_call_that_was_stopped_is_closed() -> None:
    turn = idle_turn()
    asking = asyncio.create_task(turn.ask(APPROVAL))
    await asyncio.sleep(0)

    asking.cancel()
    await asyncio.wait({asking})

    assert (last_event(turn)["type"], last_event(turn)["state"]) == ("approval_done", "closed")
    with pytest.raises(TurnError, match="this approval is not open"):
        turn.decide("a1", "h1", "allow", "", "user:ann")


async def test_decision_that_is_invalid_leaves_the_approval_open() -> None:
    turn = idle_turn()
    asking = asyncio.create_task(turn.ask(APPROVAL))
    await asyncio.sleep(0)

    for hash, decision, code in (
        ("h1", "maybe", "bad_message"),
        ("h2", "allow", "approval_changed"),
    ):
        with pytest.raises(TurnError) as refused:
            turn.decide("a1", hash, decision, "", "user:ann")
        assert refused.value.code == code
    turn.decide("a1", "h1", "deny", "not today", "user:ann")

    assert await asking == {"decision": "deny", "hash": "h1", "note": "not today"}
    assert turn.decided["t1"]["by"] == "user:ann"


async def test_call_that_is_not_running_cannot_be_stopped() -> None:
    turn = idle_turn()

    with pytest.raises(TurnError) as refused:
        turn.stop_call("i1")

    assert refused.value.code == "not_found"
    assert not turn.is_calling("i1")


async def test_halves_of_characters_end_no_turn_and_no_conversation(serve: Serve) -> None:
    half = "half \ud83d"  # as the page, the model and the tool's server send it
    async with serve((half, half), half, half) as chat, chat.socket() as client:
        events = await client.ask(half)
        again = await client.ask(half, conversation_id=events[-1]["conversation_id"])

    assert events[-1]["type"] == again[-1]["type"] == "complete"
    assert events[-1]["content"] == again[-1]["content"] == "half \ufffd"
    assert chat.desk.made == ["half \ufffd"]


async def test_a_turn_of_a_page_has_a_span_above_its_calls(serve: Serve) -> None:
    with recorded_spans() as spans:
        async with serve(("", "read"), "done") as chat, chat.socket() as client:
            events = await client.ask()

    answered = named(spans, "invoke_agent interlock")
    called = next(each for each in spans if each.name.startswith("execute_tool"))
    assert (called.parent, answered.parent) == (answered.id, "")
    assert called.attributes["interlock.surface"] == "web"
    card = next(each for each in events if each["type"] == "tool_start")
    assert called.attributes["interlock.call.id"] == card["call_id"]
    assert called.attributes["gen_ai.tool.call.id"] == card["tool_call_id"]
    conversation = str(answered.attributes["gen_ai.conversation.id"])
    assert len(conversation) == 16
    assert conversation not in card["conversation_id"]
