"""Files in messages: images and documents for the model."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add `attachments` to `messages`."""
    op.add_column("messages", sa.Column("attachments", sa.Text))
