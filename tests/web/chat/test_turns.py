"""How many turns there are."""

from __future__ import annotations

import pytest

from interlock.web.chat.turn import TurnLimits
from tests.web.conftest import Serve


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
