"""Which user has which plugin."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Create `plugin_installations`."""
    op.create_table(
        "plugin_installations",
        sa.Column("tenant", sa.String, primary_key=True),
        sa.Column("user", sa.String, primary_key=True),
        sa.Column("plugin", sa.String, primary_key=True),
        sa.Column("by", sa.String, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
