"""The version of the database's tables. This module does not import SQLAlchemy.

Until the first release, each edit of `tables.py` changes the version automatically. There are no
migrations: a database with another version is refused. A release must set `REVISION` to a number.
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


# A hash of the source, not of SQLAlchemy's DDL: the DDL differs between SQLAlchemy's versions, and
# computing it would require importing SQLAlchemy.
REVISION = revision_of(Path(__file__).with_name("tables.py").read_text(encoding="utf-8"))
