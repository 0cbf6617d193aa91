"""Changes of a row that take effect in the transaction of an audit record, or keep it unwritten."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any

from msgspec import Struct

Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Row]]  # SQL with `?`, and the parameters of each of its runs


class Claim(Struct, eq=False):
    """A change of exactly one row, such as the use of an approval.

    If the row is not as the condition of the change wants it, neither the change nor the record
    that it belongs to is written.

    Attributes:
        sql: The change, with `?`.
        row: Its parameters.
        then: What else to write in the same transaction.
        has_failed: The row was not as wanted.
    """

    sql: str
    row: Row
    then: Sequence[Statement] = ()
    has_failed: bool = False


class ClaimFailed(Exception):
    """Some claims failed, and are marked so. Nothing of the transaction took effect."""


@cache
def numbered(sql: str) -> str:
    """Return SQL with `$1` for the first `?`, as PostgreSQL wants it."""
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)


__all__ = ["Claim", "ClaimFailed", "Row", "Statement", "numbered"]
