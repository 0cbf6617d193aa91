"""Negotiation of the protocol revision with a server, once per connection.

The client sends `server/discover` first. If the answer is not the answer of a modern server, the
server is legacy. A legacy program may also exit, or send no answer; then the client sends
`initialize` too, and the first answer decides. Over HTTP, the era remains unknown after a timeout,
a network error, an outage (5xx except 500 and 501) or rejected credentials (401, 403). If a legacy
server refuses the handshake over HTTP, the client tries HTTP+SSE.

Spec 2026-07-28: basic/versioning.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from time import monotonic
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from interlock import observing, revisions
from interlock.client.features import ClientFeatures
from interlock.client.options import OnAnswer
from interlock.connection import Connection
from interlock.errors import (
    AuthError,
    ConnectionClosed,
    HttpError,
    InterlockError,
    MessageTooLarge,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    RevisionError,
)
from interlock.protocol import RequestOptions
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode
from interlock.types import (
    ClientCapabilities,
    DiscoverResult,
    Implementation,
    InitializeParams,
    InitializeResult,
    RequestId,
    ServerCapabilities,
)

# Seconds for a program to answer `server/discover`; after that the client sends `initialize` too.
DISCOVER_TIMEOUT = 5.0


class Negotiated(Struct, frozen=True):
    """The revision and capabilities that a handshake has negotiated."""

    revision: str = ""
    capabilities: ServerCapabilities = ServerCapabilities()
    server_info: Implementation = Implementation(name="")
    instructions: str | None = None


class HttpFacts(Protocol):
    """Facts about a server at a URL that earlier connections have found."""

    @property
    def era(self) -> str:
        """The server's last known era: "modern", "legacy" or "sse"; "" if it is unknown."""
        ...

    @property
    def may_fall_back_to_sse(self) -> bool:
        """Whether to try HTTP+SSE if every other handshake has failed."""
        ...

    @property
    def may_try_legacy_unauthorized(self) -> bool:
        """Whether to try the legacy handshake after a 401 or 403 that no token resolves."""
        ...


