"""The lock file of accepted definitions, which operators export, review, and import or enforce.

    {"version": 1, "servers": {"crm": {
        "server": {"hash": "…", "definition": {…}},
        "tools": {"refund": {"hash": "…", "definition": {…}, "risk": "write"}},
        "prompts": {…}}}}

A file is refused if a hash does not match the definition beside it. A definition that is not in the
first format has a member `format`; `source` is the hash of what the server itself states, if it is
not the hash of the definition. See `store.pin`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from interlock import durable
from interlock.config.gateway import Lock
from interlock.errors import ConfigError
from interlock.store.pin import FORMAT, PROMPTS, Key, Kind, Pin, hash_of
from interlock.text.timestamps import now_micros
from interlock.types import JsonObject


class _Locked(Struct, omit_defaults=True, forbid_unknown_fields=True):
    hash: str
    definition: JsonObject
    format: int = 1
    source: str | None = None
    risk: Literal["read", "write"] | None = None


class _Server(Struct, omit_defaults=True, forbid_unknown_fields=True):
    server: _Locked | None = None
    tools: dict[str, _Locked] = {}
    prompts: dict[str, _Locked] = {}


class _File(Struct, forbid_unknown_fields=True):
    servers: dict[str, _Server]
    version: Literal[1] = 1


class LockFile:
    """A lock file that is read again whenever it has changed.

    Args:
        path: The path of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark: object = None
        self._pins: dict[str, dict[Key, Pin]] = {}

    @classmethod
    def of(cls, lock: Lock, folder: Path) -> LockFile | None:
        """Return the lock file of a configuration in strict mode, else None."""
        return cls(folder / lock.file) if lock.mode == "strict" else None

    def pins_of(self, server: str) -> dict[Key, Pin]:
        """Return the pins of a server's definitions in the file.

        Raises:
            ConfigError: The file cannot be read, or is not a lock file.
        """
        mark = self._mark_now()
        if mark is None or mark != self._mark:
            self._pins = {}
            for pin in read(self.path):
                self._pins.setdefault(pin.server, {})[pin.key] = pin
            self._mark = mark
        return self._pins.get(server, {})

    def has_changed(self) -> bool:
        return self._mark_now() != self._mark

    def _mark_now(self) -> object:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns


def read(path: Path) -> list[Pin]:
    """Return the pins of a lock file.

    Raises:
        ConfigError: The file cannot be read, or is not a lock file.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a lock file: {error}") from None
    pins: list[Pin] = []
    for name, server in found.servers.items():
        pins.append(_pin(path, name, *PROMPTS, _Locked(hash_of({}), {})))
        if server.server is not None:
            pins.append(_pin(path, name, "server", "", server.server))
        for tool, locked in server.tools.items():
            pins.append(_pin(path, name, "tool", tool, locked))
        for prompt, locked in server.prompts.items():
            pins.append(_pin(path, name, "prompt", prompt, locked))
    return pins


def write(path: Path, pins: Iterable[Pin]) -> int:
    """Write the accepted definitions to a lock file, sorted; return their number.

    Raises:
        OSError: The file cannot be written.
    """
    content, count = _encoded(pins)
    durable.replace(path, content, mode=0o644)
    return count


@contextmanager
def staged(path: Path, pins: Iterable[Pin]) -> Iterator[Callable[[], None]]:
    """Write a lock file under a temporary name, and yield a function that moves it into place.

    Raises:
        OSError: The file cannot be written.
    """
    with durable.staged(path, _encoded(pins)[0], mode=0o644) as put:
        yield put


def _encoded(pins: Iterable[Pin]) -> tuple[bytes, int]:
    """Return a lock file's content, and the number of definitions in it."""
    servers: dict[str, _Server] = {}
    count = 0
    for pin in sorted(pins, key=lambda each: (each.server, each.key)):
        if pin.hash is None or pin.definition is None or pin.kind == "list":
            continue
        locked = _Locked(
            pin.hash, msgspec.json.decode(pin.definition), pin.format, pin.source, pin.risk
        )
        server = servers.setdefault(pin.server, _Server())
        if pin.kind == "server":
            server.server = locked
        else:
            (server.tools if pin.kind == "tool" else server.prompts)[pin.name] = locked
        count += 1
    encoded = msgspec.json.encode(_File(servers))
    return msgspec.json.format(encoded, indent=2) + b"\n", count


def _pin(path: Path, server: str, kind: Kind, name: str, locked: _Locked) -> Pin:
    if locked.format == FORMAT and hash_of(locked.definition) != locked.hash:
        what = f"{server}:{name}" if name else server
        raise ConfigError(f"{path}: the hash of {what} is not that of its definition")
    definition = msgspec.json.encode(locked.definition).decode()
    return Pin(
        server=server,
        kind=kind,
        name=name,
        state="accepted",
        hash=locked.hash,
        definition=definition,
        format=locked.format,
        source=locked.source,
        risk=locked.risk,
        since=now_micros(),
    )
