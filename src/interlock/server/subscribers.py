"""The clients that are notified of changes, modern and legacy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from interlock import revisions
from interlock.auth.principal import Principal
from interlock.context import LEVELS, Session
from interlock.errors import InterlockError, InvalidArguments
from interlock.protocol.envelope import encode, with_meta
from interlock.types import JsonObject, LogLevel, RequestId, SubscriptionFilter

MAX_SUBSCRIBERS = 10_000
MAX_URIS = 1_000  # resource URIs that one subscriber may follow
MAX_URI = 2_048  # characters of one URI

ListKind = Literal["tools", "prompts", "resources"]
Notify = Callable[[str, bytes], None]
# Returns whether a principal may be notified; called when the notification is sent.
Audience = Callable[[Principal | None], bool]


class Subscriber(Struct, eq=False):
    """A client to notify: a `subscriptions/listen` stream, or a legacy session."""

    notify: Notify
    filter: SubscriptionFilter
    uris: set[str]
    principal: Principal | None
    session: Session | None = None  # the session of a legacy client; None for a modern stream
    task_ids: frozenset[str] = frozenset()
    meta: bytes = b""  # encoded `_meta` with the subscription's id, for modern streams


class Subscribers:
    """All subscribers of a server. Any thread may call the methods that notify them.

    Such a method takes an optional `audience`: a function that decides which principals may be
    notified. It is called when a notification is sent, so that withdrawn rights take effect.

    Args:
        on_add: Called with each subscriber that is added.
        on_remove: Called with each subscriber that is removed.
    """

    def __init__(
        self,
        on_add: Callable[[Subscriber], None] = lambda _: None,
        on_remove: Callable[[Subscriber], None] = lambda _: None,
    ) -> None:
        self._on_add = on_add
        self._on_remove = on_remove
        self._open: dict[Subscriber, asyncio.AbstractEventLoop] = {}

    def add(self, subscriber: Subscriber) -> None:
        """Start notifying a subscriber, in the running event loop.

        Raises:
            InterlockError: There are too many subscribers.
        """
        if len(self._open) >= MAX_SUBSCRIBERS:
            raise InterlockError(
                f"too many subscriptions (limit {MAX_SUBSCRIBERS}); try again later"
            )
        self._open[subscriber] = asyncio.get_running_loop()
        self._on_add(subscriber)

    def remove(self, subscriber: Subscriber) -> None:
        if self._open.pop(subscriber, None) is not None:
            self._on_remove(subscriber)

    def principals(self) -> list[Principal | None]:
        """Return the principals of all subscribers; the list may have duplicates."""
        return [each.principal for each in self._open]

    def uris(self) -> set[str]:
        return set().union(*(each.uris for each in self._open))

    def list_changed(self, kind: ListKind, audience: Audience | None = None) -> None:
        for subscriber in list(self._open):
            if getattr(subscriber.filter, f"{kind}_list_changed"):
                self._send(subscriber, f"notifications/{kind}/list_changed", b"{}", audience)

    def resource_updated(self, uri: str, audience: Audience | None = None) -> None:
        params = encode({"uri": uri})
        for subscriber in list(self._open):
            if uri in subscriber.uris:
                self._send(subscriber, "notifications/resources/updated", params, audience)

    def logged(self, level: LogLevel, params: bytes, audience: Audience | None = None) -> None:
        """Send a log message that belongs to no request to sessions that accept its level."""
        rank = LEVELS.index(level)
        for subscriber in list(self._open):
            wanted = subscriber.session.log_level if subscriber.session is not None else None
            if wanted is not None and rank >= LEVELS.index(wanted):
                self._send(subscriber, "notifications/message", params, audience)

    def task_changed(self, id: str, params: bytes, audience: Audience) -> None:
        """Notify the task's subscribers that it has changed; `params` is the whole encoded task."""
        for subscriber in list(self._open):
            if id in subscriber.task_ids:
                self._send(subscriber, "notifications/tasks", params, audience)

    def _send(
        self, subscriber: Subscriber, method: str, params: bytes, audience: Audience | None
    ) -> None:
        loop = self._open.get(subscriber)
        if loop is None:
            return  # the subscriber was removed before this callback ran
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is not loop:
            with suppress(RuntimeError):  # the subscriber's event loop has been closed
                loop.call_soon_threadsafe(self._send, subscriber, method, params, audience)
        elif audience is None or audience(subscriber.principal):
            subscriber.notify(method, with_meta(params, subscriber.meta))


def check_size(uris: Collection[str]) -> None:
    """Refuse a list with more URIs or ids than one subscriber may follow.

    Raises:
        InvalidArguments: There are too many URIs, or a URI is too long.
    """
    if len(uris) > MAX_URIS:
        raise InvalidArguments(
            f"too many resources or tasks in one subscription ({len(uris)}, limit {MAX_URIS}); "
            "open several subscriptions"
        )
    longest = max(map(len, uris), default=0)
    if longest > MAX_URI:
        raise InvalidArguments(f"URI too long to follow ({longest} characters, limit {MAX_URI})")


def for_stream(
    id: RequestId, wanted: SubscriptionFilter, notify: Notify, principal: Principal | None
) -> Subscriber:
    """Return a subscriber for a modern stream; notifications contain the stream's id."""
    meta: JsonObject = {revisions.SUBSCRIPTION_KEY: id}
    return Subscriber(
        notify,
        wanted,
        set(wanted.resource_subscriptions),
        principal,
        task_ids=frozenset(wanted.task_ids),
        meta=encode(meta)[1:-1],
    )


def for_session(session: Session, notify: Notify, principal: Principal | None) -> Subscriber:
    """Return a subscriber for a legacy session, for all lists and the resources it follows."""
    everything = SubscriptionFilter(
        tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
    )
    return Subscriber(notify, everything, session.subscriptions, principal, session)


def end_of_stream(id: RequestId) -> tuple[bytes, bytes]:
    """Return the two final messages' bodies: params of `notifications/cancelled`, and a result."""
    meta: JsonObject = {revisions.SUBSCRIPTION_KEY: id}
    return encode({"requestId": id}), encode({"resultType": "complete", "_meta": meta})