class Handshake:
    """One attempt to negotiate with a server.

    Args:
        wanted: "auto", "legacy" or a revision.
        features: The client features to declare.
        info: The name and version of the client.
        timeout: Seconds for each request. If a program has not answered `server/discover` after
            half of this, or after `DISCOVER_TIMEOUT`, the legacy handshake begins as well.
        connect: Returns an open connection, over HTTP+SSE if the argument is true. It is called
            again when another connection is needed.
        http: The known facts about a server at a URL; None for other servers.
        on_answer: See `ClientOptions`.
    """

    def __init__(
        self,
        wanted: str,
        features: ClientFeatures,
        info: Implementation,
        timeout: float,
        connect: Callable[[bool], Awaitable[Connection]],
        http: HttpFacts | None = None,
        on_answer: OnAnswer | None = None,
    ) -> None:
        self._wanted = wanted
        self._features = features
        self._info = info
        self._timeout = timeout
        self._connect = connect
        self._http = http
        self._on_answer = on_answer
        self._connection: Connection

    async def negotiate(self) -> tuple[Connection, Negotiated]:
        """Connect and negotiate.

        Raises:
            RevisionError: The two sides have no revision in common.
            InterlockError: The connection failed, or no answer arrived.
        """
        may_be_legacy = self._wanted not in revisions.MODERN
        if self._http is not None and self._http.era == "sse" and may_be_legacy:
            negotiated = await self._negotiate_over_sse()
        else:
            self._connection = await self._connect(False)
            if self._wanted == "legacy" or self._wanted in revisions.LEGACY:
                negotiated = await self._negotiate_legacy()
            elif self._wanted in revisions.MODERN:
                negotiated = await self._discover(self._wanted, self._timeout)
            elif self._http is None:
                negotiated = await self._find_era_of_program()
            else:
                negotiated = await self._find_era_over_http(self._http)
        return self._connection, negotiated

    async def _find_era_of_program(self) -> Negotiated:
        self._connection.protocol.meta = self._meta(revisions.NEWEST)
        _, discovery = self._start("server/discover")
        try:
            patience = min(self._timeout / 2, DISCOVER_TIMEOUT)
            done, _ = await asyncio.wait({discovery}, timeout=patience)
            if not done:  # the program starts slowly, or it is legacy and silent
                return await self._initialize_beside(discovery)
            return self._discovered(discovery.result())
        except ConnectionClosed:
            self._connection = await self._connect(False)
            return await self._initialize()
        except RemoteError as error:
            mutual = _mutual_modern(error)
        except (RequestTimeout, RemoteProtocolError):
            mutual = None
        return await self._negotiate_with(mutual)

    async def _initialize_beside(self, discovery: asyncio.Future[Raw]) -> Negotiated:
        """Send `initialize` too; a modern server answers `server/discover` before that."""
        self._connection.protocol.meta = b""
        _, initialization = self._start("initialize", self._initialize_params())
        await asyncio.wait({discovery, initialization}, return_when=asyncio.FIRST_COMPLETED)
        if discovery.done():
            with contextlib.suppress(RemoteProtocolError, RequestTimeout):
                try:
                    return self._discovered(discovery.result())
                except RemoteError as error:
                    if (mutual := _mutual_modern(error)) is not None:
                        return await self._discover(mutual)
        try:
            return self._initialized(await initialization)
        except RemoteError as error:
            if not self._is_modern_refusal(error):
                raise
            return await self._discover(revisions.NEWEST)

    def _start(
        self, method: str, params: bytes = b"{}", timeout: float | None = None
    ) -> tuple[RequestId, asyncio.Future[Raw]]:
        """Send a request whose answer may also come after the handshake, without effect."""
        connection = self._connection
        options = RequestOptions(timeout=self._timeout if timeout is None else timeout)
        if observing.observer is None:
            started = connection.start(method, params, options)
        else:
            started = observing.observer.handshake(connection, self._http, method, params, options)
        began, answered = monotonic(), self._on_answer

        def note_end(answer: asyncio.Future[Raw]) -> None:
            error = asyncio.CancelledError() if answer.cancelled() else answer.exception()
            if answered is not None:
                answered(method, "", monotonic() - began, error)

        started[1].add_done_callback(note_end)
        return started

    async def _ask(self, method: str, params: bytes = b"{}", timeout: float | None = None) -> Raw:
        connection = self._connection
        id, answer = self._start(method, params, timeout)
        try:
            return await answer
        finally:
            connection.forget(id)

    async def _find_era_over_http(self, http: HttpFacts) -> Negotiated:
        mutual: str | None = None
        fault: HttpError | RemoteProtocolError | None = None
        if http.era != "legacy":
            try:
                return await self._discover(revisions.NEWEST)
            except RemoteError as error:
                mutual = _mutual_modern(error)
            except HttpError as error:
                # Some servers answer every unknown method with 500:
                # https://github.com/modelcontextprotocol/go-sdk/pull/1014
                is_outage = error.status > HTTPStatus.NOT_IMPLEMENTED
                if is_outage or error.status == 429 or 300 <= error.status < 400:
                    raise
                fault = error if error.status == HTTPStatus.INTERNAL_SERVER_ERROR else None
            except RemoteProtocolError as error:
                if isinstance(error, MessageTooLarge):
                    raise
                fault = error
            except AuthError as error:
                if not http.may_try_legacy_unauthorized:
                    raise
                # Some servers answer every unknown method with 401.
                with contextlib.suppress(InterlockError):
                    return await self._negotiate_legacy()
                raise error
        try:
            return await self._negotiate_with(mutual)
        except RemoteError as error:
            if fault is None or error.code != revisions.METHOD_NOT_FOUND:
                raise
        raise fault  # the server has no `initialize`, so it is modern but faulty

    async def _negotiate_with(self, mutual: str | None) -> Negotiated:
        if mutual is not None:
            return await self._discover(mutual)
        try:
            return await self._negotiate_legacy()
        except RemoteError as error:
            if not self._is_modern_refusal(error):
                raise
            return await self._discover(revisions.NEWEST)

    def _is_modern_refusal(self, error: RemoteError) -> bool:
        """Return whether a server that refuses `initialize` is modern after all.

        It answered `server/discover` too late, or the program has no `initialize` at all.
        """
        is_unknown = self._http is None and error.code == revisions.METHOD_NOT_FOUND
        return error.code == revisions.UNSUPPORTED_VERSION or is_unknown

    async def _negotiate_legacy(self) -> Negotiated:
        try:
            return await self._initialize()
        except (HttpError, RemoteError) as error:
            oldest = self._http is not None and self._http.may_fall_back_to_sse
            if not oldest or error.status not in (400, 404, 405) or _is_modern(error):
                raise
            refusal = error
        try:
            return await self._negotiate_over_sse()
        except (HttpError, RemoteError):
            raise refusal from None  # the server does not speak HTTP+SSE either

    async def _negotiate_over_sse(self) -> Negotiated:
        self._connection = await self._connect(True)
        return await self._initialize()

    async def _discover(self, revision: str, timeout: float | None = None) -> Negotiated:
        connection = self._connection
        connection.protocol.meta = self._meta(revision)
        if timeout is None:
            timeout = self._timeout
            if self._http is None:
                timeout = min(timeout / 2, DISCOVER_TIMEOUT)
        return self._discovered(await self._ask("server/discover", timeout=timeout))

    def _discovered(self, raw: Raw) -> Negotiated:
        """Adopt the answer to `server/discover`.

        Raises:
            RemoteError: The server has no modern revision.
            RemoteProtocolError: The answer is malformed.
        """
        connection = self._connection
        answer = decode(DiscoverResult, raw, "server/discover result")
        mutual = _newest_modern(answer.supported_versions)
        if mutual is None:
            data = {"supported": answer.supported_versions}
            raise RemoteError(revisions.UNSUPPORTED_VERSION, "no modern revision", data)
        connection.protocol.meta = self._meta(mutual)
        server_info = Implementation(name="")
        with contextlib.suppress(msgspec.ValidationError):  # the name is for display only
            server_info = msgspec.convert(
                (answer.meta or {}).get(revisions.SERVER_INFO_KEY), Implementation
            )
        return Negotiated(mutual, answer.capabilities, server_info, answer.instructions)

    def _meta(self, revision: str) -> bytes:
        return meta_of(revision, self._features.capabilities(revision), self._info)

    async def _initialize(self) -> Negotiated:
        self._connection.protocol.meta = b""
        return self._initialized(await self._ask("initialize", self._initialize_params()))

    def _initialize_params(self) -> bytes:
        wanted = self._wanted if self._wanted in revisions.LEGACY else revisions.NEWEST_LEGACY
        params = InitializeParams(
            protocol_version=wanted,
            capabilities=self._features.capabilities(wanted),
            client_info=self._info,
        )
        return encode(params)

    def _initialized(self, raw: Raw) -> Negotiated:
        """Adopt the answer to `initialize`.

        Raises:
            RevisionError: The server speaks no revision that interlock speaks.
            RemoteProtocolError: The answer is malformed.
        """
        answer = decode(InitializeResult, raw, "initialize result")
        if answer.protocol_version not in revisions.LEGACY:
            ours = ", ".join(revisions.LEGACY)
            raise RevisionError(
                f"the server answered initialize with {answer.protocol_version!r}; "
                f"interlock speaks {ours}"
            )
        self._connection.notify("notifications/initialized")
        return Negotiated(
            answer.protocol_version, answer.capabilities, answer.server_info, answer.instructions
        )


