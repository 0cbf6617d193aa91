"""Conversations and their messages, kept in SQLite or PostgreSQL.

Importing this package costs nothing; SQLAlchemy is imported with the first use of `Store`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.errors import MissingExtra

if TYPE_CHECKING:
    from interlock.store.conversations import Conversation, Store

__all__ = ["Conversation", "Store"]

_NEEDED = {"aiosqlite", "alembic", "greenlet", "sqlalchemy"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from interlock.store import conversations
    except ImportError as error:
        # SQLAlchemy raises one of its own, without a name, for greenlet.
        missing = error if error.name else error.__cause__
        if getattr(missing, "name", None) not in _NEEDED:
            raise
        raise MissingExtra("keeping conversations", "chat") from error
    return getattr(conversations, name)
