"""What the pages of the chat keep: branches, settings, models, call cards and files."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add columns to `conversations` and `messages`; create `chat_calls` and `chat_files`."""
    text = sa.Column("settings", sa.Text, nullable=False, server_default="{}")
    op.add_column("conversations", text)
    parent = sa.Column("parent", sa.String, nullable=False, server_default="")
    op.add_column("conversations", parent)
    op.add_column("conversations", sa.Column("forked_at", sa.Integer))
    op.add_column("messages", sa.Column("model", sa.Text))
    op.create_table(
        "chat_calls",
        sa.Column(
            "conversation_id",
            sa.String,
            sa.ForeignKey("conversations.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tool_call_id", sa.String, nullable=False),
        sa.Column("tool", sa.String, nullable=False),
        sa.Column("arguments", sa.Text, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("approval", sa.Text),
        sa.Column("result", sa.LargeBinary),
    )
    op.create_index("chat_calls_id", "chat_calls", ["id"])
    op.create_table(
        "chat_files",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("type", sa.String, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_index("chat_files_owner_created", "chat_files", ["owner", "created"])
