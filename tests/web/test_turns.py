"""How many turns there are."""

from __future__ import annotations

from interlock.web.turn import TurnLimits
from tests.web.conftest import Serve


async def test_a_second_turn_of_a_conversation_is_refused(serve: Serve) -> None:
    async with serve(("", "wait"), "done") as chat, chat.socket() as client:
        await client.send(type="message", content="go")
        started = await client.until("tool_start")
        await client.send(
            type="message", content="more", conversation_id=started["conversation_id"]
        )
        assert (await client.until("error"))["code"] == "busy"


async def test_too_many_messages_and_turns_are_refused(serve_agent: Serve) -> None:
    limits = TurnLimits(messages=1)
    async with serve_agent("a", "b", limits=limits) as chat, chat.socket() as client:
        await client.ask()
        await client.send(type="message", content="more")
        refused = await client.next()
    assert refused["code"] == "rate_limited"
    assert refused["retry_after"] > 50
