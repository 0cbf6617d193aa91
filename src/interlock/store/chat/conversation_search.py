"""Search for conversations in which a title or a message contains all words of a query.

1. The most recently changed conversations are read first, because a frequent word is soon found
   there. Reading all occurrences of a frequent word from an index would be slow.
2. If too few are found, a full-text index is used: our own in SQLite, the built-in one in
   PostgreSQL.
3. The words of a query may occur in any order. A word matches any word that begins with it, except
   that a single letter matches only itself. Words in double quotes must be adjacent. A query has no
   other syntax.
4. Chinese, Japanese, Korean and Thai have no spaces between words. Queries in these languages, and
   queries without letters, are searched verbatim in all messages of the owner.
5. The SQLite index contains the owner of each message, so the time of a search does not depend on
   other owners' conversations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from sqlalchemy import (
    Boolean,
    ColumnElement,
    and_,
    case,
    false,
    func,
    or_,
    select,
    text,
    true,
    type_coerce,
)

from interlock.store.database import tables
from interlock.store.database.connection import AsyncConnection

MAX_ROW = 2**63 - 1
MAX_TERMS = 32  # terms in a query; further terms are ignored
AT_ONCE = 1_000  # messages that a search reads in one query
# How many conversations, and messages in them, to read before PostgreSQL uses its index. The second
# pair applies if at least every fourth conversation of the first pass matched.
WALKS = ((100, 1_000), (200, 20_000))
_NEWEST_MATCHES = text(
    "SELECT message_words.conversation_id, message_words.id, message_words.position"
    " FROM message_index"
    " JOIN message_words ON message_words.id = message_index.rowid"
    " WHERE message_index MATCH :words AND message_index.rowid < :before"
    " ORDER BY message_index.rowid DESC LIMIT :many"
)
_TERM = re.compile(r'"([^"]*)"|([^\s"]+)')
_WORD = re.compile(r"[^\W_]+")
# Compiled on first use, because compiling takes 3 ms.
_NO_SPACES = "[\u0e00-\u0e7f\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]"
_POSTGRES_MATCH = "messages.words @@ to_tsquery('simple', :words)"
# The function behind the operator `@@`: PostgreSQL uses indexes only for the operator.
_POSTGRES_SCAN = "ts_match_vq(messages.words, to_tsquery('simple', :words))"


class Words:
    """The words in a search query.

    Args:
        query: The query as the user typed it.

    Attributes:
        are_indexed: Whether the index can find the words; otherwise the query is searched verbatim.
    """

    def __init__(self, query: str) -> None:
        self._phrases: list[tuple[list[str], bool]] = []
        for quoted, plain in _TERM.findall(query)[:MAX_TERMS]:
            words = _WORD.findall(quoted or plain)
            if words:
                self._phrases.append((words, bool(plain) and len(words[-1]) > 1))
        self.are_indexed = bool(self._phrases) and not re.search(_NO_SPACES, query)

    @property
    def plain(self) -> list[str]:
        return [" ".join(words) for words, _ in self._phrases]

    def for_sqlite(self, owner: str) -> str:
        phrases = [f'"{" ".join(words)}"{"*" * starts}' for words, starts in self._phrases]
        return f'owner : "o{owner.encode().hex()}" AND content : ({" AND ".join(phrases)})'

    def for_postgres(self) -> str:
        phrases = []
        for words, starts in self._phrases:
            quoted = [f"'{word}'" for word in words]
            quoted[-1] += ":*" * starts
            phrases.append(f"({' <-> '.join(quoted)})")
        return " & ".join(phrases)


class Matches(NamedTuple):
    """The matches of a search.

    Attributes:
        condition: Selects at least the most recently changed conversations that match.
        message: Selects the messages that match; None if `hits` is complete.
        hits: The positions of the newest messages that match, by conversation.
    """

    condition: ColumnElement[bool]
    message: ColumnElement[bool] | None = None
    hits: Mapping[str, int] = MappingProxyType({})


async def matching(connection: AsyncConnection, owner: str, query: str, limit: int) -> Matches:
    """Return the matches of a search."""
    words, columns = Words(query), tables.conversations.c
    titles = _titled(columns.title, words.plain or [query])
    if not words.are_indexed:
        message = tables.messages.c.content.icontains(query, autoescape=True)
        return Matches(or_(titles, columns.id.in_(_with_words(message))), message)
    if connection.dialect.name == "sqlite":
        hits = await _newest_with(connection, owner, words, limit)
        return Matches(or_(titles, columns.id.in_([*hits])), hits=hits)
    match = text(_POSTGRES_MATCH).bindparams(words=words.for_postgres())
    message = type_coerce(match, Boolean)
    found = await _walked(connection, owner, words, limit)
    if found is not None:
        return Matches(columns.id.in_(found), message)
    return Matches(or_(titles, columns.id.in_(_with_words(message))), message)


async def newest_hits(
    connection: AsyncConnection, matches: Matches, conversations: Sequence[str]
) -> Mapping[str, int]:
    """Return the positions of the newest matching messages, by conversation."""
    if matches.message is None:
        return matches.hits
    columns = tables.messages.c
    query = (
        select(columns.conversation_id, func.max(columns.position))
        .where(columns.conversation_id.in_(conversations), columns.role != "system")
        .where(matches.message)
        .group_by(columns.conversation_id)
    )
    rows = (await connection.execute(query)).all()
    return {row[0]: row[1] for row in rows}


def _titled(title: ColumnElement[str], phrases: Sequence[str]) -> ColumnElement[bool]:
    return and_(*(title.icontains(each, autoescape=True) for each in phrases))


def _with_words(message: ColumnElement[bool]) -> ColumnElement[str]:
    columns = tables.messages.c
    return (
        select(columns.conversation_id).where(columns.role != "system", message).scalar_subquery()
    )


# SQLite


async def _newest_with(
    connection: AsyncConnection, owner: str, words: Words, limit: int
) -> dict[str, int]:
    """Return the newest messages that contain all words: their positions, by conversation."""
    found: dict[str, int] = {}
    given = {"words": words.for_sqlite(owner), "before": MAX_ROW, "many": AT_ONCE}
    while len(found) < limit:
        rows = (await connection.execute(_NEWEST_MATCHES, given)).all()
        for row in rows:
            found.setdefault(row.conversation_id, row.position)
        if len(rows) < AT_ONCE:
            break
        given["before"] = rows[-1].id
    return found


# PostgreSQL


async def _walked(
    connection: AsyncConnection, owner: str, words: Words, limit: int
) -> list[str] | None:
    """Return the most recently changed matches; None if using the index would be faster."""
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
    """Return recent conversations, and whether each matches; None for those not read."""
    columns, said = tables.conversations.c, tables.messages.c
    order = columns.updated.desc(), columns.id.desc()
    chosen = select(columns.id, columns.title, columns.updated).where(columns.owner == owner)
    newest = chosen.order_by(*order).limit(conversations).subquery()
    size = select(func.count()).where(said.conversation_id == newest.c.id).scalar_subquery()
    up_to = func.sum(size).over(order_by=(newest.c.updated.desc(), newest.c.id.desc()))
    sized = select(newest, up_to.label("up_to")).subquery()
    match = text(_POSTGRES_SCAN).bindparams(words=words.for_postgres())
    first = select(true()).where(said.conversation_id == sized.c.id, said.role != "system", match)
    has_words = func.coalesce(first.limit(1).scalar_subquery(), false())
    is_match = or_(_titled(sized.c.title, words.plain), has_words)
    rows = await connection.execute(
        select(sized.c.id, case((sized.c.up_to <= messages, is_match)))
        .order_by(sized.c.updated.desc(), sized.c.id.desc())
    )  # fmt: skip
    return [(id, is_match) for id, is_match in rows]
