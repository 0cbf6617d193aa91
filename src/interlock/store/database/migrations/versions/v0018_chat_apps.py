"""Which documents of apps users have accepted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Create `chat_apps`."""
    op.create_table(
        "chat_apps",
        sa.Column("owner", sa.String, primary_key=True),
        sa.Column("server", sa.String, primary_key=True),
        sa.Column("uri", sa.String, primary_key=True),
        sa.Column("hash", sa.String, nullable=False),
    )
