"""Approvals of exact calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create `approvals`."""
    op.create_table(
        "approvals",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("call", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("key", sa.String, nullable=False),
        sa.Column("server", sa.String, nullable=False),
        sa.Column("tool", sa.String, nullable=False),
        sa.Column("arguments", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.String, nullable=False),
        sa.Column("rule", sa.String, nullable=False),
        sa.Column("policy", sa.String, nullable=False),
        sa.Column("pin", sa.String, nullable=False),
        sa.Column("approvers", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
        sa.Column("decided_by", sa.String),
        sa.Column("decided_at", sa.BigInteger),
        sa.Column("note", sa.Text),
        sa.Column("used_by_call", sa.String),
    )
    op.create_index("approvals_state_created", "approvals", ["state", "created"])
    op.create_index("approvals_call", "approvals", ["user", "key", "tool", "hash"])
