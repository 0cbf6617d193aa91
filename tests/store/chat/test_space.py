"""The bytes that users store: limits, sums that stay right, expiry, and the reserve of the disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from interlock.attachments import block
from interlock.config.gateway import ByteQuota, ChatQuotas, Keep
from interlock.errors import StoreFull, UnknownConversation
from interlock.messages import AssistantMessage, UserMessage
from interlock.store import ConversationStore
from interlock.store.chat.chat_calls import ChatCall
from interlock.store.chat.expiry import purge
from interlock.store.chat.space import ChatSpace
from interlock.store.database import tables
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database, open_database
from interlock.store.database.disk_reserve import RESERVE, DiskReserve
from tests.support.rows import each_row

ANNA, BERT = "user:anna", "user:bert"
QUOTAS = ChatQuotas(
    conversations=ByteQuota(per_user=20_000, total=30_000),
    files=ByteQuota(per_user=20_000, total=30_000),
)
NOW = datetime.now(UTC)


@pytest.fixture
async def database(place: str) -> AsyncIterator[Database]:
    opened = await open_database(place)
    yield opened
    await opened.close()


@pytest.fixture
def refused() -> Counter[str]:
    return Counter()


def of(database: Database, refused: Counter[str], owner: str = ANNA) -> ConversationStore:
    space = ChatSpace(lambda: QUOTAS, lambda: refused.update(["storage_full"]))
    return ConversationStore(database, owner, space=space)


async def sums(database: Database) -> dict[tuple[str, str], int]:
    columns = tables.stored_bytes.c

    async def work(connection: AsyncConnection) -> dict[tuple[str, str], int]:
        rows = await connection.execute(select(columns.owner, columns.kind, columns.bytes))
        return {(owner, kind): size for owner, kind, size in rows if size}

    return await database.read(work)


def call(id: str, size: int) -> ChatCall:
    result = bytes(index * 7919 % 251 for index in range(size))
    return ChatCall(f"c_{size}", id, "t_1", "crm:get", {}, "ok", "", 0.1, 1, None, result)


async def message(store: ConversationStore, id: str, size: int) -> None:
    await store.append(id, UserMessage("x" * size))


async def reply(store: ConversationStore, id: str, size: int) -> None:
    await store.append(id, AssistantMessage("ok", provider_data={"signature": "x" * size}))


async def upload(store: ConversationStore, _: str, size: int) -> None:
    await store.files.add("a.bin", "application/octet-stream", bytes(size))


async def title(store: ConversationStore, id: str, size: int) -> None:
    await store.update(id, title="x" * size)


async def settings(store: ConversationStore, id: str, size: int) -> None:
    await store.update(id, settings={"a": "x" * size})


async def fork(store: ConversationStore, id: str, size: int) -> None:
    await message(store, id, size // 2)
    await store.fork(id)


async def create(store: ConversationStore, _: str, size: int) -> None:
    await store.create("x" * size)


WRITES: list[tuple[str, Callable[[ConversationStore, str, int], Awaitable[None]]]] = [
    ("your conversations", message),
    ("your conversations", reply),
    ("your conversations", title),
    ("your conversations", settings),
    ("your conversations", fork),
    ("your conversations", create),
    ("your files", upload),
]


@each_row(("whose", "write"), WRITES)
async def test_write_over_the_limit_of_a_user_is_refused_whole_and_counted(
    whose: str, write: Any, database: Database, refused: Counter[str]
):
    store = of(database, refused)
    id = (await store.create("a")).id
    await write(store, id, 8_000)
    before = await sums(database)

    with pytest.raises(StoreFull, match=rf"{whose} would take .* \(limit 20,000\); delete"):
        await write(store, id, 19_900)

    assert (await sums(database))[ANNA, "conversations"] <= 20_000
    assert write is fork or await sums(database) == before
    assert refused.pop("storage_full") == 1
    for each in await store.list():
        await store.delete(each.id)


async def test_limit_of_all_users_refuses_a_user_with_room_of_their_own(
    database: Database, refused: Counter[str]
):
    await upload(of(database, refused), "", 18_000)

    with pytest.raises(StoreFull, match=r"files of all users would take .* \(limit 30,000\)"):
        await upload(of(database, refused, BERT), "", 18_000)

    await upload(ConversationStore(database), "", 18_000)  # the local user has no limit


async def test_deleting_makes_room_even_over_the_limit(database: Database, refused: Counter[str]):
    store = of(database, refused)
    first = await store.create("a")
    file = await store.files.add("a.txt", "text/plain", bytes(8_000))
    attached = block(file.id, file.type, file.bytes, file.name, "text")
    await store.append(first.id, UserMessage("x" * 4_000 + attached))
    await store.calls.add(call(first.id, 100))
    copy = await store.fork(first.id)

    await store.delete(first.id)
    assert (await store.files.get(file.id))[0] == file  # the copy uses it
    await store.delete(copy.id)

    with pytest.raises(UnknownConversation):
        await store.files.get(file.id)
    assert await sums(database) == {}


async def test_sum_of_a_user_equals_the_rows(database: Database, refused: Counter[str]):
    store = of(database, refused)
    id = (await store.create("ä")).id
    await store.append(id, UserMessage("ünï 😀"), AssistantMessage("ok"))
    await store.calls.add(call(id, 3_000))
    await store.update(id, title="a longer title", settings={"tools": {"a": "off"}})
    await store.fork(id, 1)

    async def work(connection: AsyncConnection) -> int:
        return int(await connection.scalar(select(func.sum(tables.conversations.c.bytes))))

    assert await sums(database) == {(ANNA, "conversations"): await database.read(work)}
    assert sum([each.bytes for each in await store.list()]) == await database.read(work)


async def test_unused_files_and_old_conversations_expire_and_nothing_else(
    database: Database, refused: Counter[str]
):
    store, local = of(database, refused), ConversationStore(database)
    used, unused = [await store.files.add(name, "text/plain", b"x") for name in ("a", "b")]
    kept, own = await store.create("a"), await local.create("b")
    attached = block(used.id, used.type, used.bytes, used.name, "x")
    await store.append(kept.id, UserMessage(attached))

    await purge(database, Keep(), NOW + timedelta(days=6))
    assert len(await store.files.named([used.id, unused.id])) == 2
    await purge(database, Keep(), NOW + timedelta(days=900))
    assert await store.files.named([used.id, unused.id]) == [used]
    await purge(database, Keep(conversations=86_400.0), NOW + timedelta(days=2))

    assert await store.list() == []
    assert [each.id for each in await local.list()] == [own.id]
    assert await sums(database) == {}


async def test_content_leaves_the_reserve_of_the_audit_trail_free(
    tmp_path: Path, refused: Counter[str]
):
    database = await open_database(tmp_path / "a.db")
    free, now = [RESERVE + 5_000], [0.0]
    database.reserve = DiskReserve(tmp_path, free=lambda _: free[0], clock=lambda: now[0])
    store = of(database, refused)
    id = (await store.create("a")).id
    await message(store, id, 3_000)

    for write in (message, upload, create, reply):
        with pytest.raises(StoreFull, match="are for the audit trail"):
            await write(store, id, 3_000)  # the disk is not looked at again within a second
    await store.delete(id)
    free[0], now[0] = RESERVE + 50_000, 1.0
    await create(store, "", 3_000)

    assert refused == {"storage_full": 4}
    await database.close()
