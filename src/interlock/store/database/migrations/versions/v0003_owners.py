"""Conversations have an owner; those from before belong to the local user."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add an empty `owner` to `conversations`, and index them by it."""
    op.add_column("conversations", sa.Column("owner", sa.String, nullable=False, server_default=""))
    op.create_index("conversations_owner_updated", "conversations", ["owner", "updated"])
    op.drop_index("conversations_updated", "conversations")
