"""How many turns there are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from interlock.agent import AgentEvent, ApprovalAsked, Done, QuestionAsked
from interlock.auth import Principal
from interlock.calls import Caller
from interlock.messages import AssistantMessage, Unfinished, Usage
from interlock.web.chat import turns as turns_module
from interlock.web.chat.errors import TurnError
from interlock.web.chat.turn import Turn, TurnLimits
from interlock.web.chat.turns import Turns
from tests.web.conftest import Serve, risky

ANN, BOB = (Caller(Principal(name), surface="web") for name in ("ann", "bob"))


class Engine:
    """Answers at once, or when `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def open(self, owner: str, conversation: str | None, title: str) -> str:
        return conversation or f"c_{title}"

    async def run(self, turn: Turn, content: str) -> AsyncGenerator[AgentEvent, None]:
        await self.go_on.wait()
        yield Done(AssistantMessage("so"), Usage(), "end")

    async def broken_off(self, turn: Turn, why: Unfinished) -> None:
        """Nothing is stored."""


async def test_a_second_turn_of_a_conversation_is_refused(serve: Serve) -> None:
    async with serve(("", "wait"), "done") as chat, chat.socket() as client:
        await client.send(type="message", content="go")
        started = await client.until("tool_start")
        await client.send(
            type="message", content="more", conversation_id=started["conversation_id"]
        )
        assert (await client.until("error"))["code"] == "busy"


async def test_too_many_messages_are_refused(serve_agent: Serve) -> None:
    limits = TurnLimits(messages=1)
    async with serve_agent("a", "b", limits=limits) as chat, chat.socket() as client:
        await client.ask()
        await client.send(type="message", content="more")
        refused = await client.next()
    assert refused["code"] == "rate_limited"
    assert refused["retry_after"] > 50


@pytest.mark.parametrize(
    ("limits", "code"),
    [(TurnLimits(turns=1), "rate_limited"), (TurnLimits(all_turns=1), "overloaded")],
    ids=["of a user", "of all"],
)
async def test_too_many_turns_at_a_time_are_refused(
    serve_agent: Serve, limits: TurnLimits, code: str
) -> None:
    async with serve_agent(("", "wait"), "done", limits=limits) as chat, chat.socket() as client:
        await client.send(type="message", content="go")
        await client.until("tool_start")
        await client.send(type="message", content="more")
        refused = await client.until("error")

    assert (refused["code"], refused["retry_after"]) == (code, 5.0)


async def test_any_number_of_conversations_may_wait_for_a_person(serve_agent: Serve) -> None:
    script = [("", "all")] * 5
    limits = TurnLimits(turns=1, all_turns=1)
    async with (
        serve_agent(*script, "Done.", approve=risky, limits=limits) as chat,
        chat.socket() as client,
    ):
        for _ in script:
            await client.send(type="message", content="go")
            await client.until("approval")
        assert (await client.ask("and?"))[-1]["content"] == "Done."


async def test_limit_of_messages_ends_with_its_period(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(turns_module, "monotonic", lambda: now)
    turns = Turns(Engine(), TurnLimits(messages=1, period=60))  # type: ignore[arg-type]
    await turns.start(ANN, "a")
    now += 59
    with pytest.raises(TurnError) as refused:
        await turns.start(ANN, "b")
    assert (refused.value.code, refused.value.retry_after) == ("rate_limited", 1.0)
    await turns.start(BOB, "c")  # has a limit of his own

    now += 1
    await turns.start(ANN, "d")
    await turns.close()


async def test_turn_and_its_open_questions_are_visible_to_its_owner_only() -> None:
    engine = Engine()
    engine.go_on.clear()
    turns = Turns(engine)  # type: ignore[arg-type]
    turn = await turns.start(ANN, "go", "c1")
    approval = ApprovalAsked("a1", "t1", "kb:get", {}, "it deletes", "", "h1")
    question = QuestionAsked("q1", "t1", "kb", "elicitation/create", {})
    call = asyncio.create_task(asyncio.Event().wait())
    with turn.stoppable("i1", call):
        asking = [asyncio.create_task(turn.ask(approval))]
        asking.append(asyncio.create_task(turn.ask_question(question, 60)))
        await asyncio.sleep(0)

        for owner, found in (("/ann", turn), ("/bob", None)):
            assert turns.find(owner, "c1") is found
            assert turns.find(owner, "c1", turn.id) is found
            assert turns.find_approval(owner, "a1") is found
            assert turns.find_question(owner, "q1") is found
        assert turns.find("/ann", "c2", turn.id) is None
        assert not turns.stop_call("/bob", "i1")
        assert not call.done()
        assert turns.stop_call("/ann", "i1")
    for each in (call, *asking):
        each.cancel()
    await asyncio.gather(call, *asking, return_exceptions=True)
    await turns.close()


async def test_revoked_key_stops_its_own_turns_and_no_others() -> None:
    engine = Engine()
    engine.go_on.clear()
    turns = Turns(engine)  # type: ignore[arg-type]
    of_key = [
        await turns.start(Caller(Principal("ann", key_id=key), surface="web"), key)
        for key in ("k1", "k2")
    ]
    await asyncio.sleep(0)  # both run

    turns.end_credentials(["k1"])
    while not of_key[0].has_ended:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)

    assert of_key[0].log.since(0)[-1].fields["stop_reason"] == "stopped"  # type: ignore[index]
    assert not of_key[1].has_ended
    await turns.close()
    assert of_key[1].log.since(0)[-1].fields["code"] == "interrupted"  # type: ignore[index]


async def test_one_client_follows_a_limited_number_of_conversations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns_module, "MAX_FOLLOWED", 2)
    turns = Turns(Engine())  # type: ignore[arg-type]
    heard: list[str] = []

    def listener(turn: Turn, _: Any) -> None:
        heard.append(turn.conversation)

    for conversation in ("c1", "c2", "c1"):
        turns.follow("/ann", conversation, listener)
    with pytest.raises(TurnError, match="more than 2 conversations"):
        turns.follow("/ann", "c3", listener)
    turns.forget("/ann", listener)
    turns.follow("/ann", "c3", listener)

    await turns.start(ANN, "go", "c1")
    await turns.start(ANN, "go", "c3")
    await turns.start(BOB, "go", "c3x")
    assert set(heard) == {"c3"}
    await turns.close()
