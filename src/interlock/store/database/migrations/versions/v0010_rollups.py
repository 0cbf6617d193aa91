"""Counts of calls by the minute."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create `rollups` and `rollup_sums`."""
    op.create_table(
        "rollups",
        sa.Column("minute", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("writer", sa.String, primary_key=True),
        *_columns(),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rollup_sums",
        sa.Column("span", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("minute", sa.Integer, primary_key=True, autoincrement=False),
        *_columns(),
        sqlite_with_rowid=False,
    )


def _columns() -> list[sa.Column[object]]:
    return [
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("server", sa.String, primary_key=True),
        sa.Column("tool", sa.String, primary_key=True),
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("outcome", sa.String, primary_key=True),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("ms", sa.LargeBinary, nullable=False),
    ]
