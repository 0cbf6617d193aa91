"""The tool lists that a gateway has stored, as a toolbox that starts no server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from interlock.auth.gateway_key import GatewayKey
from interlock.gateway.definitions.pinning import LAUNCH_KEY
from interlock.gateway.parts import Servers
from interlock.store.database.key_loading import load_key
from interlock.store.database.key_owner import open_owned
from interlock.store.pin import Key, Kinds, Offered, Pin
from interlock.store.pins import PinStore
from interlock.toolbox import Toolbox


@asynccontextmanager
async def stored_lists(
    servers: Servers, place: str | Path
) -> AsyncIterator[tuple[Toolbox, list[str]]]:
    """Yield a toolbox with the stored lists, and the servers whose launch differs from their pin's.

    Args:
        servers: The configured servers.
        place: The database, which must exist.

    Raises:
        ConfigError: The database belongs to another key.
        StoreError: The database cannot be read.
    """
    key = await load_key(place)
    database = await open_owned(place, key)
    try:
        lists = _LastLists(await PinStore(database).list(), key)
    finally:
        await database.close()
    toolbox = Toolbox(servers, pins=lists)
    try:
        await toolbox.restore(starts_unknown=False)
        yield toolbox, lists.relaunched
    finally:
        await toolbox.close()


class _LastLists:
    """A `PinKeeper` that has each server's last list, and stores nothing.

    Attributes:
        relaunched: Servers whose launch differs from the accepted launch.
    """

    def __init__(self, pins: Sequence[Pin], key: GatewayKey) -> None:
        self.relaunched: list[str] = []
        self.key = key.derive(LAUNCH_KEY)
        self._pins = pins

    def follow(self, check: Callable[[Collection[str]], Awaitable[None]]) -> None:
        """Do nothing: pins do not change during a check."""

    async def check(
        self,
        server: str,
        offered: Sequence[Offered],
        kinds: Kinds,  # noqa: ARG002
    ) -> Mapping[Key, Pin] | None:
        """Note whether the server's launch differs from the accepted launch."""
        accepted = {each.hash for each in await self.pins(server) if each.kind == "server"}
        now = {each.hash for each in offered if each.kind == "server"}
        if accepted and not now <= accepted:
            self.relaunched.append(server)
        return None

    async def pins(self, server: str) -> Sequence[Pin]:
        return [each for each in self._pins if each.server == server]
