"""One server: calls in, answers out, whatever revision it speaks.

The path of a call::

    call_tool -> Connection.start -> Protocol.request -> Transport.send
    frames_received -> Protocol.receive -> future -> call_tool -> CallToolResult
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Self, TypedDict, TypeVar, Unpack

import msgspec
from msgspec import UNSET, Raw

from interlock import revisions, schema
from interlock.asks import Asks, Elicit, Sample
from interlock.connection import Connection, ProgressHandler
from interlock.envelope import encode
from interlock.errors import (
    ConnectionClosed,
    InterlockError,
    LocalProtocolError,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    RevisionError,
    SchemaError,
    to_wire,
)
from interlock.protocol import Notification, Protocol, Request
from interlock.transports import MAX_FRAME_BYTES, Transport
from interlock.transports.stdio import StdioTransport
from interlock.types import (
    CallToolParams,
    CallToolResult,
    CompleteParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    Content,
    DiscoverResult,
    GetPromptParams,
    GetPromptResult,
    Implementation,
    InitializeParams,
    InitializeResult,
    ListenParams,
    ListPage,
    ListParams,
    LogLevel,
    LogMessage,
    Prompt,
    PromptMessage,
    PromptReference,
    ReadResourceParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    ResourceUpdatedParams,
    Result,
    ServerCapabilities,
    SubscriptionFilter,
    Tool,
    decode_content,
)

# Defaults, in seconds.
CALL_TIMEOUT = 120.0  # without progress
HARD_TIMEOUT = 600.0  # in all
LIST_TIMEOUT = 30.0
CONNECT_TIMEOUT = 10.0

MAX_PAGES = 100
MAX_ITEMS = 10_000
MAX_ROUNDS = 10  # of "input_required"
MAX_CACHED = 256
MAX_TTL = 24 * 3600.0

_T = TypeVar("_T")
_R = TypeVar("_R", bound=Result)
_log = logging.getLogger("interlock.client")

LIST_METHODS = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resource_templates": "resources/templates/list",
    "prompts": "prompts/list",
}
_CHANGES = {
    "notifications/tools/list_changed": "tools",
    "notifications/resources/list_changed": "resources",
    "notifications/prompts/list_changed": "prompts",
}


class Listing(list[_T]):
    """A list of items, and what is missing in it.

    Attributes:
        ttl: Seconds for which the server calls the list fresh; 0 when it does not say.
        skipped: One line for each item that was left out, with the reason.
        truncated: Why the list ends early, or "".
    """

    def __init__(self) -> None:
        super().__init__()
        self.ttl = 0.0
        self.skipped: list[str] = []
        self.truncated = ""


class ClientOptions(TypedDict, total=False):
    """What every way of making a `Client` accepts. Times are in seconds."""

    revision: str  # "auto", "legacy", or one of `revisions.ALL`
    timeout: float  # a request without progress
    hard_timeout: float  # a request in all
    connect_timeout: float
    roots: Sequence[str]  # file:// URIs or paths that the server may know of
    sampling: Sample | None
    elicitation: Elicit | None
    on_log: Callable[[LogMessage], None] | None
    on_list_changed: Callable[[str], None] | None  # "tools", "resources" or "prompts"
    on_resource_updated: Callable[[str], None] | None  # the URI
    on_loss: Callable[[InterlockError], None] | None  # the connection ended by itself


class Client:
    """A connection to one MCP server. Use it as an async context manager, or `open` and `close`.

    Any task may call any method at any time; cancelling a call tells the server to stop.

    Args:
        connect: Makes a fresh transport. Called again when an old server ends itself over
            the question for its era.
        options: See `ClientOptions`. Sampling and elicitation are refused without a handler.
    """

    def __init__(self, connect: Callable[[], Transport], **options: Unpack[ClientOptions]) -> None:
        self._connect = connect
        self._wanted = options.get("revision", "auto")
        if self._wanted not in ("auto", "legacy", *revisions.ALL):
            known = ", ".join(revisions.ALL)
            raise LocalProtocolError(f"revision {self._wanted!r} is not auto, legacy or of {known}")
        self._timeout = options.get("timeout", CALL_TIMEOUT)
        self._hard_timeout = options.get("hard_timeout", HARD_TIMEOUT)
        self._connect_timeout = options.get("connect_timeout", CONNECT_TIMEOUT)
        self._asks = Asks(options.get("roots"), options.get("sampling"), options.get("elicitation"))
        self._on_log = options.get("on_log")
        self._on_list_changed = options.get("on_list_changed")
        self._on_resource_updated = options.get("on_resource_updated")
        self._on_loss = options.get("on_loss")
        self._open_connection: Connection | None = None
        self._listeners: dict[str, asyncio.Task[None]] = {}
        self._acknowledged: dict[int | str, asyncio.Event] = {}
        self._cache: dict[tuple[str, str], tuple[float, Any]] = {}
        self._output: dict[str, schema.Validator | bytes] = {}
        self.revision = ""
        self.capabilities = ServerCapabilities()
        self.server_info = Implementation(name="")
        self.instructions: str | None = None

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
        """A server program, started when the client is opened.

        Args:
            command: Program; a bare name is looked up in PATH.
            args: Its arguments. There is no shell.
            env: Variables for it. Of ours it gets only `stdio.INHERITED`.
            cwd: Its working folder.
            max_frame_bytes: Longest message accepted from it.
            options: See `ClientOptions`.
        """

        def connect() -> Transport:
            return StdioTransport(
                [command, *args], env=env, cwd=cwd, max_frame_bytes=max_frame_bytes
            )

        return cls(connect, **options)

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Reach the server and find out what it speaks.

        Raises:
            SpawnError: Its program cannot be started.
            ServerExited: It ended before it answered.
            RequestTimeout: No answer within `connect_timeout`.
            RevisionError: It speaks no revision that we speak.
        """
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._handshake()
        except TimeoutError as error:
            await self.close()
            if isinstance(error, InterlockError):
                raise
            raise RequestTimeout(f"no connection within {self._connect_timeout:g} s") from None
        except BaseException:
            await self.close()
            raise
        self._listen_for_changes()

    async def close(self) -> None:
        """Let the server go. Open calls fail with `ConnectionClosed`. Closing twice is fine."""
        for task in self._listeners.values():
            task.cancel()
        self._listeners.clear()
        connection = self._open_connection
        if connection is not None:
            await connection.close()

    async def _reconnect(self) -> Connection:
        if self._open_connection is not None:
            await self._open_connection.close()
        self._open_connection = connection = Connection(
            Protocol(),
            self._connect(),
            on_request=self._answer,
            on_notification=self._notice,
            on_loss=self._lose,
        )
        await connection.open()
        return connection

    # Handshake

    async def _handshake(self) -> None:
        await self._reconnect()
        if self._wanted == "legacy" or self._wanted in revisions.LEGACY:
            await self._initialize()
        elif self._wanted in revisions.MODERN:
            self._become_modern(await self._discover(self._wanted))
        else:
            await self._find_era()

    async def _find_era(self) -> None:
        """Ask in the modern way first. Any other sign of life than a modern one means legacy."""
        try:
            self._become_modern(await self._discover(revisions.NEWEST))
        except ConnectionClosed:
            # Some old servers end themselves over a message that comes before `initialize`.
            await self._reconnect()
            await self._initialize()
        except (RemoteError, RequestTimeout, RemoteProtocolError) as error:
            if isinstance(error, RemoteError) and await self._is_modern(error):
                return
            await self._initialize_or_discover()

    async def _initialize_or_discover(self) -> None:
        try:
            await self._initialize()
        except RemoteError as error:
            # A modern server that started too slowly for the first question.
            if error.code != revisions.UNSUPPORTED_VERSION:
                raise
            self._become_modern(await self._discover(revisions.NEWEST))

    async def _is_modern(self, error: RemoteError) -> bool:
        """Follow a modern server's refusal: ask again, or give up. False for a legacy one."""
        if error.code in (revisions.HEADER_MISMATCH, revisions.MISSING_CAPABILITY):
            raise error
        if error.code != revisions.UNSUPPORTED_VERSION or not isinstance(error.data, dict):
            return False
        supported = error.data.get("supported") or []
        mutual = [each for each in reversed(revisions.MODERN) if each in supported]
        if mutual:
            self._become_modern(await self._discover(mutual[0]))
            return True
        if any(each in supported for each in revisions.LEGACY):
            return False
        raise RevisionError(f"the server speaks {supported}; we speak {', '.join(revisions.ALL)}")

    async def _discover(self, revision: str) -> DiscoverResult:
        self.revision = revision
        connection = self._connection
        connection.protocol.meta = self._meta(revision)
        # Half of the time, so that the other half is left for an old server that is silent.
        raw = await connection.request(
            "server/discover", b"{}", timeout=self._connect_timeout / 2, hard_timeout=None
        )
        return _decode(DiscoverResult, raw, "server/discover")

    def _become_modern(self, told: DiscoverResult) -> None:
        mutual = [each for each in reversed(revisions.MODERN) if each in told.supported_versions]
        if not mutual:
            raise RemoteError(
                revisions.UNSUPPORTED_VERSION,
                "the server offers no modern revision",
                {"supported": told.supported_versions},
            )
        self.revision = mutual[0]
        self._connection.protocol.meta = self._meta(self.revision)
        self.capabilities = told.capabilities
        self.instructions = told.instructions
        info = (told.meta or {}).get(revisions.SERVER_INFO_KEY)
        with contextlib.suppress(msgspec.ValidationError):
            self.server_info = msgspec.convert(info, Implementation)

    def _meta(self, revision: str) -> bytes:
        members = {
            revisions.VERSION_KEY: revision,
            revisions.CLIENT_INFO_KEY: _own_info(),
            revisions.CLIENT_CAPABILITIES_KEY: self._asks.capabilities(revision),
        }
        return encode(members)[1:-1]

    async def _initialize(self) -> None:
        wanted = self._wanted if self._wanted in revisions.LEGACY else revisions.NEWEST_LEGACY
        connection = self._connection
        connection.protocol.meta = b""
        params = InitializeParams(
            protocol_version=wanted,
            capabilities=self._asks.capabilities(wanted),
            client_info=_own_info(),
        )
        raw = await connection.request(
            "initialize", encode(params), timeout=self._connect_timeout, hard_timeout=None
        )
        told = _decode(InitializeResult, raw, "initialize")
        if told.protocol_version not in revisions.LEGACY:
            known = ", ".join(revisions.LEGACY)
            raise RevisionError(
                f"the server answered initialize with {told.protocol_version!r}; we speak {known}"
            )
        self.revision = told.protocol_version
        self.capabilities = told.capabilities
        self.server_info = told.server_info
        self.instructions = told.instructions
        connection.protocol.batches = self.revision in revisions.BATCHES
        connection.notify("notifications/initialized")

    # Tools

    async def list_tools(self) -> Listing[Tool]:
        """Ask for all tools, or take them from the cache for as long as the server allows.

        Returns:
            The tools in the server's order. Malformed and duplicate ones are left out, one
            by one, and named in `Listing.skipped`.
        """
        tools = await self._list("tools", Tool, lambda tool: tool.name)
        self._output = {
            tool.name: encode(tool.output_schema)
            for tool in tools
            if tool.output_schema is not None
        }
        return tools

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | Raw | None = None,
        *,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> CallToolResult:
        """Call a tool.

        Args:
            name: As in `list_tools`.
            arguments: JSON values by parameter name, or an encoded object.
            timeout: Seconds without progress; the client's default when None.
            progress: Called with each `Progress` (`progress`, `total`, `message`).
            meta: Further members of `_meta`, such as `traceparent`.

        Returns:
            What the tool said; `is_error` when it failed.

        Raises:
            RemoteError: The server refused the call, such as for an unknown tool.
            RequestTimeout: No answer in time.
            ConnectionClosed: The server went away. The call may have had its effect.
            RemoteProtocolError: The answer breaks the protocol or the tool's output schema.
        """
        given: Any = UNSET if arguments is None else arguments
        params = CallToolParams(name=name, arguments=given)
        result = await self._ask(
            "tools/call", params, _decode_call, timeout=timeout, progress=progress, meta=meta
        )
        if name in self._output and not result.is_error:
            self._check_output(name, result)
        return result

    def _check_output(self, name: str, result: CallToolResult) -> None:
        validator = self._output[name]
        if isinstance(validator, bytes):
            try:
                validator = self._output[name] = schema.compile(validator)
            except SchemaError as error:
                _log.warning("outputSchema of tool %r is not usable: %s", name, error)
                del self._output[name]
                return
        if result.structured_content is UNSET:
            raise RemoteProtocolError(f"tool {name!r} has an outputSchema but gave no structure")
        errors = validator.errors(result.structured_content)
        if errors:
            raise RemoteProtocolError(
                f"result of tool {name!r} does not fit its outputSchema: {'; '.join(errors)}"
            )

    # Resources, prompts, completion

    async def list_resources(self) -> Listing[Resource]:
        """Ask for all resources; as `list_tools`."""
        return await self._list("resources", Resource, lambda each: each.uri)

    async def list_resource_templates(self) -> Listing[ResourceTemplate]:
        """Ask for all resource templates; as `list_tools`."""
        return await self._list(
            "resource_templates", ResourceTemplate, lambda each: each.uri_template
        )

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> ReadResourceResult:
        """Read a resource, from the cache if the server allowed that.

        Raises:
            RemoteError: Code -32602 (or -32002 from older servers) when there is none.
        """
        key = ("resources/read", uri)
        if (kept := self._cached(key)) is not None:
            assert isinstance(kept, ReadResourceResult)  # noqa: S101 - by its key
            return kept
        params = ReadResourceParams(uri=uri)
        decode = _decoder(ReadResourceResult, "resources/read")
        result = await self._ask("resources/read", params, decode, timeout=timeout)
        self._keep(key, result.ttl_ms, result)
        return result

    async def subscribe(self, uri: str) -> None:
        """Be told by `on_resource_updated` when the resource changes; returns when it holds."""
        if revisions.is_modern(self.revision):
            await self._listen(f"resource {uri}", SubscriptionFilter(resource_subscriptions=[uri]))
        else:
            await self._request("resources/subscribe", encode({"uri": uri}))

    async def unsubscribe(self, uri: str) -> None:
        """Undo `subscribe`."""
        if revisions.is_modern(self.revision):
            task = self._listeners.pop(f"resource {uri}", None)
            if task is not None:
                task.cancel()
        else:
            await self._request("resources/unsubscribe", encode({"uri": uri}))

    async def list_prompts(self) -> Listing[Prompt]:
        """Ask for all prompts; as `list_tools`."""
        return await self._list("prompts", Prompt, lambda each: each.name)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
    ) -> GetPromptResult:
        """Get the messages of a prompt. Its arguments are strings.

        Raises:
            RemoteError: Code -32602 for an unknown prompt or a missing argument.
        """
        given = UNSET if arguments is None else dict(arguments)
        params = GetPromptParams(name=name, arguments=given)
        return await self._ask("prompts/get", params, _decode_prompt, timeout=timeout)

    async def complete(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
    ) -> Completion:
        """Ask how the value of an argument may go on.

        Args:
            ref: Whose argument it is.
            argument: Its name.
            value: What has been typed.
            context: Values of the arguments before it; revisions before 2025-06-18 do not
                have this, so it is left out there.
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
        return _decode(CompleteResult, raw, "completion/complete").completion

    # Small things

    async def ping(self, *, timeout: float | None = None) -> None:
        """See whether the server answers. Modern servers are asked `server/discover`."""
        method = "server/discover" if revisions.is_modern(self.revision) else "ping"
        await self._request(method, b"{}", timeout=timeout)

    async def set_log_level(self, level: LogLevel) -> None:
        """Ask for log messages of this level and above; they come to `on_log`.

        A modern server is told with each request, an older one once.
        """
        if revisions.is_modern(self.revision):
            meta = self._meta(self.revision) + b","
            self._connection.protocol.meta = meta + encode({revisions.LOG_LEVEL_KEY: level})[1:-1]
        else:
            await self._request("logging/setLevel", encode({"level": level}))

    def set_roots(self, roots: Sequence[str]) -> None:
        """Replace the roots; an older server that has asked for them is told to ask again."""
        self._asks.set_roots(roots)
        if not revisions.is_modern(self.revision):
            self._connection.notify("notifications/roots/list_changed")

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Raw:
        """Send any request, such as one of an extension, and return its result encoded."""
        return await self._request(method, encode(params or {}), timeout=timeout)

    # Requests

    @property
    def _connection(self) -> Connection:
        if self._open_connection is None:
            raise ConnectionClosed("the client is not open: use it in 'async with'")
        return self._open_connection

    async def _request(self, method: str, params: bytes, *, timeout: float | None = None) -> Raw:
        self._check_method(method)
        return await self._connection.request(
            method,
            params,
            timeout=self._timeout if timeout is None else timeout,
            hard_timeout=self._hard_timeout,
        )

    def _check_method(self, method: str) -> None:
        known = method in revisions.CLIENT_METHODS
        if known and not revisions.has_method(revisions.CLIENT_METHODS, method, self.revision):
            raise LocalProtocolError(f"revision {self.revision} has no {method!r}")

    async def _ask(
        self,
        method: str,
        params: CallToolParams | ReadResourceParams | GetPromptParams,
        decode: Callable[[Raw], _R],
        *,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> _R:
        """Send a request that may come back with questions; answer them and send it again."""
        connection = self._connection
        timeout = self._timeout if timeout is None else timeout
        members = encode(meta)[1:-1] if meta else b""
        for _ in range(MAX_ROUNDS + 1):
            raw = await connection.request(
                method,
                encode(params),
                timeout=timeout,
                hard_timeout=max(timeout, self._hard_timeout),
                progress=progress,
                meta=members,
            )
            result = decode(raw)
            if result.result_type == "complete":
                return result
            if result.result_type != "input_required":
                raise RemoteProtocolError(
                    f"{method} was answered with unknown resultType {result.result_type!r}"
                )
            responses = await self._asks.answer_all(result, self.revision)
            params = msgspec.structs.replace(
                params,
                input_responses=responses or UNSET,
                request_state=UNSET if result.request_state is None else result.request_state,
            )
        raise RemoteProtocolError(f"{method} still asks for input after {MAX_ROUNDS} rounds")

    # Lists and their cache

    async def _list(self, kind: str, type: type[_T], key: Callable[[_T], str]) -> Listing[_T]:
        method = LIST_METHODS[kind]
        if (kept := self._cached((method, ""))) is not None:
            assert isinstance(kept, Listing)  # noqa: S101 - by its key
            return kept
        listing: Listing[_T] = Listing()
        seen: set[str] = set()
        cursors: set[str] = set()
        ttl = float("inf")
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = ListParams() if cursor is None else ListParams(cursor=cursor)
            raw = await self._request(method, encode(params), timeout=LIST_TIMEOUT)
            page = _decode(ListPage, raw, method)
            _check_complete(page.result_type, method)
            _add_items(listing, seen, getattr(page, kind), type, key)
            ttl = min(ttl, page.ttl_ms)
            cursor = page.next_cursor
            if cursor is None or len(listing) >= MAX_ITEMS:
                break
            if cursor in cursors:
                listing.truncated = f"{method} gave cursor {cursor[:40]!r} twice"
                break
            cursors.add(cursor)
        else:
            listing.truncated = f"{method} has over {MAX_PAGES} pages"
        if len(listing) > MAX_ITEMS or (cursor is not None and len(listing) == MAX_ITEMS):
            del listing[MAX_ITEMS:]
            listing.truncated = f"{method} has over {MAX_ITEMS} items"
        for reason in (*listing.skipped, listing.truncated):
            if reason:
                _log.warning("%s: %s", self.server_info.name or "server", reason)
        listing.ttl = ttl / 1000
        self._keep((method, ""), ttl, listing)
        return listing

    def _cached(self, key: tuple[str, str]) -> Any:
        until, kept = self._cache.get(key, (0.0, None))
        return kept if monotonic() < until else None

    def _keep(self, key: tuple[str, str], ttl_ms: float, value: object) -> None:
        if ttl_ms <= 0:
            return
        if len(self._cache) >= MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        self._cache[key] = (monotonic() + min(ttl_ms / 1000, MAX_TTL), value)

    # What the server says by itself

    def _notice(self, notification: Notification) -> None:
        method = notification.method
        if method in _CHANGES:
            self._forget(_CHANGES[method])
            if self._on_list_changed is not None:
                self._on_list_changed(_CHANGES[method])
        elif method == "notifications/resources/updated":
            uri = _decode(ResourceUpdatedParams, notification.params, method).uri
            self._cache.pop(("resources/read", uri), None)
            if self._on_resource_updated is not None:
                self._on_resource_updated(uri)
        elif method == "notifications/message" and self._on_log is not None:
            self._on_log(_decode(LogMessage, notification.params, method))
        elif method == "notifications/subscriptions/acknowledged":
            meta = _decode(Result, notification.params, method).meta or {}
            event = self._acknowledged.get(meta.get(revisions.SUBSCRIPTION_KEY, ""))
            if event is not None:
                event.set()

    def _forget(self, kind: str) -> None:
        prefix = {"tools": "tools/", "resources": "resources/", "prompts": "prompts/"}[kind]
        for key in [key for key in self._cache if key[0].startswith(prefix)]:
            del self._cache[key]

    async def _answer(self, request: Request) -> None:
        """Answer a request of an older server: ping, roots, sampling, elicitation."""
        connection = self._connection
        try:
            if request.method == "ping":
                answer = b"{}"
            else:
                answer = await self._asks.answer(request.method, request.params, self.revision)
        except Exception as error:
            connection.protocol.reply_error(request.id, *to_wire(error))
        else:
            connection.protocol.reply(request.id, answer)
        connection.flush()

    def _lose(self, error: InterlockError) -> None:
        if self._on_loss is not None:
            self._on_loss(error)

    # Listening, for modern servers

    def _listen_for_changes(self) -> None:
        """Ask to be told of changed lists, in the background: nothing depends on it."""
        if self._on_list_changed is None or not revisions.is_modern(self.revision):
            return
        wanted = SubscriptionFilter(
            tools_list_changed=_tells_changes(self.capabilities.tools),
            prompts_list_changed=_tells_changes(self.capabilities.prompts),
            resources_list_changed=_tells_changes(self.capabilities.resources),
        )
        if wanted != SubscriptionFilter():
            self._listeners["lists"] = asyncio.create_task(self._hold("lists", wanted, None))

    async def _listen(self, key: str, wanted: SubscriptionFilter) -> None:
        if key in self._listeners:
            return
        holds = asyncio.Event()
        task = asyncio.create_task(self._hold(key, wanted, holds))
        self._listeners[key] = task
        waiting = asyncio.create_task(holds.wait())
        try:
            await asyncio.wait(
                {task, waiting}, timeout=LIST_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            waiting.cancel()
        if holds.is_set():
            return
        self._listeners.pop(key, None)
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error
        task.cancel()
        raise RequestTimeout(f"subscription not acknowledged within {LIST_TIMEOUT:g} s")

    async def _hold(
        self, key: str, wanted: SubscriptionFilter, holds: asyncio.Event | None
    ) -> None:
        """Keep one `subscriptions/listen` open until it is cancelled or the server ends it."""
        connection = self._connection
        params = encode(ListenParams(notifications=wanted))
        id, future = connection.start(
            "subscriptions/listen", params, timeout=None, hard_timeout=None
        )
        if holds is not None:
            self._acknowledged[id] = holds
        try:
            await future
        except InterlockError as error:
            if holds is not None and not holds.is_set():
                raise
            _log.info("%s: subscription ended: %s", self.server_info.name or "server", error)
        finally:
            connection.forget(id)
            self._acknowledged.pop(id, None)
            if self._listeners.get(key) is asyncio.current_task():
                del self._listeners[key]


# Decoding


def _decode(type: type[_T], raw: Raw, method: str) -> _T:
    try:
        return msgspec.json.decode(raw, type=type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed {method}: {error}") from None


def _decoder(type: type[_T], method: str) -> Callable[[Raw], _T]:
    return lambda raw: _decode(type, raw, method)


_decode_call_fast = msgspec.json.Decoder(CallToolResult).decode
_decode_prompt_fast = msgspec.json.Decoder(GetPromptResult).decode


def _decode_call(raw: Raw) -> CallToolResult:
    try:
        return _decode_call_fast(raw)
    except (msgspec.DecodeError, RecursionError):
        return _decode_call_slowly(raw)


def _decode_call_slowly(raw: Raw) -> CallToolResult:
    """Decode a result that has content of types that we do not know, or is malformed."""
    what = "tools/call result"
    members = _decode(dict[str, Raw], raw, what)
    blocks = _decode(list[Raw], members.pop("content", Raw(b"[]")), what)
    result = _decode(CallToolResult, Raw(encode(members)), what)
    return msgspec.structs.replace(result, content=[_decode_block(each, what) for each in blocks])


def _decode_prompt(raw: Raw) -> GetPromptResult:
    try:
        return _decode_prompt_fast(raw)
    except (msgspec.DecodeError, RecursionError):
        return _decode_prompt_slowly(raw)


def _decode_prompt_slowly(raw: Raw) -> GetPromptResult:
    what = "prompts/get result"
    members = _decode(dict[str, Raw], raw, what)
    messages = []
    for message in _decode(list[dict[str, Raw]], members.pop("messages", Raw(b"[]")), what):
        content = _decode_block(message.pop("content", Raw(b"{}")), what)
        message["content"] = Raw(b'{"type":"text","text":""}')
        rest = _decode(PromptMessage, Raw(encode(message)), what)
        messages.append(msgspec.structs.replace(rest, content=content))
    result = _decode(GetPromptResult, Raw(encode(members)), what)
    return msgspec.structs.replace(result, messages=messages)


def _decode_block(raw: Raw, what: str) -> Content:
    try:
        return decode_content(raw)
    except msgspec.DecodeError as error:
        raise RemoteProtocolError(f"malformed {what}: {error}") from None


def _check_complete(result_type: str, method: str) -> None:
    if result_type != "complete":
        raise RemoteProtocolError(f"{method} was answered with resultType {result_type!r}")


def _add_items(
    listing: Listing[_T], seen: set[str], raws: object, type: type[_T], key: Callable[[_T], str]
) -> None:
    """Decode items one by one; what is malformed or there already is named and left out."""
    if not isinstance(raws, list):
        raise RemoteProtocolError(f"list without its {type.__name__.lower()}s")
    for place, raw in enumerate(raws):
        try:
            item = msgspec.json.decode(raw, type=type)
        except (msgspec.DecodeError, RecursionError) as error:
            name = _name_of(raw) or f"number {place + 1}"
            listing.skipped.append(f"{type.__name__.lower()} {name} is malformed: {error}")
            continue
        if key(item) in seen:
            listing.skipped.append(f"{type.__name__.lower()} {key(item)} is there twice")
            continue
        seen.add(key(item))
        listing.append(item)


def _name_of(raw: Raw) -> str:
    with contextlib.suppress(msgspec.DecodeError, RecursionError):
        fields = msgspec.json.decode(raw)
        if isinstance(fields, dict) and isinstance(fields.get("name"), str):
            return repr(fields["name"][:128])
    return ""


def _tells_changes(capability: Mapping[str, Any] | None) -> bool:
    return bool(capability and capability.get("listChanged"))


def _own_info() -> Implementation:
    from interlock import __version__  # the package imports this module

    return Implementation(name="interlock", version=__version__)
