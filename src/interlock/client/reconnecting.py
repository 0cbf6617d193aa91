"""The connection to one server, which is replaced when the server has lost its session.

All of a client's messages pass through it. Over HTTP, failed requests are retried if a retry is
useful and safe; see `retries`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from copy import copy
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from interlock import __version__, aio, observing, revisions
from interlock.client.features import ClientFeatures
from interlock.client.handshake import Handshake, Negotiated
from interlock.client.options import OnAnswer
from interlock.client.retries import Retry, RetryPolicy, may_be_lost
from interlock.connection import Connection
from interlock.errors import (
    AuthError,
    ConnectionClosed,
    HttpError,
    InterlockError,
    RemoteError,
    RequestTimeout,
    RevisionError,
    SessionExpired,
    StreamEnded,
)
from interlock.protocol import Notification, Protocol, Request, RequestOptions
from interlock.transports import Transport
from interlock.transports.trace import Trace, TracedTransport
from interlock.types import Implementation, RequestId

if TYPE_CHECKING:
    from interlock.client.http_target import HttpTarget

PING_TIMEOUT = 5.0  # seconds
_CALLS = frozenset(("tools/call", "resources/read", "prompts/get"))

_E = TypeVar("_E", bound=InterlockError)


class Events(Struct, frozen=True):
    """Callbacks for events on a connection."""

    request: Callable[
        [Connection, Request], Coroutine[Any, Any, None]
    ]  # a legacy server sent a request
    notification: Callable[[Notification], None]
    loss: Callable[[InterlockError], None]  # called when the connection ends without `close`
    renewal: Callable[[], Awaitable[None]]  # the server has lost all state
    stale_tools: Callable[[], Awaitable[None]]  # the header annotations of tools are outdated
    # a request other than a call has ended; see `ClientOptions.on_answer`
    answer: OnAnswer | None = None


class ReconnectingConnection:
    """The connection to one server, replaced when the server has lost its session.

    Args:
        connect: Returns a new transport.
        wanted: "auto", "legacy" or a revision.
        features: The client features to declare.
        timeout: The timeout of the negotiation, in seconds.
        events: The callbacks.
        http: The known facts about a server at a URL; None for other servers.
        trace: Records all frames; None to record nothing.

    Attributes:
        negotiated: The outcome of the last negotiation.
        dropped: The number of dropped messages on all connections, by reason.
        http: The argument `http`.
    """

    def __init__(
        self,
        connect: Callable[[], Transport],
        wanted: str,
        features: ClientFeatures,
        timeout: float,
        events: Events,
        http: HttpTarget | None,
        trace: Trace | None = None,
    ) -> None:
        self.negotiated = Negotiated()
        self.dropped: Counter[str] = Counter()
        self.http = http
        self._trace = trace
        self._connect = connect
        self._wanted = wanted
        self._features = features
        self._timeout = timeout
        self._events = events
        self._agreed: Connection | None = None
        self._opening: Connection | None = None  # during negotiation
        self._transport: Transport | None = None  # the latest transport
        self._closed = False
        self._policy: RetryPolicy | None = None
        if http is not None:
            self._policy = RetryPolicy(
                http.authorization, self.renew, events.stale_tools, self._refusal_of_ping
            )
        self._renewing: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[InterlockError | None] | None = None
        self._refused: tuple[Connection, InterlockError] | None = None  # the error of a ping
        self._retired: dict[Connection, asyncio.Task[None]] = {}

    @property
    def connection(self) -> Connection:
        """The current connection.

        Raises:
            ConnectionClosed: The connection was never opened.
        """
        if self._agreed is None:
            raise ConnectionClosed("the client is not open: use it in 'async with'")
        return self._agreed

    @property
    def stderr(self) -> str:
        """The last server program's stderr; "" for other servers."""
        text: str = getattr(self._transport, "stderr", "")
        return text

    def answers_during(self, request: RequestId | None) -> set[object]:
        """Return `Connection.answers_during`; an empty set before the first handshake has ended."""
        return set() if self._agreed is None else self._agreed.answers_during(request)

    # Opening

    async def open(self) -> None:
        """Connect to the server and negotiate; `Client.open` lists the errors."""
        if self._agreed is not None:  # reopened without `close`
            await self._agreed.close()
        self._closed = False
        self.negotiated = Negotiated()  # earlier results may be outdated
        try:
            await self._reach()
        except BaseException as error:
            await self.close()
            if isinstance(error, InterlockError):
                self.named(error)
            raise

    async def _reach(self) -> None:
        """Negotiate with the server; after each login that it requires, negotiate again."""
        if self._policy is None or self.http is None:
            self._agreed, self.negotiated = await self._agree()
            return
        # A login has no deadline, so each negotiation after a login gets a new deadline.
        login, repeat = (
            self._policy.attempt("server/discover", idempotent=True, sent=0, deadline=deadline)
            for deadline in (inf, monotonic() + self._timeout)
        )
        self.http.is_refused = False
        refusal: AuthError | None = None
        while True:
            try:
                if self.http.authorization is not None and not self.http.authorization.token:
                    # Get the token before the timeout starts, because a keyring may be slow.
                    await self.http.authorization.valid_token()
                self._agreed, self.negotiated = await self._agree()
            except AuthError as error:
                if refusal is not None:
                    raise refusal from None  # the fallback has failed as well
                try:
                    await login.recover(error, None)
                except AuthError as reason:
                    if self.http.may_try_legacy_unauthorized:
                        raise  # the legacy handshake has already been tried
                    refusal, self.http.is_refused = reason, True
            except RequestTimeout:
                self.http.forget_era()  # so that the next attempt detects the era
                raise
            except (HttpError, RemoteError, RevisionError, StreamEnded) as error:
                if self.http.forget_era():  # the server may have changed its era
                    continue
                if not isinstance(error, HttpError):
                    raise
                await repeat.recover(error, None)
            else:
                return

    async def _agree(self) -> tuple[Connection, Negotiated]:
        handshake = Handshake(
            self._wanted,
            self._features,
            own_info(),
            self._timeout,
            self._open_connection,
            self.http,
            self._events.answer,
        )
        try:
            async with asyncio.timeout(self._timeout):
                connection, negotiated = await handshake.negotiate()
        except TimeoutError as error:
            waited = f"no answer from the server within {self._timeout:g} s"
            why = str(error) if isinstance(error, InterlockError) else waited
            opening, self._opening = self._opening, None
            if opening is not None:
                await opening.close()
            words = opening.transport.diagnostics() if opening is not None else ""
            raise RequestTimeout(f"{why}; it last said: {words}" if words else why) from None
        self._opening = None
        connection.hand_over_calls()
        if self.http is not None and self._transport is not None and self._wanted == "auto":
            self.http.remember_era(self._transport, negotiated.revision)
        return connection, negotiated

    async def _open_connection(self, oldest: bool) -> Connection:
        if self._opening is not None:
            await self._opening.close()
        if self._closed:  # another task called `close` meanwhile
            raise ConnectionClosed("the client was closed")
        connect = self.http.connect_oldest if self.http and oldest else self._connect
        self._transport = transport = connect()
        if self._trace is not None:
            transport = TracedTransport(transport, self._trace)
        self._opening = connection = Connection(
            Protocol(dropped=self.dropped),
            transport,
            on_request=lambda request: self._events.request(connection, request),
            on_notification=self._events.notification,
            on_loss=lambda error: self._lose(connection, error),
        )
        await connection.open()
        return connection

    def _lose(self, connection: Connection, error: InterlockError) -> None:
        # During the negotiation, `open` raises the error instead.
        if connection is self._agreed:
            self._events.loss(error)

    # Closing

    async def close(self) -> None:
        """Disconnect; requests in progress fail. A second call has no effect."""
        self._closed = True
        renewing = self._renewing
        if renewing is not None:
            renewing.cancel()
        for connection in (self._opening, self._agreed):
            if connection is not None:
                await connection.close()
        if renewing is not None and renewing is not asyncio.current_task():
            await asyncio.wait({renewing})
        for connection in list(self._retired):
            await connection.close()
        await asyncio.gather(*self._retired.values(), return_exceptions=True)
        if self.http is not None:
            await self.http.close()

    def check_open(self) -> None:
        error = self.connection.protocol.closed
        if error is not None:
            raise copy(error)

    # Renewing

    async def renew(self, lost: object) -> None:
        """Replace the connection `lost`, whose session is lost; concurrent callers share this."""
        if self._renewing is None:
            if self._agreed is not lost:
                return  # another caller has replaced it
            self._renewing = aio.start_detached(self._reconnect())
            self._renewing.add_done_callback(_retrieve)
        renewing = self._renewing
        await asyncio.wait({renewing})  # unlike `await renewing`, cancelling does not cancel it
        if renewing.cancelled():
            raise ConnectionClosed("the client was closed")
        renewing.result()

    async def _reconnect(self) -> None:
        old = self._agreed
        try:
            await self._reach()
            await self._events.renewal()
        finally:
            self._renewing = None
            if old is not None and old is not self._agreed:
                # Requests in progress on the old connection may still succeed.
                self._retired[old] = retiring = aio.start_detached(old.retire())
                retiring.add_done_callback(lambda _: self._retired.pop(old))

    async def _refusal_of_ping(self, lost: object) -> InterlockError | None:
        """Return the refusal of a ping on a legacy connection; concurrent callers share the ping.

        Return None if the server answers the ping, does not know pings, or cannot be reached.
        """
        if self._refused is not None and self._refused[0] is lost:
            return self._refused[1]
        if revisions.is_modern(self.negotiated.revision) or self._agreed is not lost:
            return None
        if self._probing is None:
            self._probing = aio.start_detached(self._probe(self.connection))
        probing = self._probing
        await asyncio.wait({probing})
        return None if probing.cancelled() else probing.result()

    async def _probe(self, connection: Connection) -> InterlockError | None:
        try:
            await connection.request("ping", options=RequestOptions(PING_TIMEOUT))
        except InterlockError as error:
            if not isinstance(error, SessionExpired) and not may_be_lost(error):
                return None  # for example, the server does not support pings
            self._refused = connection, self.named(error)
            return error
        finally:
            self._probing = None
        return None

    # Requests

    def request(
        self,
        method: str,
        params: bytes,
        options: RequestOptions,
        *,
        is_observed: bool = False,
        is_measured: bool = False,
    ) -> Coroutine[Any, Any, Raw]:
        """Send a request and wait for its result; over HTTP, a failed request may be retried.

        See `Connection.request` for the arguments and errors. `is_observed` states whether the
        observer has been notified of the request, and `is_measured` whether its time is measured.
        """
        if observing.observer is not None and not is_observed:
            return observing.observer.request(self, method, params, options)
        if self._events.answer is not None and method not in _CALLS and not is_measured:
            return self._measured(self._events.answer, method, params, options)
        if self._policy is None:
            connection = self._agreed or self.connection  # the property may raise an error
            return connection.request(method, params, options)
        return self._request_with_retries(self._policy, method, params, options)

    async def _measured(
        self,
        note: OnAnswer,
        method: str,
        params: bytes,
        options: RequestOptions,
    ) -> Raw:
        began, failed = monotonic(), None
        try:
            return await self.request(method, params, options, is_observed=True, is_measured=True)
        except BaseException as error:
            failed = error
            raise
        finally:
            note(method, self.negotiated.revision, monotonic() - began, failed)

    async def _request_with_retries(
        self, policy: RetryPolicy, method: str, params: bytes, options: RequestOptions
    ) -> Raw:
        policy.sent += 1
        sent = monotonic()
        deadline = inf if options.hard_timeout is None else sent + options.hard_timeout
        retry: Retry | None = None
        while True:
            connection = self.connection
            try:
                answer = await connection.request(method, params, options)
                policy.has_answered = True
                return answer
            except InterlockError as error:
                if retry is None:
                    retry = policy.attempt(
                        method, idempotent=options.idempotent, sent=sent, deadline=deadline
                    )
                await retry.recover(self.named(error), connection)
                options = replace(options, hard_timeout=retry.deadline - monotonic())

    def named(self, error: _E) -> _E:
        """Prefix an error's text with the server's URL, over HTTP."""
        return error if self.http is None else self.http.named(error)


def _retrieve(renewing: asyncio.Task[None]) -> None:
    if not renewing.cancelled():
        renewing.exception()


def own_info() -> Implementation:
    """Return the name and version of this client."""
    return Implementation(name="interlock", version=__version__)
