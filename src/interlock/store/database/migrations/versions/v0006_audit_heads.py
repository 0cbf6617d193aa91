"""What a chain begins with after a purge, counters by day, and indexes of failed calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add columns to `audit_heads`, create `counters`, and index `audit`."""
    with op.batch_alter_table("audit_heads") as heads:
        heads.add_column(sa.Column("open_seq", sa.BigInteger))
        heads.add_column(
            sa.Column("base_seq", sa.BigInteger, nullable=False, server_default=sa.text("0"))
        )
        heads.add_column(sa.Column("base_hash", sa.LargeBinary))
        heads.add_column(sa.Column("base_signature", sa.LargeBinary))
    op.create_table(
        "counters",
        sa.Column("scope", sa.String, primary_key=True),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    other = sa.text("kind NOT IN ('intent', 'outcome')")
    op.create_index(
        "audit_kind_at", "audit", ["kind", "at"], sqlite_where=other, postgresql_where=other
    )
    failed, refused = sa.text("status NOT IN ('', 'ok')"), sa.text("reason <> ''")
    op.create_index(
        "audit_status_at", "audit", ["status", "at"], sqlite_where=failed, postgresql_where=failed
    )
    op.create_index(
        "audit_reason_at", "audit", ["reason", "at"], sqlite_where=refused, postgresql_where=refused
    )
