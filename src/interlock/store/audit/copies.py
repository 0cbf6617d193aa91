"""A file that receives a copy of each audit record and each signed head, as lines of JSON.

A thread writes the file, so that a slow disk does not delay calls. The file is opened for each
write, so it can be moved away at any time. Lines that cannot be written are counted and logged, but
not written later, because the database contains the records.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import msgspec

from interlock import aio
from interlock.config.gateway import Audit
from interlock.store.audit.records import as_object
from interlock.store.database.claims import Row
from interlock.text.timestamps import rfc3339

CLOSE_WAIT = 5.0  # seconds that `close` waits until the queued lines are written
MAX_WAITING = 64 * 1024 * 1024  # bytes of lines that are queued while the disk hangs

_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("interlock.audit")


class AuditCopy:
    """A copy of an audit trail, appended to a file.

    Args:
        path: The file; if it is missing, it is created so that only its owner can read it.

    Attributes:
        dropped: The number of records that could not be written to the file.
    """

    def __init__(self, path: Path) -> None:
        self.dropped = 0
        self._path = path
        self._waiting = 0  # bytes of queued lines
        self._failed = False
        self._pieces: SimpleQueue[tuple[bytes, int] | None] = SimpleQueue()
        self._thread: Thread | None = None  # started with the first queued line

    def add_records(self, rows: list[Row]) -> None:
        lines = b"".join(_encode(as_object(row)) + b"\n" for row in rows)
        if self._waiting + len(lines) > MAX_WAITING:
            self.dropped += len(rows)
            return
        self._add(lines, len(rows))

    def add_checkpoint(self, writer: str, seq: int, hash: bytes, signature: bytes, at: int) -> None:
        """Add a line with the signed end of a chain."""
        line = {
            "kind": "checkpoint",
            "writer": writer,
            "seq": seq,
            "at": rfc3339(at),
            "micros": at,
            "hash": hash.hex(),
            "signature": signature.hex(),
        }
        self._add(_encode(line) + b"\n", 0)

    @classmethod
    def of(cls, settings: Audit) -> AuditCopy | None:
        """Return the copy that the configuration requires; None if it requires no copy."""
        return cls(Path(settings.copy)) if settings.copy else None

    async def close(self) -> None:
        """Write the queued lines, and end the thread."""
        thread = self._thread
        if thread is not None:
            self._pieces.put(None)
            await aio.in_thread(lambda: thread.join(timeout=CLOSE_WAIT))

    def _add(self, lines: bytes, records: int) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="interlock-audit-copy", daemon=True)
            self._thread.start()
        self._waiting += len(lines)
        self._pieces.put((lines, records))

    # In the thread

    def _run(self) -> None:
        while (piece := self._pieces.get()) is not None:
            lines, records = piece
            try:
                descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                with os.fdopen(descriptor, "ab") as file:
                    file.write(lines)
                self._failed = False
            except OSError as error:
                self.dropped += records
                if not self._failed:
                    _log.error("%s cannot be written: %s", self._path, error.strerror)
                self._failed = True
            finally:
                self._waiting -= len(lines)
