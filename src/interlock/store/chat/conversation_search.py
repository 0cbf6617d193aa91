"""Search for conversations whose title or one of whose messages has all words of a query.

1. The last changed conversations are read first, where a frequent word is soon found. Reading all
   places of such a word in an index would be slow.
2. Words that are rare there are looked up in the index; see `store.database.search`.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, and_, case, false, func, or_, select, text, true

from interlock.store.database import tables
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.search import POSTGRES_MATCH, POSTGRES_SCAN, Words

MAX_ROW = 2**63 - 1
AT_ONCE = 1_000  # messages that one query of a search reads
# Conversations, and messages in them, that are read before PostgreSQL uses its index: a few, and
# more if at least every fourth conversation matched.
WALKS = ((100, 1_000), (200, 20_000))
_NEWEST_MATCHES = text(
    "SELECT message_words.conversation_id, message_words.id FROM message_index"
    " JOIN message_words ON message_words.id = message_index.rowid"
    " WHERE message_index MATCH :words AND message_index.rowid < :before"
    " ORDER BY message_index.rowid DESC LIMIT :many"
)


async def matching(
    connection: AsyncConnection, owner: str, query: str, limit: int
) -> ColumnElement[bool]:
    """Return a condition that selects at least the last changed matching conversations."""
    words, columns = Words(query), tables.conversations.c
    titles = _titled(columns.title, words.plain or [query])
    if not words.are_indexed:
        return or_(titles, columns.id.in_(_containing(query)))
    if connection.dialect.name == "sqlite":
        return or_(titles, columns.id.in_(await _newest_with(connection, owner, words, limit)))
    found = await _walked(connection, owner, words, limit)
    if found is not None:
        return columns.id.in_(found)
    return or_(titles, columns.id.in_(_with_words(words)))


def _titled(title: ColumnElement[str], phrases: Sequence[str]) -> ColumnElement[bool]:
    return and_(*(title.icontains(each, autoescape=True) for each in phrases))


def _containing(wanted: str) -> ColumnElement[str]:
    columns = tables.messages.c
    found = select(columns.conversation_id).where(
        columns.role != "system", columns.content.icontains(wanted, autoescape=True)
    )
    return found.scalar_subquery()


# SQLite


async def _newest_with(
    connection: AsyncConnection, owner: str, words: Words, limit: int
) -> set[str]:
    """Return the conversations of the newest messages that have all words."""
    found: set[str] = set()
    given = {"words": words.for_sqlite(owner), "before": MAX_ROW, "many": AT_ONCE}
    while len(found) < limit:
        rows = (await connection.execute(_NEWEST_MATCHES, given)).all()
        found |= {row.conversation_id for row in rows}
        if len(rows) < AT_ONCE:
            break
        given["before"] = rows[-1].id
    return found


# PostgreSQL


def _with_words(words: Words) -> ColumnElement[str]:
    columns = tables.messages.c
    match = text(POSTGRES_MATCH).bindparams(words=words.for_postgres())
    found = select(columns.conversation_id).where(columns.role != "system", match)
    return found.scalar_subquery()


async def _walked(
    connection: AsyncConnection, owner: str, words: Words, limit: int
) -> list[str] | None:
    """Return the last changed matches, or all; None if the index would be faster."""
    for conversations, messages in WALKS:
        rows = await _walk(connection, owner, words, conversations, messages)
        read = [(id, is_match) for id, is_match in rows if is_match is not None]
        found = [id for id, is_match in read if is_match]
        if len(found) >= limit or (len(read) == len(rows) and len(rows) < conversations):
            return found
        if 4 * len(found) < len(read):
            return None
    return None


async def _walk(
    connection: AsyncConnection, owner: str, words: Words, conversations: int, messages: int
) -> list[tuple[str, bool | None]]:
    """Return the last changed conversations, and whether each matches; None for unread ones."""
    columns, said = tables.conversations.c, tables.messages.c
    order = columns.updated.desc(), columns.id.desc()
    chosen = select(columns.id, columns.title, columns.updated).where(columns.owner == owner)
    newest = chosen.order_by(*order).limit(conversations).subquery()
    size = select(func.count()).where(said.conversation_id == newest.c.id).scalar_subquery()
    up_to = func.sum(size).over(order_by=(newest.c.updated.desc(), newest.c.id.desc()))
    sized = select(newest, up_to.label("up_to")).subquery()
    match = text(POSTGRES_SCAN).bindparams(words=words.for_postgres())
    first = select(true()).where(said.conversation_id == sized.c.id, said.role != "system", match)
    has_words = func.coalesce(first.limit(1).scalar_subquery(), false())
    is_match = or_(_titled(sized.c.title, words.plain), has_words)
    rows = await connection.execute(
        select(sized.c.id, case((sized.c.up_to <= messages, is_match)))
        .order_by(sized.c.updated.desc(), sized.c.id.desc())
    )  # fmt: skip
    return [(id, is_match) for id, is_match in rows]
