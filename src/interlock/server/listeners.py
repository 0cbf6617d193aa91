"""Who wants to be told of changes, in either era."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from interlock import revisions
from interlock.envelope import encode, with_meta
from interlock.errors import InterlockError
from interlock.types import JsonObject, RequestId, SubscriptionFilter

MAX_LISTENERS = 10_000
MAX_URIS = 1_000  # resources that one listener may follow

Notify = Callable[[str, bytes], None]


class Listener(Struct, eq=False):
    """One `subscriptions/listen` stream, or one legacy session.

    `wants` tells of a kind ("tools", "prompts", "resources") or a URI whether it is asked for.
    """

    notify: Notify
    filter: SubscriptionFilter
    uris: set[str]
    task_ids: frozenset[str] = frozenset()
    meta: bytes = b""  # for modern streams: the id of the subscription


class Listeners:
    """All listeners of a server."""

    def __init__(self) -> None:
        self._open: set[Listener] = set()

    def add(self, listener: Listener) -> None:
        """Begin to tell a listener.

        Raises:
            InterlockError: There are too many.
        """
        if len(self._open) >= MAX_LISTENERS:
            raise InterlockError(f"over {MAX_LISTENERS} subscriptions; try again later")
        self._open.add(listener)

    def remove(self, listener: Listener) -> None:
        """Tell it no more."""
        self._open.discard(listener)

    def list_changed(self, kind: str) -> None:
        """Tell that the list of "tools", "prompts" or "resources" has changed."""
        for listener in list(self._open):
            if getattr(listener.filter, f"{kind}_list_changed"):
                listener.notify(
                    f"notifications/{kind}/list_changed", with_meta(b"{}", listener.meta)
                )

    def resource_updated(self, uri: str) -> None:
        """Tell that a resource has changed."""
        params = encode({"uri": uri})
        for listener in list(self._open):
            if uri in listener.uris:
                listener.notify("notifications/resources/updated", with_meta(params, listener.meta))

    def task_changed(self, id: str, params: bytes) -> None:
        """Tell that a task has changed; `params` is all of it, encoded."""
        for listener in list(self._open):
            if id in listener.task_ids:
                listener.notify("notifications/tasks", with_meta(params, listener.meta))


def for_stream(id: RequestId, wanted: SubscriptionFilter, notify: Notify) -> Listener:
    """Make the listener of a modern stream; all that it is told carries the stream's id.

    Raises:
        InterlockError: It wants too many resources or tasks.
    """
    if len(wanted.resource_subscriptions) > MAX_URIS or len(wanted.task_ids) > MAX_URIS:
        raise InterlockError(f"over {MAX_URIS} resources or tasks in one subscription")
    meta: JsonObject = {revisions.SUBSCRIPTION_KEY: id}
    return Listener(
        notify,
        wanted,
        set(wanted.resource_subscriptions),
        frozenset(wanted.task_ids),
        encode(meta)[1:-1],
    )


def for_session(uris: set[str], notify: Notify) -> Listener:
    """Make the listener of a legacy session: all lists, and the resources in `uris`."""
    everything = SubscriptionFilter(
        tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
    )
    return Listener(notify, everything, uris)
