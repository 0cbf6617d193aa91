"""The drafts of answers that are being written: their texts change often, and many at a time."""

from __future__ import annotations

import asyncio

from sqlalchemy import and_, bindparam, update

from interlock.store.database import tables
from interlock.store.database.database import Database

_columns = tables.messages.c
_IS_DRAFT = and_(
    _columns.conversation_id == bindparam("conversation"),
    _columns.position == bindparam("place"),
    _columns.unfinished == tables.DRAFT,
)
_REWRITE = update(tables.messages).where(_IS_DRAFT).values(content=bindparam("text"))


GATHER_SECONDS = 0.1  # a transaction for each of a thousand answers would take a whole core


class DraftWriter:
    """Replaces texts of drafts; those that arrive within `GATHER_SECONDS` share a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._texts: dict[tuple[str, int], str] = {}
        self._writing = asyncio.Lock()

    async def put(self, conversation: str, position: int, text: str) -> None:
        """Replace the text of a draft, if it still is one."""
        key = conversation, position
        self._texts[key] = text
        async with self._writing:
            if key not in self._texts:
                return  # the previous transaction has stored this text
            await asyncio.sleep(GATHER_SECONDS)
            texts, self._texts = self._texts, {}
            rows = [
                {"conversation": id, "place": place, "text": each}
                for (id, place), each in texts.items()
            ]
            await self._database.write(lambda connection: connection.execute(_REWRITE, rows))
