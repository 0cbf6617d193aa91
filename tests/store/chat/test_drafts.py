"""Drafts of answers in a database."""

from __future__ import annotations

import asyncio

import pytest

from interlock.messages import AssistantMessage, Unfinished, UserMessage
from interlock.store import ConversationStore
from interlock.store.chat import drafts


def draft(text: str) -> AssistantMessage:
    return AssistantMessage(text, unfinished=Unfinished())


async def test_draft_is_counted_and_found_only_once_its_answer_has_ended(store: ConversationStore):
    made = await store.create("Numbers")
    await store.append(made.id, UserMessage("Count."))
    before = (await store.resolve(made.id)).bytes
    place = await store.append(made.id, draft("one"))
    assert await store.append(made.id, draft("one two zweiunddreissig"), draft=place) == place

    assert (await store.messages(made.id))[1] == draft("one two zweiunddreissig")
    assert await store.search("zweiunddreissig") == []
    assert (await store.resolve(made.id)).bytes == before

    end = AssistantMessage("one two zweiunddreissig", unfinished=Unfinished("stopped"))
    assert await store.append(made.id, end, draft=place) == place
    await store.append(made.id, draft("too late"), draft=place)

    assert await store.messages(made.id) == [UserMessage("Count."), end]
    assert [each.id for each in await store.search("zweiunddreissig")] == [made.id]
    assert (await store.resolve(made.id)).bytes > before
    await store.delete(made.id)
    assert await store.search("zweiunddreissig") == []


async def test_draft_of_a_killed_program_is_an_interrupted_answer_from_the_next_message_on(
    store: ConversationStore,
):
    made = await store.create("Numbers")
    await store.append(made.id, UserMessage("Count."), draft("eins zwei"))
    copy = await store.fork(made.id)

    for each in (made.id, copy.id):
        answer = (await store.resume(each))[-1]
        assert isinstance(answer, AssistantMessage)
        assert answer.unfinished == Unfinished("interrupted", "its program was ended")
        assert (await store.messages(each))[-1] == answer
        assert each in [found.id for found in await store.search("zwei")]


async def test_drafts_of_many_answers_share_transactions(
    empty: ConversationStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(drafts, "GATHER_SECONDS", 0.0)
    made = [(await empty.create(str(n))).id for n in range(20)]
    places = [await empty.append(each, draft("a")) for each in made]
    writes = 0
    write = empty.database.write

    async def counted(work):
        nonlocal writes
        writes += 1
        return await write(work)

    monkeypatch.setattr(empty.database, "write", counted)
    stores = [empty.owned_by("") for _ in made]
    await asyncio.gather(
        *(
            each.append(id, draft(f"text of {id}"), draft=place)
            for each, id, place in zip(stores, made, places, strict=True)
        )
    )

    assert writes <= 2
    assert [(await empty.messages(id))[0].content for id in made] == [
        f"text of {id}" for id in made
    ]
