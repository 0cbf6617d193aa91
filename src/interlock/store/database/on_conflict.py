"""`INSERT … ON CONFLICT` in the form that SQLite and PostgreSQL share."""

from __future__ import annotations

from sqlalchemy import Insert, TextClause
from sqlalchemy.sql import SyntaxExtension


class OnConflict(SyntaxExtension, TextClause):
    """The action of an insert if the row exists already: `insert(…).ext(OnConflict(…))`.

    SQLAlchemy supports this clause only in its dialects, and PostgreSQL's takes 2 MB of memory.

    Args:
        action: The SQL that follows `ON CONFLICT`.
    """

    inherit_cache = True

    def __init__(self, action: str) -> None:
        super().__init__(f"ON CONFLICT {action}")

    def apply_to_insert(self, insert_stmt: Insert) -> None:
        insert_stmt.apply_syntax_extension_point(self.append_replacing_same_type, "post_values")


KEEP_EXISTING = OnConflict("DO NOTHING")
