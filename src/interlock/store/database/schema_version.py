"""The version of the database's tables. This module does not import SQLAlchemy.

`tables.py` describes the tables of this version. To change them:

1. Add tables, indexes, or columns that are optional or have a default, and raise `REVISION`. An
   older database gets what it lacks when a program of this version opens it. `COMPATIBLE_FROM`
   stays, so programs of the older version go on using it: both may run beside each other.
2. Remove or change what an older version has only in a later release, when no program of the
   release before uses it, and raise `COMPATIBLE_FROM` to the oldest version that can do without.

The databases in `tests/store/releases` show that a database of each release becomes the same as a
new one.
"""

from __future__ import annotations

from typing import Literal

REVISION = "0021"  # 0.2.0
COMPATIBLE_FROM = "0020"  # the oldest version whose programs can use these tables
FIRST = "0020"  # databases with lower numbers, or with none, are of checkouts before 0.2.0

# "newer" includes only tables that this program can use, "unreleased" those of old checkouts.
Standing = Literal["current", "newer", "too new", "older", "unreleased"]


def standing(revision: str | None, compatible_from: str | None, own: str = REVISION) -> Standing:
    """Compare the tables of a database with those of this program.

    Args:
        revision: The version of the database's tables; None if none is stated.
        compatible_from: The oldest version whose programs can use the tables; None if not stated.
        own: The version of the program's tables.
    """
    if revision == own:
        return "current"
    if revision is None or not revision.isdecimal() or int(revision) < int(FIRST):
        return "unreleased"
    if int(revision) < int(own):
        return "older"
    is_usable = (compatible_from or "").isdecimal() and int(compatible_from or 0) <= int(own)
    return "newer" if is_usable else "too new"
