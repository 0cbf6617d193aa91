"""A gateway's pins: the mode, the lock file, and the operators' decisions.

A decision in the database, or a change to the lock file, takes effect within a second. If the
database fails, the pins are read again within a second after it recovers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from interlock.auth.gateway_key import GatewayKey
from interlock.config import Config, GatewaySettings
from interlock.config.gateway import Lock
from interlock.errors import InterlockError, StoreError
from interlock.gateway.definitions.lock_file import LockFile
from interlock.layers.audit import AuditTrail
from interlock.store.database.changes import ChangeFeed
from interlock.store.database.database import Database
from interlock.store.pin import Key, Kinds, Offered, Pin
from interlock.store.pins import PinStore
from interlock.types import JsonObject

LAUNCH_KEY = "launch"  # the derivation label of the key that hashes values in launch commands
Note = Callable[[str, str, JsonObject], None]  # server, tool's address or "", further members
_log = logging.getLogger("interlock.gateway")


class Pinning:
    """A `PinKeeper` that stores pins in a database.

    Args:
        store: The storage for pins.
        lock: The mode and the lock file.
        folder: The folder that a relative path of the lock file refers to.
        key: The key that values in launch commands are hashed with.
        note: Records definitions that wait for a decision; None to record nothing.

    Attributes:
        key: The key that values in launch commands are hashed with.
    """

    def __init__(
        self,
        store: PinStore,
        lock: Lock,
        folder: Path,
        key: bytes,
        note: Note | None = None,
    ) -> None:
        self.key = key
        self._on_change: Callable[[Collection[str]], Awaitable[None]] = _ignore
        self._store = store
        self._lock = lock
        self._folder = folder
        self._file = LockFile.of(lock, folder)
        self._note = note or (lambda *_: None)
        self._states: dict[tuple[str, Kinds], Counter[str]] = {}
        self._unread: set[tuple[str, Kinds]] = set()  # servers whose pins could not be read

    def follow(self, check: Callable[[Collection[str]], Awaitable[None]]) -> None:
        self._on_change = check

    async def check(
        self, server: str, offered: Sequence[Offered], kinds: Kinds
    ) -> Mapping[Key, Pin] | None:
        self._states.setdefault((server, kinds), Counter()).clear()
        if self._lock.mode == "off":
            return None
        try:
            locked = self._file.pins_of(server) if self._file is not None else None
            pins, written = await self._store.check(server, offered, kinds, locked=locked)
        except InterlockError as error:
            if (server, kinds) not in self._unread:
                _log.error("server %r: its pins cannot be read: %s", server, error)
            self._unread.add((server, kinds))
            raise
        self._unread.discard((server, kinds))
        shown = [each for each in pins.values() if each.kind != "list"]
        self._states[server, kinds] = Counter(each.state for each in shown)
        self._record(server, [each for each in written if each.kind != "list"])
        return pins

    async def pins(self, server: str) -> Sequence[Pin]:
        return [] if self._lock.mode == "off" else await self._store.list(server)

    def _record(self, server: str, written: list[Pin]) -> None:
        """Record each definition that waits or is gone, and count the definitions in each state."""
        for pin in written:
            if pin.waits or pin.state == "gone":
                _log.warning("%s: its definition is %s", pin.address, pin.state)
                body = {"of": pin.kind, "state": pin.state}
                hashes = {"accepted": pin.hash, "seen": pin.seen_hash}
                self._note(server, pin.address if pin.name else "", body | hashes)
        rewritten = sum(each.is_rewritten for each in written)
        if rewritten:
            text = "server %r: %d definitions are written differently by this version of interlock"
            _log.warning(f"{text}: see `interlock lock accept --upgrade`", server, rewritten)
            self._note(server, "", {"state": "rewritten", "definitions": rewritten})
        accepted = sum(each.state == "accepted" for each in written) - rewritten
        if accepted:
            self._note(server, "", {"state": "accepted", "definitions": accepted})

    @property
    def states(self) -> Counter[str]:
        """The number of definitions in each state."""
        found = Counter(accepted=0, changed=0, new=0, gone=0)
        for each in self._states.values():
            found.update(each)
        return found

    async def replace(self, lock: Lock, servers: Collection[str]) -> None:
        """Switch to a different mode or lock file.

        Args:
            lock: The new settings.
            servers: The names of all servers.
        """
        for gone in [key for key in self._states if key[0] not in servers]:
            del self._states[gone]
        if lock != self._lock:
            self._lock, self._file = lock, LockFile.of(lock, self._folder)
            await self._on_change(servers)

    # Changes in the database and the lock file

    @asynccontextmanager
    async def following(self, feed: ChangeFeed) -> AsyncIterator[None]:
        """Follow operators' decisions while the context is open.

        Args:
            feed: Reports changes in the database.
        """
        with suppress(InterlockError):  # `_step` retries the servers in `_unread`
            await self._store.changed()
        async with feed.follow("pins", self._step, _log, "decisions about definitions"):
            yield

    async def _step(self, has_changed: bool) -> None:
        await self._obey(await self._store.changed() if has_changed else set())

    async def refresh(self) -> None:
        """Apply the decisions made since the last call.

        Raises:
            StoreError: The decisions cannot be read.
        """
        await self._obey(await self._store.changed())

    async def _obey(self, decided: set[str]) -> None:
        changed = decided | {server for server, _ in self._unread}
        if self._file is not None and self._file.has_changed():
            changed |= {server for server, _ in self._states}
        if changed:
            await self._on_change(changed)

    async def obey(self, server: str) -> None:
        """Apply a decision that was just made about a server.

        If the database becomes unavailable, all of the server's tools wait until it recovers.
        """
        try:
            await self.refresh()
        except StoreError:
            await self._on_change({server})


def make_pinning(
    config: Config,
    settings: GatewaySettings,
    database: Database,
    secret: GatewayKey,
    trail: AuditTrail | None,
) -> Pinning:
    """Make the `Pinning` for a configuration.

    Args:
        config: The configuration. A relative path of the lock file refers to its folder.
        settings: The member `gateway` of the configuration.
        database: The database that stores the pins.
        secret: The gateway's key.
        trail: Records definitions that wait for a decision; None to record nothing.
    """

    def note(server: str, tool: str, body: JsonObject) -> None:
        if trail is not None:
            trail.note("pin", body, server=server, tool=tool)

    folder = config.path.parent if config.path is not None else Path()
    return Pinning(PinStore(database), settings.lock, folder, secret.derive(LAUNCH_KEY), note)


async def _ignore(_: Collection[str]) -> None:
    return
