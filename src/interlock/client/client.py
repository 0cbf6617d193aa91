"""A client for one MCP server, in any protocol revision.

The path of a call::

    call_tool -> Connection.request -> Protocol.request -> Transport.send
    frames_received -> Protocol.receive -> future -> call_tool -> CallToolResult
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, cast

from msgspec import UNSET, Raw
from msgspec.structs import replace

from interlock import aio, revisions
from interlock.client import listing
from interlock.client.cache import MAX_RESOURCE, Cache
from interlock.client.features import ClientFeatures
from interlock.client.interactive import InteractiveRequests, unknown_type
from interlock.client.listing import Kind, Listing
from interlock.client.options import (
    CALL_TIMEOUT,
    CONNECT_TIMEOUT,
    HARD_TIMEOUT,
    LIST_TIMEOUT,
    START_TIMEOUT,
    ClientOptions,
    check_options,
)
from interlock.client.output_schemas import OutputSchemas
from interlock.client.reconnecting import Events, ReconnectingConnection
from interlock.client.server_messages import ServerMessages
from interlock.client.subscriptions import MAX_SUBSCRIPTIONS, Subscriptions
from interlock.connection import Connection
from interlock.errors import (
    ConnectionClosed,
    InterlockError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestTimeout,
)
from interlock.observing import TraceContext
from interlock.protocol import Counted, ProgressHandler, RequestOptions
from interlock.protocol.back_channel import BackChannel
from interlock.protocol.decoding import decode, decode_call, decode_prompt
from interlock.protocol.envelope import encode, encode_large, split_trace
from interlock.protocol.headers import NAMES
from interlock.text.quoting import clip
from interlock.text.redaction import NO_VALUES, HiddenValues
from interlock.transports import MAX_FRAME_BYTES, Authorization, InProcessServer, Transport
from interlock.transports.stdio import StdioTransport
from interlock.transports.trace import Trace
from interlock.types import (
    WARNING_KEY,
    CallToolParams,
    CallToolResult,
    ClientCapabilities,
    CompleteParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    GetPromptParams,
    GetPromptResult,
    Implementation,
    LogLevel,
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    ServerCapabilities,
    SubscriptionFilter,
    Tool,
)

if TYPE_CHECKING:
    from interlock.client.http_target import HttpTarget
    from interlock.transports.http_pool import HttpPool

_IN_ALL_REVISIONS = frozenset({"tools/call", "resources/read", "prompts/get"})
_T = TypeVar("_T")
_E = TypeVar("_E", bound=InterlockError)
_log = logging.getLogger("interlock.client")


class Client:
    """A connection to one MCP server. Use it as an async context manager, or `open` and `close`.

    Any task may call any method at any time; cancelling a call cancels it at the server.

    Args:
        server: A server in this process, or the URL of a server. `Client.http` has more options for
            URLs, and `Client.stdio` starts a program. A function that returns a new transport is
            called again if a legacy server exits because of `server/discover`.
        http: The server's URL and the known facts about it; set by `Client.http`.
        options: See `ClientOptions`. Without a handler, sampling and elicitation are refused.

    Raises:
        ConfigError: The URL is not usable.
        LocalProtocolError: `server` is none of these, or an option is unknown.
    """

    def __init__(
        self,
        server: InProcessServer | str | Callable[[], Transport],
        *,
        http: HttpTarget | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_options(options)
        if isinstance(server, str) and "://" in server:
            http = _target(server, options.get("trace"))
            server = http.connect
        self._features = ClientFeatures(
            options.get("roots"),
            options.get("sampling"),
            options.get("elicitation"),
            options.get("extensions"),
        )
        self._cache = Cache()
        self._warned: dict[str, set[str]] = {}  # problems of each list that were logged
        self._messages = ServerMessages(self._features, self._cache, options)
        self._on_loss = options.get("on_loss")
        events = Events(
            self._messages.answer,
            self._messages.on_notification,
            self._lose,
            self._restore,
            self._relist,
            options.get("on_answer"),
        )
        self._channel = ReconnectingConnection(
            _connecting(server),
            options.get("revision", "auto"),
            self._features,
            options.get("connect_timeout", CONNECT_TIMEOUT),
            events,
            http,
            options.get("trace"),
        )
        timeout = options.get("timeout", CALL_TIMEOUT)
        hard_timeout = options.get("hard_timeout", max(HARD_TIMEOUT, timeout))
        self._interactive = InteractiveRequests(
            self._channel, self._features, timeout, hard_timeout
        )
        self._messages.channel = self._channel
        self._listening: asyncio.Task[None] | None = None
        self._outputs = OutputSchemas()
        self._strict_output = options.get("strict_output", False)
        self._legacy_subscriptions: set[str] = set()

    @classmethod
    def stdio(
        cls,
        command: str,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        **options: Unpack[ClientOptions],
    ) -> Client:
        """Return a client for a server program, which starts when the client is opened.

        Args:
            command: The program; a bare name is looked up in PATH.
            args: Arguments of the program, passed without a shell.
            env: Environment variables to set besides `stdio.INHERITED`, which are passed on from
                this process.
            cwd: The program's working folder; None for this process's working folder.
            max_frame_bytes: The size of the largest accepted message.
            options: See `ClientOptions`.
        """

        options.setdefault("connect_timeout", START_TIMEOUT)

        def connect() -> Transport:
            return StdioTransport(
                [command, *args],
                env=env,
                cwd=cwd,
                max_frame_bytes=max_frame_bytes,
                trace=options.get("trace"),
            )

        return cls(connect, **options)

    @classmethod
    def http(
        cls,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Authorization | None = None,
        transport: Literal["auto", "streamable", "sse"] = "auto",
        pool: HttpPool | None = None,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        **options: Unpack[ClientOptions],
    ) -> Client:
        """Return a client for a server at a URL.

        The environment configures proxies and certificates; see `HttpPool`.

        Args:
            url: The http or https URL.
            headers: Headers for every request, such as an API key; sent to this origin only.
            auth: The source of the bearer token, such as `interlock.oauth.OAuth`.
            transport: "sse" for HTTP+SSE of revision 2024-11-05; "auto" tries HTTP+SSE if the
                server refuses Streamable HTTP.
            pool: HTTP connections to share with other clients; the caller closes it.
            max_frame_bytes: The decompressed size of the largest accepted message.
            options: See `ClientOptions`.

        Raises:
            ConfigError: The URL or a header is not usable.
        """
        trace = options.get("trace")
        http = _target(url, trace, headers, auth, transport, pool, max_frame_bytes)
        return cls(http.connect, http=http, **options)

    @classmethod
    def memory(cls, server: InProcessServer, **options: Unpack[ClientOptions]) -> Client:
        """Return a client for a server in this process; see `ClientOptions` for the options."""
        return cls(server.connect, **options)

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect to the server and negotiate a revision.

        Raises:
            SpawnError: The program cannot be started.
            ServerExited: The program exited before it answered.
            Unreachable: The URL cannot be reached.
            AuthError: The credentials are rejected; `LoginRequired` if a login would help.
            HttpError: The URL is not that of an MCP server.
            RequestTimeout: No answer arrived within `connect_timeout`.
            RevisionError: The two sides have no revision in common.
        """
        self._cache.clear()
        self._legacy_subscriptions.clear()
        self._interactive.log_level = None
        await self._channel.open()
        messages = self._messages
        subscriptions = Subscriptions(lambda: self._channel.connection, messages.forget_lists)
        messages.subscriptions = subscriptions
        if messages.listens:
            self._listening = aio.start_detached(messages.listen_for_changes(subscriptions))

    async def close(self) -> None:
        """Close the connection; calls in progress fail with `ConnectionClosed`.

        Closing a closed client has no effect.
        """
        if self._listening is not None:
            self._listening.cancel()
        if self._messages.subscriptions is not None:
            self._messages.subscriptions.close_all()
        await self._channel.close()
        if self._listening is not None:
            await asyncio.wait({self._listening})
        if self._messages.subscriptions is not None:
            await self._messages.subscriptions.wait_closed()

    def check_open(self) -> None:
        """Raise the error that ended the connection, if it has ended.

        Raises:
            InterlockError: Why the connection ended, such as `ConnectionClosed`.
        """
        self._channel.check_open()

    def abort(self, reason: str) -> None:
        """End the connection: calls in progress fail, and `on_loss` is called.

        `abort` does not wait until the transport is closed; call `close` for this.
        """
        self._connection.abort(ConnectionClosed(reason))

    async def _restore(self) -> None:
        """Restore the log level and subscriptions at a server that has lost its session."""
        self._messages.forget_lists()
        if self._messages.subscriptions is not None:
            self._messages.subscriptions.move()
        if revisions.is_modern(self.revision):
            self._interactive.restate()
            return
        lost = [("resources/subscribe", {"uri": uri}) for uri in self._legacy_subscriptions]
        if self._interactive.log_level is not None:
            lost.insert(0, ("logging/setLevel", {"level": self._interactive.log_level}))
        for method, params in lost:
            try:
                # Send without retries: a retry would wait for the renewal, which waits for this.
                await self._connection.request(
                    method, encode(params), RequestOptions(hard_timeout=LIST_TIMEOUT)
                )
            except InterlockError as error:  # only logged, because other requests need the renewal
                name = self.server_info.name or "server"
                _log.warning("%s: %s could not be restored: %s", name, method, error)

    def _lose(self, error: InterlockError) -> None:
        if self._on_loss is not None:
            self._on_loss(error)

    async def _relist(self) -> None:
        self._cache.forget("tools/list")
        await self.list_tools()

    # The server

    @property
    def revision(self) -> str:
        """The negotiated protocol revision; "" before the client is open."""
        return self._channel.negotiated.revision

    @property
    def dropped(self) -> dict[str, int]:
        """The number of the server's messages that were dropped, by reason, such as "garbage"."""
        return dict(self._channel.dropped)

    @property
    def stderr(self) -> str:
        """The last stderr output of a server program, even after its exit; "" for other servers."""
        return self._channel.stderr

    @property
    def capabilities(self) -> ServerCapabilities:
        return self._channel.negotiated.capabilities

    @property
    def server_info(self) -> Implementation:
        """The server's name and version, for display only."""
        return self._channel.negotiated.server_info

    @property
    def instructions(self) -> str | None:
        return self._channel.negotiated.instructions

    # Tools

    async def list_tools(self, *, fresh: bool = False) -> Listing[Tool]:
        """Return all tools, from the cache while the server allows caching them.

        Args:
            fresh: Whether to send the request even if the list is cached.

        Returns:
            The tools in the server's order. Malformed and repeated tools are omitted and named
            in `Listing.skipped`.
        """
        if fresh:
            self._cache.forget("tools/list")
        http = self._channel.http
        check = http.check_tools if http and revisions.is_modern(self.revision) else None
        tools = await self._list(listing.TOOLS, check)
        self._use_tools(tools)
        return tools

    def adopt_tools(self, tools: Listing[Tool]) -> None:
        """Use the tools that another client has listed at the same server.

        Calls are then made and checked as if this client had listed the tools.
        """
        if self._channel.http and revisions.is_modern(self.revision):
            self._channel.http.check_tools(tools)
        self._use_tools(tools)

    def _use_tools(self, tools: Listing[Tool]) -> None:
        self._outputs.replace(tools)
        self._interactive.use_tools(tools)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
        idempotent: bool = False,
    ) -> CallToolResult:
        """Call a tool.

        Args:
            name: The name of the tool, as in `list_tools`.
            arguments: JSON values by parameter name, or an encoded object.
            timeout: Seconds without progress; None for the client's default.
            progress: Called with each `Progress` (`progress`, `total`, `message`).
            meta: Further members of `_meta`, such as `traceparent`.
            idempotent: Whether calling the tool twice has the same effect as calling it once, so
                that the call may be retried if its answer is lost. Only used over HTTP.

        Returns:
            The result, with `is_error` if the tool failed. It is validated against the tool's
            output schema if `list_tools` has returned one; if it breaks the schema, its `warning`
            says so.

        Raises:
            RemoteError: The server refused the call, for example for an unknown tool.
            RequestTimeout: No answer arrived in time.
            ConnectionClosed: The connection ended. The call may have had its effect.
            OutOfMemory: The answer does not fit into memory. The call has had its effect.
            RemoteProtocolError: The answer breaks the protocol; or the tool's output schema, with
                the option `strict_output`.
        """
        given: Any = UNSET if arguments is None else arguments
        members, trace = split_trace(meta or {})
        raw, _ = await self._interactive.send(
            "tools/call",
            encode_large(CallToolParams(name=name, arguments=given)),
            self._interactive.options(
                timeout,
                progress=progress,
                meta=members,
                name=name,
                idempotent=idempotent,
                trace=trace,
            ),
        )
        return self.check_result(name, raw)

    def has_output_schema(self, tool: str) -> bool:
        """Return whether a tool's results are checked against its listed output schema."""
        return tool in self._outputs.by_tool

    def check_result(self, tool: str, raw: Raw) -> CallToolResult:
        """Decode a tool call's result, and check it against the tool's output schema.

        Returns:
            The result; its `warning` states how it breaks the schema.

        Raises:
            RemoteProtocolError: The result is malformed; or it breaks the schema, with the option
                `strict_output`.
            OutOfMemory: The result does not fit into memory.
        """
        try:
            result = decode_call(raw)
        except RemoteProtocolError as error:
            raise self._channel.named(error) from None
        if result.result_type not in ("complete", "input_required"):
            raise self._channel.named(unknown_type("tools/call", result))
        is_final = result.result_type == "complete" and not result.is_error
        if not is_final or tool not in self._outputs.by_tool:
            return result
        problem = self._outputs.problem(tool, result)
        if problem and self._strict_output:
            raise RemoteProtocolError(f"the result of tool {tool!r} {problem}")
        if not problem:
            return result
        warning = f"the tool ran, but its result {problem}"
        return replace(result, meta={**(result.meta or {}), WARNING_KEY: warning})

    # Resources, prompts, completion

    async def list_resources(self) -> Listing[Resource]:
        """Return all resources, as `list_tools` does."""
        return await self._list(listing.RESOURCES)

    async def list_resource_templates(self) -> Listing[ResourceTemplate]:
        """Return all resource templates, as `list_tools` does."""
        return await self._list(listing.TEMPLATES)

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> ReadResourceResult:
        """Read a resource, from the cache while the server allows caching it.

        Raises:
            RemoteError: The resource is unknown: code -32602, or -32002 from legacy servers.
        """
        kept = self._cache.get("resources/read", uri)
        if isinstance(kept, ReadResourceResult):
            return kept
        asked = self._cache.changes
        options = self._interactive.options(timeout, name=uri)
        raw, rounds = await self._interactive.send("resources/read", encode({"uri": uri}), options)
        result = self._interactive.decode(ReadResourceResult, raw, "resources/read result")
        # Cache no result that depends on a user's answers: it is valid for this call only.
        if result.contents and not rounds and _size(result) <= MAX_RESOURCE:
            self._cache.keep(result, result.ttl_ms / 1000, "resources/read", uri, asked=asked)
        return result

    async def subscribe(self, uri: str) -> None:
        """Subscribe to a resource; `on_resource_updated` is called when it changes."""
        if self._messages.subscriptions is not None and revisions.is_modern(self.revision):
            wanted = SubscriptionFilter(resource_subscriptions=[uri])
            await self._messages.subscriptions.open(f"resource {uri}", wanted, timeout=LIST_TIMEOUT)
        else:
            if len(self._legacy_subscriptions | {uri}) > MAX_SUBSCRIPTIONS:
                raise LocalProtocolError(
                    f"too many subscriptions (limit {MAX_SUBSCRIPTIONS}); end some first"
                )
            await self._request("resources/subscribe", encode({"uri": uri}))
            self._legacy_subscriptions.add(uri)

    async def unsubscribe(self, uri: str) -> None:
        if self._messages.subscriptions is not None and revisions.is_modern(self.revision):
            self._messages.subscriptions.close(f"resource {uri}")
        else:
            self._legacy_subscriptions.discard(uri)
            await self._request("resources/unsubscribe", encode({"uri": uri}))

    async def list_prompts(self) -> Listing[Prompt]:
        """Return all prompts, as `list_tools` does."""
        return await self._list(listing.PROMPTS)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> GetPromptResult:
        """Return the messages of a prompt, whose arguments are strings.

        Raises:
            RemoteError: Code -32602 for an unknown prompt or a missing argument.
        """
        given = UNSET if arguments is None else dict(arguments)
        params = encode_large(GetPromptParams(name=name, arguments=given))
        raw, _ = await self._interactive.send(
            "prompts/get", params, self._interactive.options(timeout, name=name)
        )
        try:
            return decode_prompt(raw)
        except RemoteProtocolError as error:
            raise self._channel.named(error) from None

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
    ) -> Completion:
        """Return completions of an argument's value.

        Args:
            ref: The prompt or resource template that has the argument.
            argument: The name of the argument.
            value: The text typed so far.
            context: Values of other arguments; not sent before revision 2025-06-18.
        """
        has_context = revisions.at_least(self.revision, revisions.COMPLETION_CONTEXT)
        params = CompleteParams(
            ref=ref,
            argument=CompletionArgument(name=argument, value=value),
            context=CompletionContext(arguments=dict(context))
            if context and has_context
            else UNSET,
        )
        raw = await self._request("completion/complete", encode(params))
        return decode(CompleteResult, raw, "completion/complete result").completion

    # Small things

    async def ping(self, *, timeout: float | None = None) -> None:
        """Check that the server answers; a modern server is sent `server/discover`."""
        method = "server/discover" if revisions.is_modern(self.revision) else "ping"
        await self._request(method, b"{}", timeout=timeout)

    async def set_log_level(self, level: LogLevel) -> None:
        """Request log messages at this level and above, which are passed to `on_log`.

        A modern server receives the level in each request, a legacy server once.
        """
        self._interactive.log_level = level
        if revisions.is_modern(self.revision):
            self._interactive.restate()
        else:
            await self._request("logging/setLevel", encode({"level": level}))

    def set_roots(self, roots: Sequence[str]) -> None:
        """Replace the roots, and notify a legacy server."""
        self._features.set_roots(roots)
        if not revisions.is_modern(self.revision):
            self._connection.notify("notifications/roots/list_changed")

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Raw:
        """Send a request with any method, such as an extension's; return the encoded result."""
        others = dict(params or {})
        members, trace = split_trace(others.pop("_meta", {}))
        name = others.get(NAMES[method]) if method in NAMES else None
        options = self._interactive.options(
            timeout, meta=members, name=name if isinstance(name, str) else None, trace=trace
        )
        self._check_method(method)
        return await self._channel.request(method, encode_large(others), options)

    # Requests

    @property
    def _connection(self) -> Connection:
        return self._channel.connection

    async def _request(self, method: str, params: bytes, *, timeout: float | None = None) -> Raw:
        self._check_method(method)
        # Servers ask no questions during such a request, so every question that arrives belongs
        # to another request.
        options = replace(self._interactive.options(timeout), answers=None)
        return await self._channel.request(method, params, options)

    def _check_method(self, method: str) -> None:
        known = method in revisions.CLIENT_METHODS
        if known and not revisions.has_method(revisions.CLIENT_METHODS, method, self.revision):
            raise LocalProtocolError(f"revision {self.revision} has no {method!r}")

    async def forward(
        self,
        method: str,
        params: bytes,
        *,
        name: str | None = None,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        meta: bytes = b"",
        idempotent: bool = False,
        back: BackChannel | None = None,
        capabilities: ClientCapabilities | None = None,
        log_level: LogLevel | None = None,
        returns_questions: bool = False,
        counted: Counted | None = None,
        headers: HiddenValues = NO_VALUES,
        trace: TraceContext | None = None,
    ) -> Raw:
        """Send another client's request; return the encoded result, or raise as `call_tool` does.

        Args:
            method, params: The request; the params are an encoded object without `_meta`.
            name: The tool's or prompt's name, or the URI, in the params.
            timeout, progress, idempotent, counted, headers, trace: See `RequestOptions`.
            meta: Further members of `_meta`, encoded without braces.
            back: The channel for the server's questions and logs; None for this client's handlers.
            capabilities: The other client's capabilities, which are sent to a modern server.
            log_level: The other client's lowest log level, which is sent to a modern server.
            returns_questions: Whether to return an "input_required" result without answering it.
        """
        if method not in _IN_ALL_REVISIONS:
            self._check_method(method)
        options = self._interactive.options(
            timeout,
            progress=progress,
            meta=meta,
            name=name,
            idempotent=idempotent,
            back=back,
            capabilities=capabilities,
            log_level=log_level,
            counted=counted,
            headers=headers,
            trace=trace,
        )
        modern = self._channel.negotiated.revision in revisions.MODERN
        if returns_questions if modern else name not in self._interactive.task_tools:
            return await self._channel.request(method, params, options)  # answers no questions
        raw, _ = await self._interactive.send(method, params, options)
        return raw

    async def _list(
        self, kind: Kind[_T], check: Callable[[Listing[_T]], None] | None = None
    ) -> Listing[_T]:
        kept = self._cache.get(kind.method)
        if isinstance(kept, Listing):
            return kept

        async def ask(params: bytes) -> Raw:
            return await self._request(kind.method, params, timeout=LIST_TIMEOUT)

        asked = self._cache.changes
        try:
            async with asyncio.timeout(LIST_TIMEOUT):  # the limit for all pages together
                items = await listing.collect(kind, ask)
        except RemoteProtocolError as error:
            raise self._channel.named(error) from None
        except TimeoutError as error:
            if isinstance(error, InterlockError):
                raise
            late = RequestTimeout(f"no end of {kind.method} within {LIST_TIMEOUT:g} s")
            raise self._channel.named(late) from None
        if check is not None:
            check(items)
        problems = {*filter(None, (*items.skipped, items.truncated))}
        for reason in sorted(problems - self._warned.get(kind.method, set())):
            _log.warning("%s: %s", self.server_info.name or "server", reason)
        self._warned[kind.method] = problems
        self._cache.keep(items, items.ttl, kind.method, asked=asked)
        return items


def _connecting(server: object) -> Callable[[], Transport]:
    """Return the function that connects to a server in this process, or `server` if it is one."""
    connect = getattr(server, "connect", None)
    if connect is not None and not isinstance(server, type):
        return cast("Callable[[], Transport]", connect)
    if callable(server) and connect is None:
        return cast("Callable[[], Transport]", server)
    raise LocalProtocolError(
        f"Client cannot connect to {clip(repr(server))}; pass a Server object or an http URL, or "
        "use Client.stdio(command, ...) for a program, and Toolbox(...) for configured servers"
    )


def _target(
    url: str,
    trace: Trace | None,
    headers: Mapping[str, str] | None = None,
    auth: Authorization | None = None,
    transport: Literal["auto", "streamable", "sse"] = "auto",
    pool: HttpPool | None = None,
    max_frame_bytes: int = MAX_FRAME_BYTES,
) -> HttpTarget:
    from interlock.client.http_target import HttpTarget  # loads aiohttp

    return HttpTarget(url, headers, auth, transport, pool, max_frame_bytes, trace)


def _size(result: ReadResourceResult) -> int:
    return sum(len(each.text or each.blob or "") for each in result.contents)
