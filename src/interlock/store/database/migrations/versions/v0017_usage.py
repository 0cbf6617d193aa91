"""Tokens of messages, as their providers counted them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Add `usage` to `messages`."""
    op.add_column("messages", sa.Column("usage", sa.Text))
