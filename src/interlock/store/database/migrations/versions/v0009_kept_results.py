"""Results that are kept aside for their owners."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create `kept_results`."""
    op.create_table(
        "kept_results",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("call", sa.String, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("file", sa.String, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
    )
    op.create_index("kept_results_user_created", "kept_results", ["user", "created"])
    op.create_index("kept_results_expires", "kept_results", ["expires"])
