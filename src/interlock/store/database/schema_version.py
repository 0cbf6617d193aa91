"""The version of the database's tables. This module does not import SQLAlchemy.

Until the first release, each edit of `tables.py` changes the version automatically. There are no
migrations: a database with another version is refused. A release must set `REVISION` to a number.

A later version of the tables may state that programs of this version can use them, too: it is
`compatible_from` this version. Then gateways of both versions can run, and restart, beside each
other. Such tables have all that these have, and what they add is optional: new columns have
defaults, and what was removed here is removed in the version after.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

UNRELEASED = "dev-"
# Versions of development checkouts that had migrations. A release must not use these numbers.
OUTDATED = frozenset(f"{number:04}" for number in range(1, 20))


def revision_of(source: str) -> str:
    """Return the version for the source of `tables.py`, without docstrings, comments and space."""
    code = re.sub(r'(?m)"""(?:.|\n)*?"""|(?:^|  )# .*', "", source)
    return UNRELEASED + sha256("".join(code.split()).encode()).hexdigest()[:16]


def suffices(own: str, compatible_from: str) -> bool:
    """Return whether a program of version `own` can use tables that need `compatible_from`.

    Args:
        own: The version of the program's tables.
        compatible_from: The oldest version whose programs can use the tables.
    """
    is_numbered = own.isdecimal() and compatible_from.isdecimal()
    return own == compatible_from or (is_numbered and int(own) > int(compatible_from))


# A hash of the source, not of SQLAlchemy's DDL: the DDL differs between SQLAlchemy's versions, and
# computing it would require importing SQLAlchemy.
REVISION = revision_of(Path(__file__).with_name("tables.py").read_text(encoding="utf-8"))
