"""Audit records, and the head of each writer's chain."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_TEXTS = ("tenant", "kind", "call", "user", "key", "server", "tool", "status", "reason")


def upgrade() -> None:
    """Create `audit` and `audit_heads`."""
    op.create_table(
        "audit",
        sa.Column("writer", sa.String, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.String, nullable=False) for name in _TEXTS),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
    )
    op.create_index("audit_at", "audit", ["at"])
    op.create_index("audit_call", "audit", ["call"])
    op.create_index("audit_user_at", "audit", ["user", "at"])
    op.create_index("audit_tool_at", "audit", ["tool", "at"])
    op.create_table(
        "audit_heads",
        sa.Column("writer", sa.String, primary_key=True),
        sa.Column("started", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.BigInteger),
        sa.Column("host", sa.String, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("signature", sa.LargeBinary),
        sa.Column("signed_at", sa.BigInteger),
    )
