"""The two tables, as they are now. `migrations/` is how they came to be."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
)

# Oldest first; the last one is what this program reads and writes. Kept here, because asking
# Alembic means importing it.
REVISIONS = ("0001", "0002")


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time. SQLite keeps no zone, so the column is UTC by agreement."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Turn any zone into UTC."""
        return value.astimezone(UTC) if value else None

    def process_result_value(self, value: datetime | None, _dialect: Dialect) -> datetime | None:
        """Give SQLite's naive times their zone back."""
        return value.replace(tzinfo=UTC) if value and not value.tzinfo else value


metadata = MetaData()

conversations = Table(
    "conversations",
    metadata,
    Column("id", String, primary_key=True),
    Column("title", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    Column("updated", UtcDateTime, nullable=False),
    Index("conversations_updated", "updated"),
)

messages = Table(
    "messages",
    metadata,
    Column(
        "conversation_id",
        String,
        ForeignKey("conversations.id", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("position", Integer, primary_key=True, autoincrement=False),  # from 0, without gaps
    Column("role", String, nullable=False),
    Column("content", Text, nullable=False),
    Column("created", UtcDateTime, nullable=False),
    # What follows is JSON, and NULL where a message has no such thing.
    Column("tool_calls", Text),  # of an assistant message: [{id, name, input, malformed?}]
    Column("tool_results", Text),  # of a tool message: [{tool_call_id, name, is_error}]
    Column("provider_data", Text),
    Column("content_json", Text),  # the exact content, where a text column cannot hold it
)

versions = Table("alembic_version", MetaData(), Column("version_num", String, primary_key=True))
