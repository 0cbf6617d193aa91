"""Accepted definitions of tools, prompts and servers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create `pins`."""
    op.create_table(
        "pins",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("server", sa.String, primary_key=True),
        sa.Column("kind", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("hash", sa.String),
        sa.Column("definition", sa.Text),
        sa.Column("seen_hash", sa.String),
        sa.Column("seen_definition", sa.Text),
        sa.Column("risk", sa.String),
        sa.Column("decided_by", sa.String),
        sa.Column("decided_at", sa.BigInteger),
        sa.Column("since", sa.BigInteger, nullable=False),
    )
