"""Sessions of the web pages, and the one-time codes that open them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create `page_sessions` and `login_codes`."""
    op.create_table(
        "page_sessions",
        sa.Column("id_hash", sa.LargeBinary, primary_key=True),
        sa.Column("page_key_hash", sa.LargeBinary, nullable=False),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("key", sa.String, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("view", sa.String, nullable=False),
        sa.Column("groups", sa.Text, nullable=False),
        sa.Column("claims", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("last_used", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
    )
    op.create_index("page_sessions_user", "page_sessions", ["user"])
    op.create_table(
        "login_codes",
        sa.Column("hash", sa.LargeBinary, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("user", sa.String, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("expires", sa.BigInteger, nullable=False),
    )
