"""Claims: changes of a row without which the transaction of an audit record fails."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Any

from msgspec import Struct

Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Row]]  # SQL with `?`, and the parameters of each execution


class Claim(Struct, eq=False):
    """A change of exactly one row, such as the use of an approval.

    If the row does not meet the condition of the change, neither the change nor its audit record
    is written.

    Attributes:
        sql: The SQL of the change, with `?`.
        row: The parameters of the SQL.
        then: Further statements of the same transaction.
        has_failed: Whether the row did not meet the condition.
    """

    sql: str
    row: Row
    then: Sequence[Statement] = ()
    has_failed: bool = False


class ClaimFailed(Exception):
    """Some claims failed and are marked as failed; the transaction was rolled back."""


@cache
def numbered(sql: str) -> str:
    """Return SQL with `$1`, `$2`, … instead of `?`, for PostgreSQL."""
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)
