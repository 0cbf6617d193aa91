"""API keys, and the list of changes that running gateways follow."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create `keys` and `changes`."""
    op.create_table(
        "keys",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("hash", sa.LargeBinary, nullable=False, unique=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("view", sa.String, nullable=False),
        sa.Column("limits", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger),
        sa.Column("last_used", sa.BigInteger),
        sa.Column("revoked", sa.BigInteger),
        sa.Column("replaced_by", sa.String),
        sa.Column("created_by", sa.String, nullable=False),
    )
    op.create_table(
        "changes",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("key", sa.String, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
