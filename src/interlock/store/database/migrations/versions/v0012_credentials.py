"""Credentials of users for servers, sealed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Create `credentials`."""
    op.create_table(
        "credentials",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("user", sa.String, primary_key=True),
        sa.Column("server", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("expires", sa.BigInteger),
        sa.Column("updated", sa.BigInteger, nullable=False),
        sa.Column("leased_by", sa.String, nullable=False),
        sa.Column("leased_until", sa.BigInteger, nullable=False),
    )
