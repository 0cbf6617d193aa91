"""The replacement of a person's name by a pseudonym in audit records and in a copy of them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from interlock.auth.gateway_key import GatewayKey
from interlock.store.audit.copies import files_of, open_locked
from interlock.store.audit.copy_reading import line_of
from interlock.store.audit.names import OF_CALLS, Pseudonyms, people_in, quoted
from interlock.store.audit.postgres_tables import AuditTables
from interlock.store.database.rows import storable

_AT_ONCE = 2_000  # records that are searched in one transaction
_PAUSE = 0.02  # seconds between two transactions, so that calls can write their records

_CHAINS = "SELECT writer, min(seq), max(seq) FROM audit GROUP BY writer"
_RENAME = 'UPDATE audit SET "user" = ? WHERE writer = ? AND seq BETWEEN ? AND ? AND "user" = ?'
_BODIES = (
    "SELECT seq, kind, body FROM audit WHERE writer = ? AND seq BETWEEN ? AND ?"
    " AND replace(body, ?, '') <> body"
)
_REPLACE = "UPDATE audit SET body = ? WHERE writer = ? AND seq = ?"


async def forget_in_trail(tables: AuditTables, name: str, key: GatewayKey) -> int:
    """Replace a name in all records of a trail; return the number of changed columns.

    Args:
        name: The person's id, such as "user:anna".
        key: The key of the database, from which the pseudonyms are derived. Records that were
            written with a key that it replaced get the pseudonym of that key.

    Raises:
        AuditUnavailable: The database does not answer; the next call continues the work.
    """
    person, name = name, storable(name)
    old, changed = quoted(name), 0
    for writer, first, last in await tables.fetch(_CHAINS):
        pseudonym = Pseudonyms(key.of(writer))[person]
        new = quoted(pseudonym)
        for start in range(first, last + 1, _AT_ONCE):
            part = (writer, start, start + _AT_ONCE - 1)
            changed += await tables.write((_RENAME, [(pseudonym, *part, name)]))
            rows = [
                (body.replace(old, new), writer, seq)
                for seq, kind, body in await tables.fetch(_BODIES, *part, old)
                if kind not in OF_CALLS and name in people_in(body)
            ]
            if rows:
                await tables.write((_REPLACE, rows))
                changed += len(rows)
            await asyncio.sleep(_PAUSE)
    return changed


def forget_in_copy(folder: Path, name: str, key: GatewayKey) -> int:
    """Replace a name in the files of a copy; return the number of changed lines.

    Raises:
        OSError: A file cannot be read or replaced.
    """
    return sum(_forget_in_file(path, name, key) for path in files_of(folder))


def _forget_in_file(path: Path, name: str, key: GatewayKey) -> int:
    old, changed = quoted(storable(name)).encode(), 0
    with os.fdopen(open_locked(path, os.O_RDWR), "rb") as file:  # writers wait meanwhile
        if not any(old in line for line in file):
            return 0
        file.seek(0)
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as other:
            try:
                for raw in file:
                    line = line_of(raw) if old in raw else None
                    if line is not None and name in line.people:
                        pseudonym = Pseudonyms(key.of(line.content.writer))[name]
                        raw = raw.replace(old, quoted(pseudonym).encode())
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
