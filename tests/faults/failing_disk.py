"""A disk whose Nth operation fails, for every SQLite database opened in the meantime.

It is a SQLite VFS: a copy of the default one whose file functions count and fail as told.
"""

from __future__ import annotations

import _sqlite3
import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_char_p, c_int, c_int64, c_void_p, cast
from typing import Any

# The SQLite result code of each operation, by kind of failure.
FULL, BUSY = 13, 5
_UNLOCK = 1  # among the flags of `shm_lock`
FAILURES: dict[str, dict[str, int]] = {
    "full": {"write": FULL, "truncate": FULL},
    "read-only": {"write": 10 | 3 << 8, "truncate": 10 | 6 << 8},
    "locked": {"lock": BUSY, "shm_lock": BUSY},
    "unsynced": {"sync": 10 | 4 << 8},
    "broken": {
        "read": 10 | 1 << 8,
        "write": 10 | 3 << 8,
        "truncate": 10 | 6 << 8,
        "file_size": 10 | 7 << 8,
        "lock": 10 | 15 << 8,
        "shm_map": 10 | 21 << 8,
    },
}


class _Methods(Structure):
    """sqlite3_io_methods, of one open file."""

    _fields_ = (
        ("version", c_int),
        ("close", c_void_p),
        ("read", CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)),
        ("write", CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)),
        ("truncate", CFUNCTYPE(c_int, c_void_p, c_int64)),
        ("sync", CFUNCTYPE(c_int, c_void_p, c_int)),
        ("file_size", CFUNCTYPE(c_int, c_void_p, c_void_p)),
        ("lock", CFUNCTYPE(c_int, c_void_p, c_int)),
        ("unlock", c_void_p),
        ("check_reserved_lock", c_void_p),
        ("file_control", c_void_p),
        ("sector_size", c_void_p),
        ("device_characteristics", c_void_p),
        ("shm_map", CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int, c_void_p)),
        ("shm_lock", CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int)),
        ("shm_barrier", c_void_p),
        ("shm_unmap", c_void_p),
        ("fetch", c_void_p),
        ("unfetch", c_void_p),
    )


class _File(Structure):
    """sqlite3_file; only its methods are needed."""

    _fields_ = (("methods", POINTER(_Methods)),)


class _Vfs(Structure):
    """sqlite3_vfs, version 3."""

    _fields_ = (
        ("version", c_int),
        ("file_size", c_int),
        ("max_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("app_data", c_void_p),
        ("open", CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(_File), c_int, c_void_p)),
        ("others", c_void_p * 14),
    )


class FailingDisk:
    """A counter of file operations that fails one of them, or that one and all later ones.

    Attributes:
        count: The number of operations since `arm` that could have failed.
        failed: The number of operations that failed.
        step: From one operation that fails to the next, for tests that fail them in turn.
    """

    step = 1

    def __init__(self) -> None:
        self.disarm()

    def arm(self, kind: str, nth: int, *, lasting: bool = False) -> None:
        """Fail the `nth` operation, from 1, of those that this kind of failure concerns."""
        self._codes = FAILURES[kind]
        self._nth = nth
        self._lasting = lasting
        self.count = self.failed = 0

    def disarm(self) -> None:
        """Stop failing operations."""
        self._codes: dict[str, int] = {}
        self._nth = 0
        self._lasting = False
        self.count = self.failed = 0

    def result(self, operation: str) -> int:
        """Count an operation; return the code with which it fails, or 0."""
        if operation not in self._codes:
            return 0
        self.count += 1
        if self.count == self._nth or (self._lasting and self.count > self._nth):
            self.failed += 1
            return self._codes[operation]
        return 0


@contextmanager
def failing_disk() -> Iterator[FailingDisk]:
    """Use a failing disk for all databases opened in this context; close them within it."""
    sqlite = ctypes.CDLL(_sqlite3.__file__)
    sqlite.sqlite3_vfs_find.restype = POINTER(_Vfs)
    sqlite.sqlite3_vfs_register.argtypes = sqlite.sqlite3_vfs_unregister.argtypes = (c_void_p,)
    sqlite.sqlite3_vfs_register.argtypes = (c_void_p, c_int)
    usual = sqlite.sqlite3_vfs_find(None)
    disk = FailingDisk()
    ours = _Vfs.from_buffer_copy(usual.contents)
    ours.name, ours.next = b"failing", None
    tables: dict[int, _Methods] = {}  # by the address of the methods they replace

    def open_file(_vfs: int, name: int, file: Any, flags: int, out_flags: int) -> int:
        code: int = usual.contents.open(cast(usual, c_void_p), name, file, flags, out_flags)
        if code == 0:
            address = cast(file.contents.methods, c_void_p).value or 0
            if address not in tables:
                tables[address] = _failing(file.contents.methods.contents, disk)
            file.contents.methods = ctypes.pointer(tables[address])
        return code

    ours.open = type(usual.contents.open)(open_file)
    sqlite.sqlite3_vfs_register(byref(ours), 1)
    try:
        yield disk
    finally:
        sqlite.sqlite3_vfs_register(usual, 1)
        sqlite.sqlite3_vfs_unregister(byref(ours))


def _failing(methods: _Methods, disk: FailingDisk) -> _Methods:
    """Return a copy of a file's methods that fails when the disk does."""
    copy = _Methods.from_buffer_copy(methods)
    for operation in {operation for codes in FAILURES.values() for operation in codes}:
        usual = getattr(methods, operation)
        setattr(copy, operation, type(usual)(_or_fail(disk, operation, usual)))
    return copy


def _or_fail(disk: FailingDisk, operation: str, usual: Callable[..., int]) -> Callable[..., int]:
    def run(*arguments: Any) -> int:
        if operation == "shm_lock" and arguments[-1] & _UNLOCK:  # unlocking never fails
            return usual(*arguments)
        return disk.result(operation) or usual(*arguments)

    return run
