"""Calls of conversations: kept with their results, read by their owner only."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import UnknownConversation
from interlock.store import ConversationStore
from interlock.store.chat.chat_calls import MAX_KEPT, ChatCall


def call(conversation: str, id: str, **members: Any) -> ChatCall:
    given: dict[str, Any] = {"reason": "", "seconds": 0.5, "at": 1, **members}
    return ChatCall(id, conversation, f"t-{id}", "crm:refund", {"order": 1}, "ran", **given)


async def test_a_call_is_read_back_by_its_owner_only(place: str):
    async with ConversationStore.open(place, owner="anna") as store:
        made = call((await store.create()).id, "c1", result=b'{"content":[]}', approval={"by": "x"})
        await store.calls.add(made)
        assert await store.calls.get("c1") == made
    async with ConversationStore.open(place, owner="bert") as other:
        with pytest.raises(UnknownConversation):
            await other.calls.get("c1")
        assert await other.calls.of(made.conversation_id, ["t-c1"]) == []


async def test_calls_are_listed_by_their_end_without_results(place: str):
    async with ConversationStore.open(place) as store:
        id = (await store.create()).id
        for name, at in (("late", 9), ("early", 3), ("other", 5)):
            await store.calls.add(call(id, name, at=at, result=b"x"))
        found = await store.calls.of(id, ["t-late", "t-early"])

    assert [(each.id, each.result) for each in found] == [("early", None), ("late", None)]


async def test_a_result_over_the_limit_is_left_out(sqlite: str):
    async with ConversationStore.open(sqlite) as store:
        await store.calls.add(call((await store.create()).id, "c1", result=bytes(MAX_KEPT + 1)))
        assert (await store.calls.get("c1")).result is None
