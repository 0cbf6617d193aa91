"""The list of a backup's files, with their hashes, as it stands in the backup's folder.

The list is written last, so a folder without it is not a backup. It has a keyed hash, so a backup
that was changed by anyone without the gateway's key is refused.
"""

from __future__ import annotations

import fcntl
import hmac
import os
import re
import stat
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import ConfigError, StoreCorrupt, StoreError

NAME = "backup.json"
_PURPOSE = "backup"  # the use of the key that the list's hash is made with
_BLOCK = 1024 * 1024  # bytes
_MAX_BYTES = 256 * 1024 * 1024  # of the list
_FILE_NAME = re.compile(r"database\.(db|dump)|(results|audit-copy)/[A-Za-z0-9_][A-Za-z0-9_.-]*")


class BackupFile(Struct, frozen=True):
    """The size of a file in bytes, and its SHA-256 in hexadecimal."""

    bytes: int
    sha256: str


class Manifest(Struct, frozen=True, kw_only=True):
    """The list of a backup's files.

    Attributes:
        version: The version of interlock that made the backup.
        tables: The version of the database's tables.
        created: The time of the backup, as in RFC 3339.
        database: The kind of database.
        schema: The schema of the tables in PostgreSQL.
        key: The fingerprint of the gateway key; "" if the database never had a gateway.
        files: The files by their path in the folder.
        mac: The keyed hash of the rest, in hexadecimal; "" without a key.
    """

    version: str
    tables: str
    created: str
    database: Literal["sqlite", "postgresql"]
    schema: str = ""
    key: str
    files: dict[str, BackupFile]
    mac: str = ""

    def signed(self, key: GatewayKey) -> Manifest:
        return msgspec.structs.replace(self, mac=self._mac(key))

    def check(self, key: GatewayKey | None, wanted: str, folder: Path) -> None:
        """Check that the backup belongs to a key, and was not changed.

        Args:
            key: The key of this machine; None if it has none.
            wanted: The file in which the key is expected, for the error.
            folder: The backup, for the error.

        Raises:
            ConfigError: The key is missing, or is another one.
            StoreCorrupt: The list was changed.
        """
        if not self.key:
            if key is not None:
                raise StoreCorrupt(
                    f"{folder} is not signed, but there is a gateway key in {wanted}: anyone could"
                    " have changed it; restore it on a machine without a key"
                )
            return
        if key is None or key.fingerprint != self.key:
            found = "there is none" if key is None else f"the key here is {key.id}…"
            raise ConfigError(
                f"{folder} belongs to gateway key {self.key[:8]}…, but {found}: put that key into"
                f" {wanted}, or set INTERLOCK_KEY"
            )
        if not hmac.compare_digest(self.mac, self._mac(key)):
            raise StoreCorrupt(f"{folder / NAME} was changed after the backup: use another backup")

    def _mac(self, key: GatewayKey) -> str:
        content = msgspec.json.encode(msgspec.structs.replace(self, mac=""))
        return hmac.digest(key.derive(_PURPOSE), content, "sha256").hex()


def read_manifest(folder: Path) -> Manifest:
    """Read the list of a backup's files.

    Raises:
        StoreError: The folder has no list, so it is not a backup, or not a whole one.
        StoreCorrupt: The list is not one of a backup.
    """
    path = folder / NAME
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise StoreError(f"{folder} {what}: give the folder of a backup")
    try:
        descriptor = open_file(path)
    except FileNotFoundError:
        raise StoreError(f"{folder} is not a backup: it has no {NAME}") from None
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_MAX_BYTES)
    try:
        found = msgspec.json.decode(content, type=Manifest)
        if not all(map(_FILE_NAME.fullmatch, found.files)):
            raise ValueError
    except ValueError:
        raise StoreCorrupt(f"{path} is damaged: use another backup") from None
    return found


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the list of a backup's files, and sync it to the disk."""
    descriptor = _created(folder / NAME)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        file.flush()
        os.fsync(descriptor)


def copy_file(source: Path, target: Path) -> BackupFile:
    """Copy a file to a new one that only its owner can read; return its size and hash.

    Raises:
        FileNotFoundError: The source does not exist.
        FileExistsError: The target exists.
        StoreError: The source is a symbolic link, or not a file.
        OSError: The file cannot be read or written.
    """
    digest, size = sha256(), 0
    with os.fdopen(open_file(source), "rb") as read:
        fcntl.flock(read, fcntl.LOCK_SH)  # files of the audit copy are appended to under a lock
        with os.fdopen(_created(target), "wb") as written:
            while block := read.read(_BLOCK):
                digest.update(block)
                written.write(block)
                size += len(block)
            written.flush()
            os.fsync(written.fileno())
    return BackupFile(size, digest.hexdigest())


def describe_file(descriptor: int) -> BackupFile:
    """Return the size and hash of an open file, and go back to its start."""
    digest = sha256()
    while block := os.read(descriptor, _BLOCK):
        digest.update(block)
    size = os.lseek(descriptor, 0, os.SEEK_CUR)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return BackupFile(size, digest.hexdigest())


def sync_folder(folder: Path) -> None:
    """Sync the names of a folder's files to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_file(path: Path) -> int:
    """Open a file to read it; return its descriptor.

    Raises:
        FileNotFoundError: There is nothing at the path.
        StoreError: The path is a symbolic link, or not a file, or cannot be read.
    """
    try:
        # Opening a pipe would wait for its other end.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        what = "is a symbolic link" if path.is_symlink() else f"cannot be read: {error.strerror}"
        raise StoreError(f"{path} {what}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{path} is not a file")
    return descriptor


def _created(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)
