"""Claims: changes of a row that must succeed, or else the audit record is not written either."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any

from msgspec import Struct

Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Row]]  # SQL with `?`, and parameters for each execution


class Claim(Struct, eq=False):
    """A change that must affect exactly one row, such as the use of an approval.

    If the row does not meet the change's condition, neither the change nor its audit record is
    written.

    Attributes:
        sql: The change as SQL, with `?` for parameters.
        row: The parameters for `sql`.
        then: Further statements for the same transaction.
        has_failed: Whether the change failed because the row did not meet its condition.
    """

    sql: str
    row: Row
    then: Sequence[Statement] = ()
    has_failed: bool = False


class ClaimFailed(Exception):
    """Some claims failed and were marked as failed; the transaction was rolled back."""


@cache
def numbered(sql: str) -> str:
    """Return SQL with `$1`, `$2`, … instead of `?`, for PostgreSQL."""
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)
