"""The replacement of a person's name by a pseudonym in audit records and in a copy of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from interlock.store.audit.copies import files_of, open_locked
from interlock.store.audit.copy_reading import line_of
from interlock.store.audit.names import quoted
from interlock.store.audit.postgres_tables import AuditTables
from interlock.store.database.rows import storable

_AT_ONCE = 2_000  # records that are searched in one transaction
_PAUSE = 0.02  # seconds between two transactions, so that calls can write their records

_CHAINS = "SELECT writer, min(seq), max(seq) FROM audit GROUP BY writer"
_NAMES = "replace(people, ?, '') <> people"
_REPLACE = (
    'UPDATE audit SET "user" = CASE WHEN "user" = ? THEN ? ELSE "user" END,'  # noqa: S608
    f" body = CASE WHEN {_NAMES} THEN replace(body, ?, ?) ELSE body END,"
    " people = replace(people, ?, ?)"
    f' WHERE writer = ? AND seq BETWEEN ? AND ? AND ("user" = ? OR {_NAMES})'
)


async def forget_in_trail(tables: AuditTables, name: str, pseudonym: str) -> int:
    """Replace a name in all records of a trail; return the number of changed records.

    Args:
        tables: The audit tables.
        name: The person's id, such as "user:anna".
        pseudonym: The person's pseudonym; see `names.Pseudonyms`.

    Raises:
        AuditUnavailable: The database does not answer; the next call continues the work.
    """
    name = storable(name)
    old, new = quoted(name), quoted(pseudonym)
    changed = 0
    for writer, first, last in await tables.fetch(_CHAINS):
        for start in range(first, last + 1, _AT_ONCE):
            until = start + _AT_ONCE - 1
            columns = (name, pseudonym, old, old, new, old, new, writer, start, until, name, old)
            changed += await tables.write((_REPLACE, [columns]))
            await asyncio.sleep(_PAUSE)
    return changed


def forget_in_copy(folder: Path, name: str, pseudonym: str) -> int:
    """Replace a name in the files of a copy; return the number of changed lines.

    Raises:
        OSError: A file cannot be read or replaced.
    """
    old, new = quoted(storable(name)).encode(), quoted(pseudonym).encode()
    return sum(_forget_in_file(path, name, old, new) for path in files_of(folder))


def _forget_in_file(path: Path, name: str, old: bytes, new: bytes) -> int:
    changed = 0
    with os.fdopen(open_locked(path, os.O_RDWR), "rb") as file:  # writers wait meanwhile
        if not any(old in line for line in file):
            return 0
        file.seek(0)
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as other:
            try:
                for raw in file:
                    line = line_of(raw) if old in raw else None
                    if line is not None and name in line.content.names:
                        raw = raw.replace(old, new)
                        changed += 1
                    other.write(raw)
                other.flush()
                os.fsync(other.fileno())
                os.fchmod(other.fileno(), path.stat().st_mode & 0o777)
                Path(other.name).replace(path)
            except BaseException:
                Path(other.name).unlink(missing_ok=True)
                raise
    return changed
