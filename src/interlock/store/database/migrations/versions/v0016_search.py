"""An index of the words of messages."""

from __future__ import annotations

from alembic import op

from interlock.store.database.search import create_index

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Create the full-text index of messages, and fill it."""
    create_index(op.get_bind())
