"""One server's lists of tools and other items, refreshed after changes and filtered by the pins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from msgspec import ValidationError, convert

from interlock import aio
from interlock.client import Client
from interlock.client.listing import TOOLS, Listing
from interlock.config import ToolFilter
from interlock.errors import InterlockError, RemoteError
from interlock.revisions import METHOD_NOT_FOUND
from interlock.store.pin import TOOL_KINDS, Offered
from interlock.toolbox.client_factory import ClientFactory
from interlock.toolbox.failures import Failures
from interlock.toolbox.item_lists import ItemKind, ItemLists
from interlock.toolbox.pins import CheckedLists, offered_server, offered_tool
from interlock.toolbox.pool import SHARED, ConnectionPool, Key, PooledClient, owner_of
from interlock.toolbox.server_health import ServerHealth
from interlock.toolbox.tool_list import ToolList
from interlock.toolbox.user_access import UserAccess
from interlock.toolbox.user_lists import UserLists
from interlock.types import JsonObject, Tool

LIST_TTL = 300.0  # seconds for which a list is fresh, unless the server states another lifetime
REFRESH_GAP = 1.0  # seconds between two refreshes after notifications from the server
ITEMS_TIMEOUT = 5.0  # seconds that resources and prompts may delay a server's start
REFRESH_PAUSE = 30.0  # seconds after a failed refresh

_log = logging.getLogger("interlock.toolbox")


class ServerLists:
    """One server's list of tools and, behind a gateway, its lists of resources and prompts.

    Args:
        name: The server's name in the toolbox.
        checked: The accepted definitions.
        admitted: The operator's filter for tools; None to admit all tools.
        access: The credentials that the server needs from its users.
        clients: Makes the clients; it also has the notes of an in-process server about its tools.
        pool: The server's connections.
        health: The server's state.
        failures: Called when a list cannot be refreshed.
        ttl: The most seconds before the tools are listed again; None for the lifetime that the
            server states.
        forwards: Whether to keep lists of resources and prompts, too.
        on_change: Called after a list has changed.

    Attributes:
        tools: The server's tools, usable or not.
    """

    def __init__(
        self,
        name: str,
        checked: CheckedLists,
        admitted: ToolFilter | None,
        *,
        access: UserAccess,
        clients: ClientFactory,
        pool: ConnectionPool,
        health: ServerHealth,
        failures: Failures,
        ttl: float | None,
        forwards: bool,
        on_change: Callable[[], None],
    ) -> None:
        self.tools = ToolList(name, admitted, checked, clients.operation_of)
        self._name = name
        self._checked = checked
        self._access = access
        self._clients = clients
        self._pool = pool
        self._health = health
        self._failures = failures
        self._ttl = ttl
        self._forwards = forwards
        self._on_change = on_change
        self._users = UserLists()
        self._items = ItemLists(name, checked, self._users)
        self._launch: JsonObject = {}
        self._listed_until = 0.0
        self._problem = ""  # why the last refresh failed
        self._changes = 0  # number of notifications that the tools have changed
        self._seen_changes = 0  # number of notifications before the tools were last listed
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_at = -REFRESH_GAP  # when the last notification started a refresh

    @property
    def items(self) -> Mapping[ItemKind, Listing[Any]]:
        """The server's resources and prompts, as last received; empty unless `forwards`."""
        return self._items.found

    @property
    def waiting_prompts(self) -> Mapping[str, str]:
        """Why prompts wait until their definitions are accepted, keyed by the prompt's name."""
        return self._items.waiting

    @property
    def connection(self) -> PooledClient | None:
        """The connection that lists the tools; None if it is not open."""
        if not self._access.is_personal:
            return self._pool.shared
        return next((each for each in self._pool.connections if not each.is_dropped), None)

    @property
    def has_expired(self) -> bool:
        """Whether the tools must be listed again."""
        return monotonic() >= self._listed_until

    # Users with lists of their own

    def sees(self, owner: str, kind: str, name: str) -> bool:
        """Return whether a user's list has an item; see `UserLists.sees`."""
        return self._users.sees(owner, kind, name)

    def end_user(self, owner: str) -> bool:
        """Remove a user's lists; return whether the user had lists."""
        return self._users.remove(owner)

    async def _merged(self, pooled: PooledClient, listing: Listing[Tool]) -> Listing[Tool]:
        """Replace one user's list of tools; return the tools of all users together."""
        if not self._access.is_personal:
            return listing
        offered = await self._offered(listing, pooled)
        return self._users.merge(
            TOOLS,
            owner_of(pooled.key),
            listing,
            hashes={each.name: each.hash for each in offered if self._checked.compares},
            accepted=self._checked.accepted,
        )

    # At the start of a connection

    def must_list(self, key: Key) -> bool:
        """Return whether a new connection lists the tools."""
        if not self._access.is_personal:
            return key == SHARED
        return not self._users.has(owner_of(key)) or self.has_expired

    def note_launch(self) -> None:
        """Remember how the server is launched, which is pinned with its tools."""
        self._launch = self._clients.launch(self._checked.key)

    async def list_all(self, pooled: PooledClient) -> None:
        """List the tools and other items over a new connection.

        Raises:
            InterlockError: The tools cannot be listed.
        """
        listing = await _list_tools(pooled.client)
        pooled.client.check_open()  # the server may have answered and then exited
        if self._forwards:
            self._items.note_all()
            try:
                async with asyncio.timeout(ITEMS_TIMEOUT):
                    await self._list_items(pooled)
            except TimeoutError:
                name = self._name
                _log.warning("server %r: its resources and prompts are not listed yet", name)
        await self._check_and_install(await self._merged(pooled, listing), pooled)

    async def restore(self) -> bool:
        """Offer the tools last compared with the pins; return whether tools were found.

        Raises:
            InterlockError: The pins cannot be read.
        """
        async with self._checked.lock:
            tools = await self._checked.tools_seen_last()
            listing: Listing[Tool] = Listing()
            for each in tools:
                with suppress(ValidationError):
                    listing.append(convert(each.document, Tool))
                    listing.definitions.append(each.document)
            if not listing:
                return False
            launch = self._clients.launch(self._checked.key)
            instructions = None
            if not self._access.is_personal:
                instructions = await self._checked.instructions_seen_last()
            await self._checked.check([offered_server(launch, instructions), *tools], TOOL_KINDS)
            await self._install_tools(listing)
        return True

    # Changes

    def note_change(self, kind: str) -> None:
        """Refresh a list in the background after the server's notification."""
        if self._health.is_closed:
            return
        if kind == "tools":
            self._listed_until = 0.0
            self._changes += 1
        elif self._forwards:
            self._items.note_change(kind)
        else:
            return
        self._refresh_later()

    def list_rest(self) -> None:
        """List in the background the items that could not be listed on connecting."""
        if self._items.unlisted:
            self._refresh_later()

    def _refresh_later(self) -> None:
        if self._refreshing is None:
            self._refreshing = aio.start_detached(self._refresh_soon())
            self._refreshing.add_done_callback(self._refreshed)

    async def _refresh_soon(self) -> None:
        wait = self._refreshed_at + REFRESH_GAP - monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        self._refreshed_at = monotonic()
        pooled = self.connection
        if pooled is not None and self._items.unlisted and await self._list_items(pooled):
            self._on_change()
        await self.refresh()

    def _refreshed(self, _: asyncio.Task[None]) -> None:
        self._refreshing = None
        is_outdated = self._items.unlisted or self._changes != self._seen_changes
        if is_outdated and self.connection is not None and not self._health.is_closed:
            self._refresh_later()

    async def _list_items(self, pooled: PooledClient) -> bool:
        return await self._items.list_changed(pooled, is_personal=self._access.is_personal)

    async def refresh(self) -> None:
        """Refresh the list of tools if it has expired and the server is connected."""
        pooled, changes = self.connection, self._changes
        self._seen_changes = changes
        if pooled is None or not self.has_expired:
            return
        try:
            fresh = self._ttl is not None  # bypass the cache: the server's lifetime may be longer
            listing = await _list_tools(pooled.client, fresh=fresh)
        except InterlockError as error:
            # Keep the last good list, and only log the error.
            reason = pooled.redactor.redact(str(error))
            if reason != self._problem:  # logged once, although each refresh fails
                _log.warning("server %r: tools not refreshed: %s", self._name, reason)
            self._problem = reason
            self._failures.note(pooled, error)
            self._listed_until = monotonic() + REFRESH_PAUSE
            return
        if pooled is not self.connection:
            return
        self._problem = ""
        listing = await self._merged(pooled, listing)
        offered = await self._offered(listing, pooled)
        if self._checked.is_same(offered, TOOL_KINDS) and listing.skipped == (
            self.tools.listing.skipped
        ):
            self._listed_until = monotonic() + (listing.ttl or LIST_TTL)
            self.tools.forget_wrong_results()
        else:
            await self._check_and_install(listing, pooled)
            self._on_change()
        if changes != self._changes:  # the tools changed during the request
            self._listed_until = 0.0
            self._refresh_later()

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})

    # Pins

    async def check_again(self) -> None:
        """Compare the lists with the pins again after the pins have changed."""
        async with self._checked.lock:
            if not await self._checked.check_again():
                return
            await self.tools.install(self.tools.listing, self._clients.notes("missing"))
            self._items.install_prompts()
        self._on_change()

    async def _offered(self, listing: Listing[Tool], pooled: PooledClient) -> list[Offered]:
        """Return the parts to pin from a list of tools, and from the server itself."""
        behind, stated, tools = self._clients.behind, self._clients.stated, []
        for count, each in enumerate(listing.definitions, 1):
            tool = offered_tool(each, behind(each["name"]), stated(each["name"]))
            tools.append(tool)
            _ = tool.hash  # computed now, as `hash` is cached
            if count % aio.SLICE == 0:
                await asyncio.sleep(0)
        # If each user has a credential, instructions may name the user, so they are not pinned.
        instructions = None if self._access.is_personal else pooled.client.instructions
        return [offered_server(self._launch, instructions), *tools]

    async def _check_and_install(self, listing: Listing[Tool], pooled: PooledClient) -> None:
        async with self._checked.lock:
            await self._checked.check(await self._offered(listing, pooled), TOOL_KINDS)
            await self._install_tools(listing)
            self._items.install_prompts()

    async def _install_tools(self, listing: Listing[Tool]) -> None:
        await self.tools.install(listing, self._clients.notes("missing"))
        ttl = listing.ttl or LIST_TTL
        if self._ttl is not None:
            ttl = min(listing.ttl or self._ttl, self._ttl)
        self._listed_until = monotonic() + ttl
        listing_connection = self.connection
        for pooled in self._pool.connections:
            if pooled is not listing_connection:
                pooled.client.adopt_tools(listing)
        self.tools.forget_wrong_results()


async def _list_tools(client: Client, *, fresh: bool = False) -> Listing[Tool]:
    try:
        return await client.list_tools(fresh=fresh)
    except RemoteError as error:
        if error.code == METHOD_NOT_FOUND and client.capabilities.tools is None:
            return Listing()  # the server has only resources or prompts
        raise
