"""Who wants to be told of changes, in either era."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from msgspec import Struct

from interlock import revisions
from interlock.errors import InterlockError, InvalidArguments
from interlock.protocol.envelope import encode, with_meta
from interlock.types import JsonObject, RequestId, SubscriptionFilter

MAX_SUBSCRIBERS = 10_000
MAX_URIS = 1_000  # resources that one subscriber may follow
MAX_URI = 2_048  # characters of one of them

Notify = Callable[[str, bytes], None]


class Subscriber(Struct, eq=False):
    """One `subscriptions/listen` stream, or one legacy session."""

    notify: Notify
    filter: SubscriptionFilter
    uris: set[str]
    task_ids: frozenset[str] = frozenset()
    meta: bytes = b""  # for modern streams: the id of the subscription


class Subscribers:
    """All subscribers of a server. News may come from any thread, such as a plain function's."""

    def __init__(self) -> None:
        self._open: dict[Subscriber, asyncio.AbstractEventLoop] = {}

    def add(self, subscriber: Subscriber) -> None:
        """Begin to tell a subscriber.

        Raises:
            InterlockError: There are too many.
        """
        if len(self._open) >= MAX_SUBSCRIBERS:
            raise InterlockError(f"over {MAX_SUBSCRIBERS} subscriptions; try again later")
        self._open[subscriber] = asyncio.get_running_loop()

    def remove(self, subscriber: Subscriber) -> None:
        """Tell it no more."""
        self._open.pop(subscriber, None)

    def list_changed(self, kind: str) -> None:
        """Tell that the list of "tools", "prompts" or "resources" has changed."""
        for subscriber in list(self._open):
            if getattr(subscriber.filter, f"{kind}_list_changed"):
                self._tell(subscriber, f"notifications/{kind}/list_changed", b"{}")

    def resource_updated(self, uri: str) -> None:
        """Tell that a resource has changed."""
        params = encode({"uri": uri})
        for subscriber in list(self._open):
            if uri in subscriber.uris:
                self._tell(subscriber, "notifications/resources/updated", params)

    def task_changed(self, id: str, params: bytes) -> None:
        """Tell that a task has changed; `params` is all of it, encoded."""
        for subscriber in list(self._open):
            if id in subscriber.task_ids:
                self._tell(subscriber, "notifications/tasks", params)

    def _tell(self, subscriber: Subscriber, method: str, params: bytes) -> None:
        loop = self._open.get(subscriber)
        if loop is None:
            return  # it has gone meanwhile
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is loop:
            subscriber.notify(method, with_meta(params, subscriber.meta))
        else:
            with suppress(RuntimeError):  # its loop has been closed, and it with it
                loop.call_soon_threadsafe(self._tell, subscriber, method, params)


def check_size(uris: Collection[str]) -> None:
    """Refuse more URIs or ids than one subscriber may follow.

    Raises:
        InvalidArguments: There are too many, or one is too long.
    """
    if len(uris) > MAX_URIS:
        raise InvalidArguments(f"too many subscriptions ({len(uris)}, limit {MAX_URIS})")
    longest = max(map(len, uris), default=0)
    if longest > MAX_URI:
        raise InvalidArguments(f"URI too long to follow ({longest} characters, limit {MAX_URI})")


def for_stream(id: RequestId, wanted: SubscriptionFilter, notify: Notify) -> Subscriber:
    """Return the subscriber of a modern stream; its notifications carry the stream's id."""
    meta: JsonObject = {revisions.SUBSCRIPTION_KEY: id}
    return Subscriber(
        notify,
        wanted,
        set(wanted.resource_subscriptions),
        frozenset(wanted.task_ids),
        encode(meta)[1:-1],
    )


def for_session(uris: set[str], notify: Notify) -> Subscriber:
    """Make the subscriber of a legacy session: all lists, and the resources in `uris`."""
    everything = SubscriptionFilter(
        tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
    )
    return Subscriber(notify, everything, uris)


def end_of_stream(id: RequestId) -> tuple[bytes, bytes]:
    """Give what ends a modern stream: params of `notifications/cancelled`, and its result."""
    meta: JsonObject = {revisions.SUBSCRIPTION_KEY: id}
    return encode({"requestId": id}), encode({"resultType": "complete", "_meta": meta})