def meta_of(
    revision: str, capabilities: ClientCapabilities, info: Implementation, log_level: str = ""
) -> bytes:
    """Encode the `_meta` members that each request to a modern server has, without braces."""
    members: dict[str, object] = {
        revisions.VERSION_KEY: revision,
        revisions.CLIENT_INFO_KEY: info,
        revisions.CLIENT_CAPABILITIES_KEY: capabilities,
    }
    if log_level:
        members[revisions.LOG_LEVEL_KEY] = log_level
    return encode(members)[1:-1]


def _is_modern(error: HttpError | RemoteError) -> bool:
    codes = (revisions.UNSUPPORTED_VERSION, revisions.HEADER_MISMATCH, revisions.MISSING_CAPABILITY)
    return isinstance(error, RemoteError) and error.code in codes


def _newest_modern(offered: object) -> str | None:
    if not isinstance(offered, list):
        return None
    return next((each for each in reversed(revisions.MODERN) if each in offered), None)


def _mutual_modern(error: RemoteError) -> str | None:
    """Return the modern revision that a refusal offers; None if the server is legacy."""
    if error.code in (revisions.HEADER_MISMATCH, revisions.MISSING_CAPABILITY):
        raise error
    if error.code != revisions.UNSUPPORTED_VERSION or not isinstance(error.data, dict):
        return None
    supported = error.data.get("supported")
    mutual = _newest_modern(supported)
    offered = supported if isinstance(supported, list) else []
    if mutual is None and offered and not any(each in revisions.LEGACY for each in offered):
        theirs, ours = ", ".join(map(str, offered)), ", ".join(revisions.ALL)
        raise RevisionError(f"the server speaks {theirs}; interlock speaks {ours}")
    return mutual
