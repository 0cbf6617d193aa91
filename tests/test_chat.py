"""A chat and its stored conversation, also when the database fails."""

from contextlib import aclosing
from pathlib import Path

import pytest

from interlock import chat as chat_module
from interlock import config
from interlock.calls import Call, Caller, CallHandler, Outcome
from interlock.chat import ConversationLog, open_chat
from interlock.errors import ModelUnavailable, StoreError
from interlock.messages import AssistantMessage, Message, ToolCall, UserMessage, interrupted
from interlock.store import Conversation, ConversationStore
from tests.cli.conftest import home, script, servers
from tests.support.rows import each_row

__all__ = ["home", "script", "servers"]


class FaultyStore(ConversationStore):
    """Fails while `failing` is set."""

    failing = False

    async def create(self, title: str = "", model: str = "") -> Conversation:
        if self.failing:
            raise StoreError("the disk is full")
        return await super().create(title, model)

    async def append(
        self, id: str, *messages: Message, model: str = "", draft: int | None = None
    ) -> int:
        if self.failing:
            raise StoreError("the disk is full")
        return await super().append(id, *messages, model=model, draft=draft)


async def test_unsaved_messages_are_stored_with_the_next_ones():
    warnings: list[str] = []
    async with FaultyStore.open() as store:
        assert isinstance(store, FaultyStore)
        log = ConversationLog(store, warn=warnings.append)
        await log.create("title", "model")
        store.failing = True
        await log.append([UserMessage("a")])
        await log.append([AssistantMessage("b")])
        store.failing = False
        await log.append([UserMessage("c")])
        assert log.conversation is not None
        messages = await store.messages(log.conversation.id)

    assert messages == [UserMessage("a"), AssistantMessage("b"), UserMessage("c")]
    assert warnings == ["conversation not stored: the disk is full"]


async def test_a_conversation_that_could_not_be_created_is_created_later():
    warnings: list[str] = []
    async with FaultyStore.open() as store:
        assert isinstance(store, FaultyStore)
        store.failing = True
        log = ConversationLog(store, warn=warnings.append)
        await log.create("first", "model")
        await log.append([UserMessage("a")])
        store.failing = False
        await log.create("second", "model")
        await log.append([UserMessage("b")])
        (stored,) = await store.list()
        messages = await store.messages(stored.id)

    assert stored.title == "first"
    assert messages == [UserMessage("a"), UserMessage("b")]


async def test_store_of_a_new_conversation_opens_only_when_the_answer_has_begun(
    script, monkeypatch: pytest.MonkeyPatch
):
    opened: list[str] = []
    open_store = chat_module._open_store
    monkeypatch.setattr(
        chat_module, "_open_store", lambda stack: opened.append("store") or open_store(stack)
    )

    async with open_chat(None, model=script("Yes.", "No."), warn=opened.append) as chat:
        async with aclosing(chat.ask("x")) as events:
            await anext(events)
            assert opened == []
        first = chat.log.conversation
        assert first is not None
        assert [event async for event in chat.ask("y")]
        assert opened == ["store"]
        assert chat.log.conversation is first

    async with ConversationStore.open() as stored:
        kept = [each.content for each in await stored.messages(first.id)]
    assert kept == ["x", "Yes.", "y", "No."]  # the first answer was stopped after its text


@each_row("name", ["nobody:x", "gemini:x", "anthropic:x"])
async def test_changing_to_a_model_that_cannot_answer_keeps_the_old_one(script, name: str):
    async with open_chat(None, model=script("Yes."), conversation=None, warn=print) as chat:
        old = chat.model
        with pytest.raises(ModelUnavailable):
            await chat.change_model(name)

        assert chat.model is old
        assert [event async for event in chat.ask("x")]


@pytest.mark.slow("starts a program")
async def test_layers_of_a_chat_see_its_calls_with_the_surface_chat(script, servers):
    callers = []

    def noted(handle: CallHandler) -> CallHandler:
        async def note(call: Call) -> Outcome:
            callers.append(call.caller)
            return await handle(call)

        return note

    loaded = config.load(servers()).servers
    model = script({"say": {}}, "Done.")
    async with open_chat(loaded, model=model, warn=print, around=[noted]) as chat:
        assert [event async for event in chat.ask("x")]

    assert callers == [Caller(surface="chat")]


async def test_a_changed_model_is_stored_with_the_conversation(script, tmp_path: Path):
    other = tmp_path / "other.json"
    other.write_text('[{"content": "Two."}]')
    async with open_chat(None, model=script("One."), conversation=None, warn=print) as chat:
        assert [event async for event in chat.ask("a")]
        await chat.change_model(f"scripted:{other}")
        assert [event async for event in chat.ask("b")]
        first = chat.log.conversation
        await chat.start_conversation()
        assert chat.messages == []
        assert chat.log.conversation is None
    async with ConversationStore.open() as store:
        assert first is not None
        assert (await store.resolve(first.id)).model == f"scripted:{other}"
        assert [each.content for each in await store.messages(first.id)] == [
            "a",
            "One.",
            "b",
            "Two.",
        ]


async def test_an_interrupted_call_gets_a_result_when_the_conversation_continues(script):
    call = ToolCall("1", "notes_add")
    async with ConversationStore.open() as store:
        stored = await store.create("title", script("Yes."))
        await store.append(stored.id, UserMessage("a"), AssistantMessage("", (call,)))
    async with open_chat(None, model=None, conversation=stored.id, warn=print) as chat:
        assert chat.messages[2:] == [interrupted(call)]
        assert [event async for event in chat.ask("b")]
