"""Search of conversations: words of titles and messages, in SQLite and PostgreSQL."""

from __future__ import annotations

import pytest

from interlock.messages import SystemMessage, UserMessage
from interlock.store import ConversationStore
from interlock.store.chat import conversation_search


@pytest.mark.slow("fills a database")
async def test_search_finds_words_of_titles_and_messages_of_the_owner(empty: ConversationStore):
    asked = await empty.create("Trip to Tokyo")
    said = await empty.create("Other")
    await empty.append(said.id, UserMessage("100% of TOKYO_ in tokyo/osaka.txt, by v1.2"))
    other = empty.owned_by("user:anna")
    foreign = await other.create("Tokyo")
    await other.append(foreign.id, UserMessage("osaka"))

    async def found(query: str) -> list[str]:
        return [each.id for each in await empty.search(query)]

    assert await found("tokyo_") == [said.id, asked.id]
    assert await found("okyo") == [asked.id]  # titles are short, so parts of their words count
    for query in ("osaka", "OSA", "of osaka", "osaka 100", '"of tokyo"', "v1.2"):
        assert await found(query) == [said.id], query
    for query in ("saka", '"tokyo of"', '"of tok"', "100 kyoto", "osaka kyoto"):
        assert await found(query) == [], query


@pytest.mark.slow("fills a database")
async def test_search_of_a_language_without_spaces_finds_parts_of_texts(empty: ConversationStore):
    said = await empty.create("Other")
    await empty.append(said.id, UserMessage("明日東京へ行きます"))

    assert [each.id for each in await empty.search("東京")] == [said.id]
    assert await empty.search("大阪") == []


@pytest.mark.slow("fills a database")
async def test_search_finds_copies_and_no_deleted_message(empty: ConversationStore):
    first = await empty.create("a")
    instruction, question = SystemMessage("about kyoto"), UserMessage("about osaka")
    await empty.append(first.id, instruction, question)
    copy = await empty.fork(first.id)
    both = [each.id for each in await empty.search("osaka")]
    await empty.delete(first.id)

    assert both == [copy.id, first.id]
    assert [each.id for each in await empty.search("osaka")] == [copy.id]
    assert await empty.search("kyoto") == []


QUERIES = [
    '"', '""', '"""', "'", "''", "\\", "*", "tokyo*", "^tokyo", "-tokyo", "+tokyo", "(tokyo", ")",
    "AND", "OR", "NOT", "tokyo AND", "OR tokyo", "NEAR(tokyo)", "a NEAR/2 b", "content:tokyo",
    "owner:o", 'owner : "o"', "{content} : x", "tokyo | x", "tokyo & x", "!tokyo", "tokyo:*",
    "tokyo <-> x", "a:A", "%", "_", "\0", "\ud800", ":words", "%(words)s", "{}", "x" * 5_000,
    "a " * 500, "\u202e", "🙂", "; DROP TABLE messages", "') OR 1=1 --",
]  # fmt: skip


@pytest.mark.slow("fills a database")
async def test_no_query_breaks_the_search_or_finds_conversations_of_others(
    empty: ConversationStore,
):
    other = empty.owned_by("user:anna")
    foreign = await other.create("Tokyo")
    await other.append(foreign.id, UserMessage("tokyo content owner o x a b"))

    for query in QUERIES:
        assert await empty.search(query) == [], query
    assert [each.id for each in await other.search("tokyo")] == [foreign.id]


async def filled(store: ConversationStore) -> list[str]:
    """Fill a store; return the ids of its conversations, the last changed first."""
    made = []
    for number, said in enumerate(["both words", "words both", "both", "x", "both", "both"]):
        conversation = await store.create(f"Title {number}")
        await store.append(conversation.id, UserMessage("x"), UserMessage(said))
        made.insert(0, conversation.id)
    return made


@pytest.mark.parametrize(
    "walks", [(), ((1, 100),), ((3, 1), (9, 9)), ((4, 100), (4, 3)), ((9, 9),)]
)
async def test_search_of_postgresql_finds_the_same_however_much_it_reads_first(
    postgres: str, monkeypatch: pytest.MonkeyPatch, walks: tuple[tuple[int, int], ...]
):
    monkeypatch.setattr(conversation_search, "WALKS", walks)
    async with ConversationStore.open(postgres) as store:
        made = await filled(store)

        async def found(query: str, limit: int = 50) -> list[int]:
            return [made.index(each.id) for each in await store.search(query, limit)]

        assert await found("both") == [0, 1, 3, 4, 5]
        assert await found("both", 2) == [0, 1]
        assert await found('"words both"') == [4]
        assert await found("title 3") == [2]
        assert await found("bot x") == await found("bothx") == []


async def test_frequent_word_is_found_in_postgresql_without_reading_all_its_places(
    postgres: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(conversation_search, "_with_words", None)  # nothing may ask the index
    async with ConversationStore.open(postgres) as store:
        made = await filled(store)
        monkeypatch.setattr(conversation_search, "WALKS", ((4, 8),))

        assert [each.id for each in await store.search("both", 3)] == [made[0], made[1], made[3]]


@pytest.mark.slow("fills a database")
async def test_result_has_the_position_of_its_newest_message_that_matches(
    empty: ConversationStore,
):
    one, other = await empty.create("Milk and oats"), await empty.create("Tea")
    said = ["oats", "tea", "oat drink", "\u71d5\u9ea6", "bread", "milk"]
    await empty.append(one.id, *(UserMessage(each) for each in said))
    await empty.append(other.id, UserMessage("oats"), UserMessage("bread"))
    found = {}
    for query in ("oat", '"oat drink"', "\u71d5", "and", "bread"):
        found[query] = {each.id: each.hit for each in await empty.search(query)}

    assert found == {
        "oat": {one.id: 2, other.id: 0},
        '"oat drink"': {one.id: 2},
        "\u71d5": {one.id: 3},
        "and": {one.id: None},
        "bread": {one.id: 4, other.id: 1},
    }
