"""Messages that a server sends by itself: notifications, and requests from a legacy server."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import cast

from interlock import revisions
from interlock.client.cache import Cache
from interlock.client.caller_answers import CallerAnswers
from interlock.client.features import Answers, ClientFeatures
from interlock.client.options import LIST_TIMEOUT, ClientOptions
from interlock.client.reconnecting import ReconnectingConnection
from interlock.client.subscriptions import Subscriptions
from interlock.connection import Connection
from interlock.errors import AskRefused, InterlockError, RemoteProtocolError, to_wire
from interlock.protocol import Notification, Request
from interlock.protocol.back_channel import MayBeAbandoned
from interlock.protocol.decoding import decode
from interlock.types import (
    JsonObject,
    LogMessage,
    RequestId,
    ResourceUpdatedParams,
    Result,
    SubscriptionFilter,
)

_log = logging.getLogger("interlock.client")

# For each notification, the list that changed and the cached requests that are now invalid.
_CHANGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools", ("tools/list",)),
    "notifications/prompts/list_changed": ("prompts", ("prompts/list",)),
    "notifications/resources/list_changed": (
        "resources",
        ("resources/list", "resources/templates/list", "resources/read"),
    ),
}


class ServerMessages:
    """Passes a server's messages to the program's handlers, and invalidates cached results.

    Args:
        features: Answers requests, unless they belong to a call on behalf of another client.
        cache: The cache of results, which notifications invalidate.
        options: The program's handlers.

    Attributes:
        channel: The client's connection, set before the connection is opened.
        subscriptions: The streams from a modern server; None before the client is open.
    """

    channel: ReconnectingConnection

    def __init__(self, features: ClientFeatures, cache: Cache, options: ClientOptions) -> None:
        self.subscriptions: Subscriptions | None = None
        self._features = features
        self._cache = cache
        self._on_log = options.get("on_log")
        self._on_list_changed = options.get("on_list_changed")
        self._on_resource_updated = options.get("on_resource_updated")

    @property
    def _revision(self) -> str:
        return self.channel.negotiated.revision

    @property
    def _server(self) -> str:
        return self.channel.negotiated.server_info.name or "server"

    @property
    def listens(self) -> bool:
        """Whether the client must subscribe to receive notifications of changed lists."""
        return self._on_list_changed is not None and revisions.is_modern(self._revision)

    def on_notification(self, notification: Notification) -> None:
        """Handle a notification; drop and count it if it is malformed."""
        try:
            self._handle(notification)
        except RemoteProtocolError as error:
            self.channel.dropped["malformed notification"] += 1
            _log.warning("%s: %s", self._server, error)

    def _handle(self, notification: Notification) -> None:
        method, params = notification.method, notification.params
        if method in _CHANGES:
            kind, methods = _CHANGES[method]
            for each in methods:
                self._cache.forget(each)
            if self._on_list_changed is not None:
                self._on_list_changed(kind)
        elif method == "notifications/resources/updated":
            uri = decode(ResourceUpdatedParams, params, method).uri
            self._cache.forget("resources/read", uri)
            if self._on_resource_updated is not None:
                self._on_resource_updated(uri)
        elif method == "notifications/message":
            callers = self.channel.answers_during(notification.during)
            if len(callers) == 1 and isinstance(caller := callers.pop(), CallerAnswers):
                caller.back.notify(method, bytes(params))
            elif self._on_log is not None:
                self._on_log(decode(LogMessage, params, method))
        elif method == "notifications/subscriptions/acknowledged":
            id = (decode(Result, params, method).meta or {}).get(revisions.SUBSCRIPTION_KEY)
            if self.subscriptions is not None and isinstance(id, int | str):
                self.subscriptions.acknowledge(id)

    async def answer(self, connection: Connection, request: Request) -> None:
        """Answer a legacy server's request: ping, roots, sampling or elicitation."""
        if revisions.is_modern(self._revision):
            connection.protocol.ignore(request.id)  # modern clients never send responses
            return
        try:
            if request.method == "ping":
                answer = b"{}"
            else:
                answers = self._answers_for(connection, request.during)
                is_caller = isinstance(answers, CallerAnswers)
                with connection.paused(answers) if is_caller else nullcontext():
                    answer = await answers.answer(request.method, request.params, self._revision)
        except Exception as error:
            if not isinstance(error, InterlockError):
                _log.exception("answering %s failed", request.method)
            connection.protocol.reply_error(request.id, *to_wire(error))
        else:
            connection.protocol.reply(request.id, answer)
        connection.flush()

    def _answers_for(self, connection: Connection, during: RequestId | None) -> Answers:
        """Return the receiver of a question: the calling client, or this client's own handlers.

        Raises:
            AskRefused: Several calls are in progress, and the transport does not show which
                call the question belongs to.
        """
        found = connection.answers_during(during)
        if not found:
            return self._features
        if len(found) > 1:
            # End abandoned calls, because they would make later questions ambiguous as well.
            for each in found:
                if isinstance(each, CallerAnswers) and isinstance(each.back, MayBeAbandoned):
                    each.back.end_if_abandoned()
            raise AskRefused(
                "several calls are running, and the question does not say which one it is for",
                "ask_ambiguous",
            )
        return cast("Answers", found.pop())

    async def listen_for_changes(self, subscriptions: Subscriptions) -> None:
        """Subscribe to changed lists; this runs in the background, as no caller waits for it."""
        capabilities = self.channel.negotiated.capabilities
        wanted = SubscriptionFilter(
            tools_list_changed=_reports_changes(capabilities.tools),
            prompts_list_changed=_reports_changes(capabilities.prompts),
            resources_list_changed=_reports_changes(capabilities.resources),
        )
        if wanted != SubscriptionFilter():
            try:
                await subscriptions.open("lists", wanted, timeout=LIST_TIMEOUT)
            except InterlockError as error:
                _log.info("%s: list changes are not reported: %s", self._server, error)

    def forget_lists(self) -> None:
        """Invalidate all cached lists, because notifications may have been missed."""
        self._cache.clear()
        if self._on_list_changed is None:
            return
        for kind, _ in _CHANGES.values():
            try:
                self._on_list_changed(kind)
            except Exception:
                _log.exception("on_list_changed(%r) failed", kind)


def _reports_changes(capability: JsonObject | None) -> bool:
    return bool(capability and capability.get("listChanged"))
