"""The version of the tables. This module needs no SQLAlchemy.

Until the first release, each edit of `tables.py` makes another version automatically. There are no
migrations: a database of another version is refused. The release replaces `REVISION` by a number.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

UNRELEASED = "dev-"
# Versions of earlier checkouts, which had migrations. A release must use other numbers.
OUTDATED = frozenset(f"{number:04}" for number in range(1, 20))


def revision_of(source: str) -> str:
    """Return the version of the tables in a source. Comments and white space do not change it."""
    code = re.sub(r"(?m)(?:^|  )# .*", "", source)
    return UNRELEASED + sha256("".join(code.split()).encode()).hexdigest()[:16]


# A hash of the source, because a hash of SQLAlchemy's DDL would need SQLAlchemy, whose DDL differs
# between its versions.
REVISION = revision_of(Path(__file__).with_name("tables.py").read_text(encoding="utf-8"))
