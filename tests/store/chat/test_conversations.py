"""Conversations on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from interlock.errors import StoreError, UnknownConversation
from interlock.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.store import ConversationStore
from interlock.store.chat.repair import interrupted
from tests.support.rows import each_row

CALL = ToolCall("1", "clock__now", {"zone": "Asia/Tokyo"})
PAIR = (AssistantMessage("", (CALL,)), ToolMessage("1", "12:00", "clock__now"))


# Conversations


async def test_create_returns_an_empty_conversation_with_the_current_time(empty: ConversationStore):
    before = datetime.now(UTC)
    made = await empty.create("Tokyo", "scripted:test")

    assert before <= made.created == made.updated <= datetime.now(UTC)
    assert (made.title, made.model, made.message_count) == ("Tokyo", "scripted:test", 0)
    assert await empty.messages(made.id) == []
    assert await empty.list() == [made]
    assert (await empty.list())[0].created.tzinfo is UTC


@pytest.mark.slow("fills a database")
async def test_ids_are_short_and_unique(store: ConversationStore):
    ids = {(await store.create()).id for _ in range(50)}

    assert len(ids) == 50
    assert all(len(id) == 12 and id.isalnum() and id.islower() for id in ids)


async def test_list_starts_with_the_last_changed_conversation(empty: ConversationStore):
    first, second, third = [await empty.create(title) for title in ("1", "2", "3")]
    await empty.append(first.id, UserMessage("hello"), AssistantMessage("hello"))
    await empty.update(second.id, title="two", model="scripted:other")

    listed = await empty.list()

    assert [each.id for each in listed] == [second.id, first.id, third.id]
    assert [each.message_count for each in listed] == [0, 2, 0]
    assert (listed[0].title, listed[0].model) == ("two", "scripted:other")
    assert all(each.updated > each.created for each in listed[:2])


async def test_pages_of_the_list_are_complete_even_if_all_times_are_equal(
    empty: ConversationStore, monkeypatch: pytest.MonkeyPatch
):
    class Stopped(datetime):
        @classmethod
        def now(cls, zone=None):
            return datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)

    monkeypatch.setattr("interlock.store.chat.conversations.datetime", Stopped)
    made = {(await empty.create()).id for _ in range(7)}

    pages = [await empty.list(limit=3)]
    while pages[-1]:
        pages.append(await empty.list(limit=3, before=pages[-1][-1]))

    assert [len(page) for page in pages] == [3, 3, 1, 0]
    assert {each.id for page in pages for each in page} == made


async def test_update_changes_only_the_given_members(store: ConversationStore):
    made = await store.create("title", "model")
    await store.update(made.id, title="")

    now = await store.resolve(made.id)

    assert (now.title, now.model) == ("", "model")


async def test_title_and_model_replace_characters_that_no_database_can_hold(
    store: ConversationStore,
):
    made = await store.create("a\0b", "\ud800")
    await store.update(made.id, title="c\0d")

    assert (made.title, made.model) == ("a�b", "�")
    assert (await store.resolve(made.id)).title == "c�d"


@pytest.mark.slow("fills a database")
async def test_delete_removes_a_conversation_and_its_messages_only(
    empty: ConversationStore, place: str, dump
):
    gone, kept = await empty.create(), await empty.create()
    for each in (gone, kept):
        await empty.append(each.id, UserMessage("hello"))

    await empty.delete(gone.id)

    assert [each.id for each in await empty.list()] == [kept.id]
    assert await empty.messages(kept.id) == [UserMessage("hello")]
    _, *rows = (await dump(place))["messages"]
    assert [row[0] for row in rows] == [kept.id]


@each_row("id", ["nobody", "", "a\0b", "\ud800", "%", "' OR 1=1 --"])
async def test_every_use_of_an_unknown_id_fails_with_a_hint(store: ConversationStore, id: str):
    for use in (
        store.append(id, UserMessage("hello")),
        store.messages(id),
        store.resume(id),
        store.update(id, title="x"),
        store.delete(id),
        store.resolve(id),
    ):
        with pytest.raises(UnknownConversation, match="interlock conversations list"):
            await use


async def test_resolve_accepts_an_unambiguous_prefix_of_an_id(
    empty: ConversationStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("interlock.store.chat.conversations._ID_LETTERS", "a")
    monkeypatch.setattr("interlock.store.chat.conversations._ID_LENGTH", 3)
    short = await empty.create()
    monkeypatch.setattr("interlock.store.chat.conversations._ID_LENGTH", 5)
    long = await empty.create()
    await empty.append(long.id, UserMessage("hello"))

    assert (await empty.resolve("aaaa")).message_count == 1
    assert await empty.resolve("aaa") == short  # a complete id, although another one starts with it
    with pytest.raises(UnknownConversation, match="'aa' could be aaa, aaaaa: give more of the id"):
        await empty.resolve("aa")
    with pytest.raises(UnknownConversation):
        await empty.resolve("A")


# Owners


async def test_owners_list_and_resolve_only_their_own_conversations(empty: ConversationStore):
    anna, berta = empty.owned_by("user:anna"), empty.owned_by("user:berta")
    of_anna, of_berta, local = await anna.create(), await berta.create(), await empty.create()

    assert [of_anna.owner, of_berta.owner, local.owner] == ["user:anna", "user:berta", ""]
    assert await anna.list() == [of_anna]
    assert await berta.list() == [of_berta]
    assert await empty.list() == [local]
    assert await anna.resolve(of_anna.id) == of_anna
    with pytest.raises(UnknownConversation):
        await anna.resolve(of_berta.id)


async def test_a_conversation_of_another_owner_is_unknown(empty: ConversationStore):
    anna, berta = empty.owned_by("user:anna"), empty.owned_by("user:berta")
    id = (await anna.create("kept")).id
    await anna.append(id, UserMessage("hello"))

    for use in (
        berta.append(id, UserMessage("intruder")),
        berta.messages(id),
        berta.resume(id),
        berta.update(id, title="x"),
        berta.delete(id),
    ):
        with pytest.raises(UnknownConversation):
            await use
    assert await anna.messages(id) == [UserMessage("hello")]
    assert (await anna.resolve(id)).title == "kept"


async def test_a_store_opened_for_an_owner_creates_conversations_of_that_owner(place: str):
    async with ConversationStore.open(place, owner="user:anna") as store:
        made = await store.create()

    async with ConversationStore.open(place) as store:
        assert await store.list() == []
        assert await store.owned_by("user:anna").list() == [made]


# Messages


@each_row(
    "message",
    [
        SystemMessage("Be brief."),
        UserMessage(""),
        UserMessage("日本語 🗼 \u202e‮ \r\n\t 'quoted' \"double\" \\ %s :id ?"),
        UserMessage("NUL \0 and \0\0"),
        UserMessage("x" * 3_000_000),
        AssistantMessage(),
        AssistantMessage("text", (CALL, ToolCall("2", "add"))),
        AssistantMessage("", (ToolCall("1", "add", {}, malformed='{"a": '),)),
        AssistantMessage(
            "",
            (ToolCall("\0", "日", {"": [None, True, 2**200, -(2**63), 1.5e300, {"\0": "x"}]}),),
        ),
        AssistantMessage("thought", provider_data={"provider": "anthropic", "signature": "\0é"}),
        AssistantMessage("thought", provider_data={}),
        ToolMessage("1", "", "add", loads=("s__a", "s__b")),
        ToolMessage("1", "\0", "", is_error=True),
    ],
)
async def test_a_message_is_read_back_unchanged(store: ConversationStore, message: Message):
    made = await store.create()
    await store.append(made.id, message)

    assert await store.messages(made.id) == [message]


async def test_messages_keep_their_order_over_many_appends(store: ConversationStore):
    made = await store.create()
    sent = [UserMessage(str(number)) for number in range(20)]
    for start in range(0, 20, 4):
        await store.append(made.id, *sent[start : start + 4])
    await store.append(made.id)

    assert await store.messages(made.id) == sent
    assert (await store.resolve(made.id)).message_count == 20


async def test_one_invalid_message_prevents_the_whole_append(store: ConversationStore):
    made = await store.create()

    with pytest.raises(StoreError, match="not JSON"):
        await store.append(made.id, UserMessage("a"), AssistantMessage(provider_data={"x": {1}}))

    assert await store.messages(made.id) == []


@pytest.mark.slow("fills a database")
async def test_concurrent_appends_keep_their_messages_together(store: ConversationStore):
    made = await store.create()
    await asyncio.gather(
        *(store.append(made.id, UserMessage(f"{n} a"), UserMessage(f"{n} b")) for n in range(40))
    )

    contents = [message.content for message in await store.messages(made.id)]

    assert sorted(contents) == sorted(f"{n} {part}" for n in range(40) for part in "ab")
    pairs = zip(contents[::2], contents[1::2], strict=True)
    assert all(first.split()[0] == second.split()[0] for first, second in pairs)


async def test_two_open_stores_see_each_others_messages(place: str):
    async with ConversationStore.open(place) as store:
        made = await store.create("kept")
        await store.append(made.id, *PAIR)

    async with ConversationStore.open(place) as one, ConversationStore.open(place) as other:
        assert await one.messages(made.id) == list(PAIR)
        await one.append(made.id, UserMessage("more"))
        assert len(await other.messages(made.id)) == 3


async def test_later_of_two_appends_after_the_same_message_is_refused_and_then_succeeds(place: str):
    async with ConversationStore.open(place) as one, ConversationStore.open(place) as other:
        made = await one.create()
        tries = [
            store.append_after(made.id, 0, UserMessage(name))
            for name, store in (("a", one), ("b", other))
        ]
        positions = await asyncio.gather(*tries)
        assert sorted(map(str, positions)) == ["0", "None"]
        late, store = [("a", one), ("b", other)][positions.index(None)]
        assert await store.append_after(made.id, 1, UserMessage(late), *PAIR) == 3

        assert {each.content for each in (await one.messages(made.id))[:2]} == {"a", "b"}
        assert (await one.resolve(made.id)).message_count == 4


# Resuming


async def test_resume_of_a_complete_conversation_changes_nothing(store: ConversationStore):
    made = await store.create()
    assert await store.resume(made.id) == []
    await store.append(made.id, UserMessage("time?"), *PAIR, AssistantMessage("noon"))
    before = await store.resolve(made.id)

    assert await store.resume(made.id) == await store.messages(made.id)
    assert await store.resolve(made.id) == before


async def test_resume_stores_answers_to_unanswered_calls(store: ConversationStore):
    made = await store.create()
    second = ToolCall("2", "clock__zones")
    called = AssistantMessage("", (CALL, second))
    await store.append(made.id, UserMessage("time?"), called, PAIR[1])

    resumed = await store.resume(made.id)

    assert resumed == [UserMessage("time?"), called, PAIR[1], interrupted(second)]
    assert await store.messages(made.id) == resumed
    assert await store.resume(made.id) == resumed


async def test_concurrent_resumes_answer_each_call_once(place: str):
    async with ConversationStore.open(place) as one, ConversationStore.open(place) as other:
        made = await one.create()
        await one.append(made.id, PAIR[0])

        resumed = await asyncio.gather(*(store.resume(made.id) for store in [one, other] * 5))

        assert await one.messages(made.id) == [PAIR[0], interrupted(CALL)]
        assert resumed == [[PAIR[0], interrupted(CALL)]] * 10


async def test_resume_leaves_out_a_result_that_came_after_the_interruption(
    store: ConversationStore,
):
    made = await store.create()
    await store.append(made.id, PAIR[0])
    resumed = await store.resume(made.id)
    await store.append(made.id, PAIR[1], UserMessage("and?"))

    assert await store.resume(made.id) == [*resumed, UserMessage("and?")]
    assert await store.messages(made.id) == [*resumed, PAIR[1], UserMessage("and?")]


# Cancellation and closing


@pytest.mark.slow("fills a database")
async def test_a_cancelled_append_adds_all_messages_or_none(store: ConversationStore):
    made = await store.create()
    tried = 40
    for step in range(tried):
        task = asyncio.create_task(store.append(made.id, *PAIR))
        await asyncio.wait([task], timeout=step / 10_000)
        task.cancel()
        await asyncio.wait([task])

    messages = await store.messages(made.id)
    assert messages == list(PAIR) * (len(messages) // 2)
    assert tried / 2 <= len(messages) / 2 <= tried
    await store.append(made.id, UserMessage("still here"))


async def test_the_store_works_after_cancelled_reads(store: ConversationStore):
    made = await store.create()
    await store.append(made.id, *PAIR)
    for step in range(20):
        task = asyncio.create_task(store.messages(made.id))
        await asyncio.wait([task], timeout=step / 10_000)
        task.cancel()
        await asyncio.wait([task])

    assert await store.messages(made.id) == list(PAIR)


@pytest.mark.slow("fills a database")
async def test_the_database_works_after_cancelled_opens(new_place: str):
    async def open_and_close() -> None:
        async with ConversationStore.open(new_place):
            pass

    for step in range(20):
        task = asyncio.create_task(open_and_close())
        await asyncio.wait([task], timeout=step / 1_000)
        task.cancel()
        await asyncio.wait([task])

    async with ConversationStore.open(new_place) as store:
        assert await store.list() == []


@pytest.mark.usefixtures("no_thread_is_left")  # each connection to SQLite has a thread
async def test_cancelled_close_leaves_no_connection(sqlite: str):
    async def open_and_close(is_open: asyncio.Event) -> None:
        async with ConversationStore.open(sqlite):
            is_open.set()

    for turns in range(5):  # of the event loop, until the cancellation
        is_open = asyncio.Event()
        task = asyncio.create_task(open_and_close(is_open))
        await is_open.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])


async def test_close_waits_for_an_append_that_was_cancelled_twice(place: str):
    async with ConversationStore.open(place) as store:
        made = await store.create()
        task = asyncio.create_task(store.append(made.id, *PAIR))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    async with ConversationStore.open(place) as store:
        assert await store.messages(made.id) == list(PAIR)


async def test_a_closed_store_refuses_reads_and_writes(place: str):
    async with ConversationStore.open(place) as store:
        made = await store.create()

    with pytest.raises(StoreError, match="has been closed"):
        await store.append(made.id, UserMessage("too late"))
    with pytest.raises(StoreError, match="has been closed"):
        await store.list()


@pytest.mark.slow("fills a database")
async def test_more_concurrent_reads_than_connections_all_succeed(store: ConversationStore):
    made = await store.create()
    await store.append(made.id, *PAIR)

    found = await asyncio.gather(*(store.messages(made.id) for _ in range(60)))

    assert found == [list(PAIR)] * 60


@pytest.mark.parametrize("count", [None, 1])
async def test_fork_copies_the_first_messages_and_leaves_the_original(
    store: ConversationStore, count: int | None
):
    original = await store.create("One", "scripted:x")
    said = [UserMessage("a"), AssistantMessage("b")]
    await store.append(original.id, *said)
    copy = await store.fork(original.id[:8], count)
    await store.append(copy.id, UserMessage("c"))

    assert (copy.title, copy.model) == ("One", "scripted:x")
    assert await store.messages(copy.id) == [*said[:count], UserMessage("c")]
    assert await store.messages(original.id) == said


async def test_conversation_of_another_owner_cannot_be_forked(store: ConversationStore):
    original = await store.create("One")

    with pytest.raises(UnknownConversation):
        await store.owned_by("user:anna").fork(original.id)
