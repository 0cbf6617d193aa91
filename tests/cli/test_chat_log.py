"""What a chat does when the database comes and goes."""

from pathlib import Path

import pytest

from interlock.chat import ConversationLog, open_chat
from interlock.errors import ModelUnavailable, StoreError
from interlock.messages import AssistantMessage, ToolCall, UserMessage, interrupted
from interlock.store import Conversation, ConversationStore


class FaultyStore(ConversationStore):
    """Fails as long as it is told to."""

    failing = False

    async def create(self, title: str = "", model: str = "") -> Conversation:
        if self.failing:
            raise StoreError("the disk is full")
        return await super().create(title, model)

    async def append(self, id: str, *messages: object) -> None:
        if self.failing:
            raise StoreError("the disk is full")
        await super().append(id, *messages)  # type: ignore[arg-type]


async def test_messages_that_could_not_be_kept_are_kept_with_the_next():
    warnings: list[str] = []
    async with FaultyStore.open() as store:
        assert isinstance(store, FaultyStore)
        place = ConversationLog(store, warn=warnings.append)
        await place.begin("title", "model")
        store.failing = True
        await place.record([UserMessage("a")])
        await place.record([AssistantMessage("b")])
        store.failing = False
        await place.record([UserMessage("c")])
        assert place.conversation is not None
        messages = await store.messages(place.conversation.id)

    assert messages == [UserMessage("a"), AssistantMessage("b"), UserMessage("c")]
    assert warnings == ["conversation not kept: the disk is full"]


async def test_a_conversation_without_a_place_gets_one_later():
    warnings: list[str] = []
    async with FaultyStore.open() as store:
        assert isinstance(store, FaultyStore)
        store.failing = True
        place = ConversationLog(store, warn=warnings.append)
        await place.begin("first", "model")
        await place.record([UserMessage("a")])
        store.failing = False
        await place.begin("second", "model")
        await place.record([UserMessage("b")])
        (kept,) = await store.list()
        messages = await store.messages(kept.id)

    assert kept.title == "first"
    assert messages == [UserMessage("a"), UserMessage("b")]


async def test_a_model_that_is_not_there_leaves_the_old_one(script):
    async with open_chat(None, model=script("Yes."), conversation=None, warn=print) as chat:
        old = chat.model
        with pytest.raises(ModelUnavailable):
            await chat.change_model("nobody:x")

        assert chat.model is old
        assert [event async for event in chat.ask("x")]


async def test_another_model_is_kept_with_the_conversation(script, tmp_path: Path):
    other = tmp_path / "other.json"
    other.write_text('[{"content": "Two."}]')
    async with open_chat(None, model=script("One."), conversation=None, warn=print) as chat:
        assert [event async for event in chat.ask("a")]
        await chat.change_model(f"scripted:{other}")
        assert [event async for event in chat.ask("b")]
        first = chat.kept.conversation
        chat.begin_anew()
        assert chat.messages == []
        assert chat.kept.conversation is None
    async with ConversationStore.open() as store:
        assert first is not None
        assert (await store.resolve(first.id)).model == f"scripted:{other}"
        assert [each.content for each in await store.messages(first.id)] == [
            "a",
            "One.",
            "b",
            "Two.",
        ]


async def test_a_call_that_was_cut_off_is_answered_before_the_conversation_goes_on(script):
    call = ToolCall("1", "notes_add")
    async with ConversationStore.open() as store:
        kept = await store.create("title", script("Yes."))
        await store.append(kept.id, UserMessage("a"), AssistantMessage("", (call,)))
    async with open_chat(None, model=None, conversation=kept.id, warn=print) as chat:
        assert chat.messages[2:] == [interrupted(call)]
        assert [event async for event in chat.ask("b")]
