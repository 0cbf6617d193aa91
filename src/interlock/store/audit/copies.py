"""A copy of an audit trail outside of the database: one file a day, with lines of JSON.

Each signed end of a chain is a line and, if the configuration names a folder, each record as well:
the records take more time of a call than a default may take. The lines of a writer form a chain of
their own: each has a number and a keyed hash of the line before, so a line that was changed,
removed or added is noticed. Several processes append to the same files.

A thread encodes and writes the lines, so that a slow disk does not delay calls. A file is opened
for each write, so it can be moved away at any time. Lines that cannot be written are counted and
logged, but not written later, because the database contains the records.
"""

from __future__ import annotations

import fcntl
import hmac
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import msgspec

from interlock import aio
from interlock.auth.gateway_key import GatewayKey, TrailKey
from interlock.config.gateway import Audit
from interlock.store.audit.names import Pseudonyms, people_of
from interlock.store.audit.records import as_object
from interlock.store.database.claims import Row
from interlock.store.database.location import folder_beside
from interlock.text.timestamps import now_micros, rfc3339
from interlock.types import JsonObject

CLOSE_WAIT = 5.0  # seconds that `close` waits until the queued lines are written
MAX_WAITING = 64 * 1024 * 1024  # bytes of records that are queued while the disk hangs
SUFFIX = ".jsonl"
_ROW_BYTES = 500  # the approximate size of a record without its body

_encode = msgspec.json.Encoder().encode
_log = logging.getLogger("interlock.audit")


def copy_folder(settings: Audit, location: str | Path | None) -> Path:
    """Return the folder of the copy of the trail in a database."""
    return Path(settings.copy) if settings.copy else folder_beside(location) / "audit-copy"


class AuditCopy:
    """A copy of one writer's records and signed ends.

    Args:
        folder: The folder of the files; if it or a file is missing, it is created so that only its
            owner can read it.
        key: The key of the lines' hashes.
        has_records: Whether the copy shall contain the records, and not only the ends of the
            chain: the writer then calls `add_records`.

    Attributes:
        dropped: The number of records that could not be written.
    """

    def __init__(self, folder: Path, key: GatewayKey, *, has_records: bool = True) -> None:
        self.dropped = 0
        self.has_records = has_records
        self._folder = folder
        self._chain = LineChain(key)
        self._waiting = 0  # bytes of queued records
        self._failed = False
        self._pieces: SimpleQueue[tuple[list[Row], list[JsonObject], int] | None] = SimpleQueue()
        self._thread: Thread | None = None  # started with the first queued line

    def add_records(self, rows: list[Row]) -> None:
        size = sum(len(row[-2]) for row in rows) + _ROW_BYTES * len(rows)
        if self._waiting + size > MAX_WAITING:
            self.dropped += len(rows)
        else:
            self._add(rows, [], size)

    def add_head(self, writer: str, seq: int, hash: bytes, at: int) -> None:
        """Add a line with the signed end of a chain."""
        line = {
            "kind": "head",
            "writer": writer,
            "seq": seq,
            "at": rfc3339(at),
            "hash": hash.hex(),
        }
        self._add([], [line], 0)

    async def close(self) -> None:
        """Write the queued lines, and end the thread."""
        thread = self._thread
        if thread is not None:
            self._pieces.put(None)
            await aio.in_thread(lambda: thread.join(timeout=CLOSE_WAIT))

    def _add(self, rows: list[Row], lines: list[JsonObject], size: int) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._run, name="interlock-audit-copy", daemon=True)
            self._thread.start()
        self._waiting += size
        self._pieces.put((rows, lines, size))

    # In the thread

    def _run(self) -> None:
        while (piece := self._pieces.get()) is not None:
            rows, lines, size = piece
            try:
                self._write([*map(as_object, rows), *lines])
                self._failed = False
            except OSError as error:
                self.dropped += len(rows)
                if not self._failed:
                    _log.error("%s cannot be written: %s", self._folder, error.strerror)
                self._failed = True
            finally:
                self._waiting -= size

    def _write(self, lines: list[JsonObject]) -> None:
        written = b"".join(map(self._chain.add, lines))
        if self._failed:  # perhaps in the middle of a line
            written = b"\n" + written
        path = self._folder / f"{str(rfc3339(now_micros()))[:10]}{SUFFIX}"
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_locked(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        with os.fdopen(descriptor, "ab") as file:
            file.write(written)


class LineChain:
    """The end of a writer's chain of lines."""

    def __init__(self, key: TrailKey) -> None:
        self.line = 0
        self.mac = b""
        self._key = key.derive("audit copy")
        self._pseudonyms = Pseudonyms(key)

    def add(self, content: JsonObject) -> bytes:
        """Return the next line."""
        encoded = _encode(content)
        self.line += 1
        self.mac = self.mac_of(self.line, encoded, people_of(content))
        return b'%b,"line":%d,"mac":"%b"}\n' % (encoded[:-1], self.line, self.mac)

    def mac_of(self, line: int, encoded: bytes, people: Iterable[str]) -> bytes:
        """Return the keyed hash of the next line: half of HMAC-SHA256, in hexadecimal.

        Like a record's hash, it covers the pseudonyms in place of the names of people.
        """
        covered = self._pseudonyms.replaced(people, encoded.decode())
        message = b"%b %d %b" % (self.mac, line, covered.encode())
        return hmac.digest(self._key, message, "sha256")[:16].hex().encode()


def open_locked(path: Path, flags: int) -> int:
    """Open a file of a copy, and lock it until it is closed; return its descriptor."""
    while True:
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # another process has replaced the file meanwhile


def purge(folder: Path, before: int) -> None:
    """Delete the files of the days before a time.

    Args:
        folder: The folder of the copy.
        before: The time, in microseconds since 1970.
    """
    first = f"{str(rfc3339(before))[:10]}{SUFFIX}"
    for path in files_of(folder):
        if path.name < first:
            path.unlink(missing_ok=True)


def files_of(folder: Path) -> list[Path]:
    """Return the files of a copy, the oldest first."""
    return sorted(folder.glob(f"????-??-??{SUFFIX}"))
