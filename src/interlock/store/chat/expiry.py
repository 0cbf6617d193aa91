"""The deletion of expired conversations, of unused files, and of old rows of `changes`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from interlock.config.gateway import Keep
from interlock.errors import StoreError, UnknownConversation
from interlock.store.chat.chat_files import delete_unused, is_used
from interlock.store.chat.conversations import ConversationStore
from interlock.store.chat.space import ChatSpace
from interlock.store.database import tables
from interlock.store.database.changes import delete_old_changes
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database

PURGE_EVERY = 3_600.0  # seconds between two purges
PURGED_AT_ONCE = 50  # rows that are read or deleted in one transaction

_log = logging.getLogger("interlock.gateway")


async def purge_regularly(database: Database, keep: Callable[[], Keep]) -> None:
    """Delete what has expired, once an hour, until cancelled."""
    while True:
        try:
            await delete_old_changes(database)
            await purge(database, keep(), datetime.now(UTC))
        except StoreError as error:
            _log.warning("old conversations, files and changes are not deleted yet: %s", error)
        except Exception:
            _log.exception("old conversations, files and changes are not deleted")
        await asyncio.sleep(PURGE_EVERY)


async def purge(database: Database, keep: Keep, now: datetime) -> None:
    """Delete conversations of users, and unused files, that are older than `keep` says.

    The conversations of the local user are their own, and do not expire.
    """
    if keep.conversations is not None:
        before = now - timedelta(seconds=keep.conversations)
        while await _purge_conversations(database, before):
            pass
    files = tables.chat_files.c
    is_old = files.created < int((now.timestamp() - keep.files) * 1_000_000)
    some = select(files.id).where(is_old, ~is_used()).limit(PURGED_AT_ONCE)

    async def work(connection: AsyncConnection) -> int:
        return await delete_unused(connection, ChatSpace(), files.id.in_(some))

    while await database.write(work):
        pass


async def _purge_conversations(database: Database, before: datetime) -> int:
    columns = tables.conversations.c
    query = select(columns.owner, columns.id).where(columns.owner != "", columns.updated < before)

    async def old(connection: AsyncConnection) -> list[tuple[str, str]]:
        rows = await connection.execute(query.limit(PURGED_AT_ONCE))
        return [(row.owner, row.id) for row in rows]

    found = await database.read(old)
    for owner, id in found:
        try:
            await ConversationStore(database, owner).delete(id)
        except UnknownConversation:  # its owner, or another gateway, has just deleted it
            continue
    return len(found)
