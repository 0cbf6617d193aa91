"""Changes at the servers, and the notifications that clients get about them.

1. Clients are notified only if their own list has changed, at most once every `GAP` seconds.
2. Each client's rights are checked when a notification is sent.
3. All clients share one subscription to a resource, which ends after the last client leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from time import monotonic

from interlock import aio
from interlock.auth.principal import Principal
from interlock.calls import Caller, Item
from interlock.config.gateway import OWN
from interlock.context import Context
from interlock.errors import InterlockError
from interlock.gateway.forwarding.catalogue import ToolboxCatalogue, basis_of_rights
from interlock.gateway.forwarding.in_force import InForce
from interlock.gateway.forwarding.parking import Parking
from interlock.gateway.forwarding.refusals import refused
from interlock.protocol.envelope import encode
from interlock.server.subscribers import Audience, ListKind, Subscriber, Subscribers
from interlock.toolbox import Toolbox
from interlock.types import LogLevel, LogMessage

GAP = 1.0  # seconds between two notifications about a list
REFRESH_EVERY = 5.0  # seconds between refreshes of expired lists
KINDS: tuple[ListKind, ...] = ("tools", "prompts", "resources")


class Changes:
    """Notifies subscribed clients of changes at the servers.

    Args:
        toolbox: The servers.
        catalogue: The lists that each caller sees.
        parking: The parked calls.
        in_force: The current policy.

    Attributes:
        subscribers: The clients that are notified.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        catalogue: ToolboxCatalogue,
        parking: Parking,
        in_force: InForce,
    ) -> None:
        self._toolbox = toolbox
        self._catalogue = catalogue
        self.subscribers = Subscribers(self._remember, self._removed)
        self._parking = parking
        self._in_force = in_force
        self._seen: dict[Hashable, dict[ListKind, int]] = {}
        self._checked_at = -GAP
        self._timer: asyncio.TimerHandle | None = None
        self._followed: dict[str, Item] = {}  # by the URI that clients use
        self._beginning: dict[str, asyncio.Task[None]] = {}  # subscriptions that are starting
        self._unfollowing: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # Lists

    def toolbox_changed(self) -> None:
        """Compare all subscribers' lists, now or soon; end parked calls of removed servers."""
        self._parking.keep(self._toolbox.upstreams)
        if self._timer is None:
            wait = max(0.0, self._checked_at + GAP - monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait, self._check_later)

    def _check_later(self) -> None:
        self._timer = None
        self._checked_at = monotonic()
        self._start(self._check())

    async def _check(self) -> None:
        principals = {basis_of_rights(each): each for each in self.subscribers.principals()}
        self._seen = {key: each for key, each in self._seen.items() if key in principals}
        changed: dict[ListKind, set[Hashable]] = {kind: set() for kind in KINDS}
        for basis, principal in principals.items():
            before, now = self._seen.get(basis), await self._lists_of(principal)
            self._seen[basis] = now
            for kind in KINDS:
                if before is None or before[kind] != now[kind]:
                    changed[kind].add(basis)
            await asyncio.sleep(0)  # lets other tasks run, because there may be many principals
        for kind, whose in changed.items():
            if whose:
                self.subscribers.list_changed(kind, _is_one_of(whose))

    def _remember(self, subscriber: Subscriber) -> None:
        basis = basis_of_rights(subscriber.principal)
        if basis not in self._seen:
            self._start(self._note_lists(basis, subscriber.principal))

    async def _note_lists(self, basis: Hashable, principal: Principal | None) -> None:
        version = self._catalogue.version
        now = await self._lists_of(principal)
        if version == self._catalogue.version:  # otherwise `_check` notifies the subscriber
            self._seen.setdefault(basis, now)

    async def _lists_of(self, principal: Principal | None) -> dict[ListKind, int]:
        return {kind: await self._catalogue.fingerprint(kind, principal) for kind in KINDS}

    # Resources

    async def follow(self, uri: str, context: Context) -> bool:
        """Subscribe to a resource at its server; return False if the caller may not read it.

        Raises:
            RemoteError: The server refuses the subscription, or is unavailable.
        """
        item = self._catalogue.find_resource(uri, Caller(context.principal))
        if item is None:
            return False
        if item.server == OWN:  # a kept result never changes
            return True
        if uri not in self._followed:
            beginning = self._beginning.get(uri)
            if beginning is None:
                beginning = self._beginning[uri] = aio.start_detached(self._begin(uri, item))
            try:
                await asyncio.shield(beginning)  # other clients may wait for the same subscription
            except InterlockError as error:
                raise refused(item, error) from None
        return True

    async def _begin(self, uri: str, item: Item) -> None:
        try:
            await self._toolbox.upstream(item.server).follow(item.name)
            self._followed[uri] = item
        finally:
            del self._beginning[uri]

    def unfollowed(self) -> None:
        """End subscriptions that no client uses any more, after `GAP` seconds.

        During the delay another client may subscribe, and then the subscription stays.
        """
        if self._followed and self._unfollowing is None:
            loop = asyncio.get_running_loop()
            self._unfollowing = loop.call_later(GAP, self._drop_unwanted)

    def _drop_unwanted(self) -> None:
        self._unfollowing = None
        wanted = self.subscribers.uris()
        for uri in [each for each in self._followed if each not in wanted]:
            self._start(self._unfollow(self._followed.pop(uri)))

    async def _unfollow(self, item: Item) -> None:
        upstream = self._toolbox.upstreams.get(item.server)
        if upstream is not None:
            await upstream.unfollow(item.name)

    def _removed(self, _: Subscriber) -> None:
        self.unfollowed()

    def resource_updated(self, server: str, uri: str) -> None:
        """Notify the subscribers of a server's resource, and not those of another server's."""
        item = Item("resources", server, uri)

        def may_use(principal: Principal | None) -> bool:
            return self._catalogue.may_use(Caller(principal), item)

        for shown in [shown for shown, each in self._followed.items() if each == item]:
            self.subscribers.resource_updated(shown, may_use)

    # Log messages outside of calls

    async def set_log_level(self, level: LogLevel, context: Context) -> None:
        """Lower the log level of each server that the caller may use, if it is higher."""
        policy, caller = self._in_force.policy, Caller(context.principal)
        wanted = [
            each.want_log_level(level)
            for name, each in self._toolbox.upstreams.items()
            if policy.may_use_any(caller, name)
        ]
        await asyncio.gather(*wanted)

    def logged(self, server: str, message: LogMessage) -> None:
        """Forward a server's log message to clients that may see it and want its level."""

        def may_use(principal: Principal | None) -> bool:
            return self._in_force.policy.may_use_any(Caller(principal), server)

        self.subscribers.logged(message.level, encode(message), may_use)

    # Tasks

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = aio.start_detached(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def refresh(self) -> None:
        """Refresh expired lists, and retry servers that failed to start, until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_EVERY)
            await self._toolbox.refresh()

    async def close(self) -> None:
        for timer in (self._timer, self._unfollowing):
            if timer is not None:
                timer.cancel()
        self._timer = self._unfollowing = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _is_one_of(bases: set[Hashable]) -> Audience:
    return lambda principal: basis_of_rights(principal) in bases
