"""Indexes of `audit` without the outcomes that most calls have."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Make the indexes of time, user and tool partial."""
    where = sa.text("status <> 'ok' OR reason <> ''")
    for name, columns in (
        ("audit_at", ["at"]),
        ("audit_user_at", ["user", "at"]),
        ("audit_tool_at", ["tool", "at"]),
    ):
        op.drop_index(name, "audit")
        op.create_index(name, "audit", columns, sqlite_where=where, postgresql_where=where)
