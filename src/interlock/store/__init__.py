"""Conversations, API keys and audit records, in SQLite or PostgreSQL.

Importing this package is fast: SQLAlchemy is imported when one of the package's names is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from interlock.errors import MissingExtra

if TYPE_CHECKING:
    from interlock.store.audit.reading import AuditReader
    from interlock.store.audit.upkeep import open_trail
    from interlock.store.audit.writer import AuditRecord, AuditWriter
    from interlock.store.chat.conversations import Conversation, ConversationStore
    from interlock.store.keys import KeyStore

__all__ = [
    "AuditReader",
    "AuditRecord",
    "AuditWriter",
    "Conversation",
    "ConversationStore",
    "KeyStore",
    "open_trail",
]

_HOMES = {
    "AuditReader": "audit.reading",
    "AuditRecord": "audit.writer",
    "AuditWriter": "audit.writer",
    "Conversation": "chat.conversations",
    "ConversationStore": "chat.conversations",
    "KeyStore": "keys",
    "open_trail": "audit.upkeep",
}
NEEDED = {"aiosqlite", "greenlet", "sqlalchemy"}  # the packages that the extra `chat` installs


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"interlock.store.{_HOMES[name]}")
    except ImportError as error:
        if error.name not in NEEDED:
            raise
        if "Conversation" in name:
            raise MissingExtra("keeping conversations", "chat") from error
        raise MissingExtra("the gateway's database", "serve,chat") from error
    return getattr(module, name)
