"""Messages carry tool calls and their results; conversations are listed by their last change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add empty columns to `messages`, and index `conversations` by last change."""
    # Programs without versions may have added a column on their own.
    present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("messages")}
    for name in ("tool_calls", "tool_results", "provider_data", "content_json"):
        if name not in present:
            op.add_column("messages", sa.Column(name, sa.Text))
    op.create_index("conversations_updated", "conversations", ["updated"])
