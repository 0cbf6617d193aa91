"""`INSERT … ON CONFLICT` in words that SQLite and PostgreSQL share."""

from __future__ import annotations

from sqlalchemy import Insert, TextClause
from sqlalchemy.sql import SyntaxExtension


class OnConflict(SyntaxExtension, TextClause):
    """What an insert does when its row exists; used as `insert(…).ext(OnConflict(…))`.

    SQLAlchemy has it in its dialects only, and the one of PostgreSQL takes 2 MB.

    Args:
        action: The SQL after `ON CONFLICT`.
    """

    inherit_cache = True

    def __init__(self, action: str) -> None:
        super().__init__(f"ON CONFLICT {action}")

    def apply_to_insert(self, insert_stmt: Insert) -> None:
        """Add this after the values; SQLAlchemy calls it."""
        insert_stmt.apply_syntax_extension_point(self.append_replacing_same_type, "post_values")


KEEP_EXISTING = OnConflict("DO NOTHING")  # the row that exists

__all__ = ["KEEP_EXISTING", "OnConflict"]
