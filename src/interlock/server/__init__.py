"""Tools, resources and prompts -> answers, in every revision.

The path of a call::

    Request -> Server.answer -> middleware -> tools/call -> ServedTool.call -> your function
    bytes   <- Encoder.call  <- CallToolResult <-----------------------------+
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from interlock import revisions
from interlock.context import LEVELS, Context
from interlock.envelope import encode
from interlock.errors import (
    InputRequired,
    InvalidArguments,
    LocalProtocolError,
    RemoteError,
    UnknownTool,
)
from interlock.protocol import Request
from interlock.server import listeners
from interlock.server.encoders import Encoder
from interlock.server.listeners import Listeners
from interlock.server.options import ItemKeywords, ToolKeywords
from interlock.server.resources import (
    ItemOptions,
    ServedCompletion,
    ServedPrompt,
    ServedResource,
)
from interlock.server.rounds import AskingParams, Round, canonical
from interlock.server.sealing import Seal
from interlock.server.tools import ServedTool, ToolOptions, Workers
from interlock.transports import Transport
from interlock.types import (
    CompleteParams,
    CompleteResult,
    Completion,
    Icon,
    Implementation,
    InitializeParams,
    JsonObject,
    ListenParams,
    PromptReference,
    SubscriptionFilter,
    Wire,
)

PAGE_SIZE = 1_000
MAX_VALUES = 100  # of a completion

Handler = Callable[[Request, Context], Awaitable[bytes]]
Middleware = Callable[[Handler], Handler]
_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")


class _CallParams(AskingParams, frozen=True, kw_only=True):
    name: str
    arguments: Raw | UnsetType = UNSET


class _ReadParams(AskingParams, frozen=True, kw_only=True):
    uri: str


class _GetParams(AskingParams, frozen=True, kw_only=True):
    name: str
    arguments: dict[str, str] | UnsetType | None = UNSET


class Server:
    """A named, versioned set of tools, resources and prompts.

    Args:
        name: For display.
        version: For display.
        instructions: What a model should know before it uses the tools.
        title, description, website_url, icons: For display, too.
        lifespan: Entered before the first request and left after the last one, once for a
            run of the server; for what is opened once, such as a pool of connections.
        middleware: Functions from handler to handler; the first one is outermost.
        sealing_key: Signs what modern clients hand back between rounds of questions. Needed
            when several processes serve the same clients: at least 32 bytes.
        list_ttl_ms: How long clients may keep lists.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0",
        instructions: str | None = None,
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
        lifespan: Callable[[Server], AbstractAsyncContextManager[Any]] | None = None,
        middleware: Sequence[Middleware] = (),
        sealing_key: bytes | None = None,
        list_ttl_ms: int = 0,
    ) -> None:
        self.info = Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=icons,
        )
        self.instructions = instructions
        self.listeners = Listeners()
        self._lifespan = lifespan
        self._running = 0
        self._workers = Workers()
        self._peers: set[asyncio.Task[None]] = set()
        self._encoder = Encoder(self.info)
        self._seal = Seal(sealing_key)
        self._list_ttl_ms = list_ttl_ms
        self._tools: dict[str, ServedTool] = {}
        self._resources: dict[str, ServedResource] = {}
        self._templates: dict[str, ServedResource] = {}
        self._prompts: dict[str, ServedPrompt] = {}
        self._completions: dict[tuple[str, str], ServedCompletion] = {}
        self._encoded: dict[tuple[str, str, str], bytes] = {}
        self._methods: dict[str, Handler] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "server/discover": self._discover,
            "logging/setLevel": self._set_level,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "subscriptions/listen": self._listen,
        }
        handler: Handler = self._dispatch
        for wrap in reversed(middleware):
            handler = wrap(handler)
        self._handler = handler

    # Defining

    @overload
    def tool(self, function: _F, /) -> _F: ...
    @overload
    def tool(self, /, **options: Unpack[ToolKeywords]) -> Callable[[_F], _F]: ...
    def tool(self, function: Any = None, /, **options: Unpack[ToolKeywords]) -> Any:
        """Offer a function as a tool: `@server.tool` or `@server.tool(name=...)`.

        Name, description and schemas come from the function unless given. A plain function
        runs in a worker thread, an async one in place. The function itself is returned.

        Raises:
            SignatureError: A parameter cannot be described; the text names it.
            LocalProtocolError: The server has a tool of this name.
        """
        if function is None:
            return lambda function: (
                self.tool(function)
                if not options
                else self._add_tool(function, ToolOptions(**options))
            )
        return self._add_tool(function, ToolOptions())

    def _add_tool(self, function: _F, options: ToolOptions) -> _F:
        served = ServedTool(function, options, self._workers)
        _add(self._tools, served.definition.name, served, "tool")
        self._changed("tools")
        return function

    def remove_tool(self, name: str) -> None:
        """Take a tool away; clients that listen are told.

        Raises:
            UnknownTool: There is none of this name.
        """
        if self._tools.pop(name, None) is None:
            raise UnknownTool(f"no tool {name!r}")
        self._changed("tools")

    def resource(self, uri: str, **options: Unpack[ItemKeywords]) -> Callable[[_F], _F]:
        """Offer a function as a resource, or as a family of them: `"notes://{name}"`.

        The function takes the URI's variables as strings (or what their hints say) and gives
        text, bytes, `ResourceContents`, or any value to be written as JSON.
        """

        def add(function: _F) -> _F:
            served = ServedResource(uri, function, ItemOptions(**options), self._workers)
            table = self._templates if served.template.variables else self._resources
            _add(table, uri, served, "resource")
            self._changed("resources")
            return function

        return add

    def remove_resource(self, uri: str) -> None:
        """Take a resource or template away; clients that listen are told."""
        if self._resources.pop(uri, None) is None and self._templates.pop(uri, None) is None:
            raise LocalProtocolError(f"no resource {uri!r}")
        self._changed("resources")

    def resource_updated(self, uri: str) -> None:
        """Tell clients that have subscribed to it that a resource has changed."""
        self.listeners.resource_updated(uri)

    @overload
    def prompt(self, function: _F, /) -> _F: ...
    @overload
    def prompt(self, /, **options: Unpack[ItemKeywords]) -> Callable[[_F], _F]: ...
    def prompt(self, function: Any = None, /, **options: Unpack[ItemKeywords]) -> Any:
        """Offer a function of strings as a prompt; it gives text, messages or content."""

        def add(function: _F) -> _F:
            served = ServedPrompt(function, ItemOptions(**options), self._workers)
            _add(self._prompts, served.definition.name, served, "prompt")
            self._changed("prompts")
            return function

        return add if function is None else add(function)

    def remove_prompt(self, name: str) -> None:
        """Take a prompt away; clients that listen are told."""
        if self._prompts.pop(name, None) is None:
            raise LocalProtocolError(f"no prompt {name!r}")
        self._changed("prompts")

    def completion(self, ref: str, argument: str) -> Callable[[_F], _F]:
        """Propose values for an argument of a prompt, or for a variable of a URI template.

        Args:
            ref: The prompt's name or the template.
            argument: Its name. The function takes what was typed and, if it has a second
                parameter, the values of the arguments before it; it gives strings.
        """

        def add(function: _F) -> _F:
            served = ServedCompletion(function, self._workers)
            _add(self._completions, (ref, argument), served, "completion")
            return function

        return add

    def _changed(self, kind: str) -> None:
        self._encoded.clear()
        self.listeners.list_changed(kind)

    # Running

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Keep what the server needs open; the lifespan is entered by the first user only."""
        self._running += 1
        try:
            if self._lifespan is None or self._running > 1:
                yield
            else:
                async with self._lifespan(self):
                    yield
        finally:
            self._running -= 1

    def run(self) -> None:
        """Serve on stdin and stdout until the client closes them; `print` goes to stderr."""
        from interlock.server.peer import Peer
        from interlock.transports.pipes import PipeTransport, take_standard_streams

        source, target = take_standard_streams()

        async def serve() -> None:
            await Peer(self, PipeTransport(source, target)).serve()

        with suppress(KeyboardInterrupt):
            asyncio.run(serve())
        self.close()

    def connect(self) -> Transport:
        """Make the client's end of a connection within this program: see `Client.memory`."""
        from interlock.server.peer import Peer
        from interlock.transports.memory import MemoryTransport

        ours, theirs = MemoryTransport.pair()
        task = asyncio.get_running_loop().create_task(Peer(self, ours).serve())
        self._peers.add(task)
        task.add_done_callback(self._peers.discard)
        return theirs

    def close(self) -> None:
        """Let the worker threads go. Calls that run in them are left to end."""
        self._workers.close()

    async def answer(self, request: Request, context: Context) -> bytes:
        """Answer one request with an encoded result.

        Raises:
            InterlockError: To be told by `errors.to_wire`.
        """
        return await self._handler(request, context)

    async def _dispatch(self, request: Request, context: Context) -> bytes:
        handler = self._methods.get(request.method)
        if handler is None or not self._offers(request.method):
            raise RemoteError(revisions.METHOD_NOT_FOUND, f"unknown method {request.method!r}")
        return await handler(request, context)

    def _offers(self, method: str) -> bool:
        needed = revisions.CLIENT_METHODS[method].capability.partition(".")[0]
        return not needed or getattr(self.capabilities(), needed) is not None

    def capabilities(self) -> _Capabilities:
        """What the server has: only that is declared, and only that is answered."""
        changes = {"listChanged": True}
        return _Capabilities(
            tools=changes if self._tools else None,
            resources={"subscribe": True, **changes}
            if self._resources or self._templates
            else None,
            prompts=changes if self._prompts else None,
            completions={} if self._completions else None,
            logging={},
        )

    # Beginning

    async def _initialize(self, request: Request, context: Context) -> bytes:
        params = _decode(InitializeParams, request)
        session = context.session
        if session is None:
            raise RemoteError(revisions.METHOD_NOT_FOUND, "unknown method 'initialize'")
        wanted = params.protocol_version
        session.revision = wanted if wanted in revisions.LEGACY else revisions.NEWEST_LEGACY
        session.client_capabilities = params.capabilities
        session.client_info = params.client_info
        info = msgspec.to_builtins(self.info)
        if not revisions.at_least(session.revision, revisions.IMPLEMENTATION_DETAILS):
            info = {key: info[key] for key in ("name", "version", "title") if key in info}
        capabilities = msgspec.to_builtins(self.capabilities())
        if session.revision == revisions.LEGACY[0]:
            capabilities.pop("completions", None)
        result: JsonObject = {
            "protocolVersion": session.revision,
            "capabilities": capabilities,
            "serverInfo": {"version": "", **info},
        }
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return encode(result)

    async def _ping(self, _request: Request, _context: Context) -> bytes:
        return b"{}"

    async def _discover(self, _request: Request, context: Context) -> bytes:
        result: JsonObject = {
            "supportedVersions": list(revisions.MODERN),
            "capabilities": self.capabilities(),
            "ttlMs": self._list_ttl_ms,
            "cacheScope": "private",
        }
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return self._encoder.result(encode(result), context.revision)

    async def _set_level(self, request: Request, context: Context) -> bytes:
        level = _decode(dict[str, Any], request).get("level")
        if level not in LEVELS:
            raise InvalidArguments(f"log level {level!r} is not one of {', '.join(LEVELS)}")
        if context.session is not None:
            context.session.log_level = level
        return b"{}"

    # Lists

    async def _list_tools(self, request: Request, context: Context) -> bytes:
        return self._page(
            "tools", [each.definition for each in self._tools.values()], request, context
        )

    async def _list_resources(self, request: Request, context: Context) -> bytes:
        items = [each.definition for each in self._resources.values()]
        return self._page("resources", items, request, context)

    async def _list_templates(self, request: Request, context: Context) -> bytes:
        items = [each.definition for each in self._templates.values()]
        return self._page("resourceTemplates", items, request, context)

    async def _list_prompts(self, request: Request, context: Context) -> bytes:
        items = [each.definition for each in self._prompts.values()]
        return self._page("prompts", items, request, context)

    def _page(
        self, member: str, items: Sequence[Struct], request: Request, context: Context
    ) -> bytes:
        """Give one page, encoded once for each revision until something changes."""
        cursor = _decode(dict[str, Any], request).get("cursor", "")
        key = (member, context.revision, cursor if isinstance(cursor, str) else "\0")
        kept = self._encoded.get(key)
        if kept is None:
            start = _start_of(cursor, len(items))
            end = start + PAGE_SIZE
            kept = self._encoded[key] = self._encoder.listing(
                member,
                items[start:end],
                context.revision,
                next_cursor=str(end) if end < len(items) else None,
                ttl_ms=self._list_ttl_ms,
                cache_scope="private",
            )
        return kept

    # Tools, resources, prompts

    async def _call_tool(self, request: Request, context: Context) -> bytes:
        params = _decode(_CallParams, request)
        tool = self._tools.get(params.name)
        if tool is None:
            raise UnknownTool(f"unknown tool {params.name!r}")
        arguments = params.arguments if isinstance(params.arguments, Raw) else None
        subject = (params.name.encode(), b"" if arguments is None else canonical(arguments))
        round = Round(params, request, context, subject, self._seal)
        try:
            result = await tool.call(arguments, context)
        except InputRequired as error:
            return round.ask(error, self._encoder)
        return self._encoder.call(result, context.revision)

    async def _read_resource(self, request: Request, context: Context) -> bytes:
        params = _decode(_ReadParams, request)
        served, values = self._find_resource(params.uri, context)
        round = Round(params, request, context, (params.uri.encode(),), self._seal)
        try:
            result = await served.read(params.uri, values, context)
        except InputRequired as error:
            return round.ask(error, self._encoder)
        return self._encoder.read(result, context.revision)

    def _find_resource(self, uri: str, context: Context) -> tuple[ServedResource, dict[str, str]]:
        served = self._resources.get(uri)
        if served is not None:
            return served, {}
        for served in self._templates.values():
            values = served.template.match(uri)
            if values is not None:
                return served, values
        code = revisions.INVALID_PARAMS if context.is_modern else revisions.RESOURCE_NOT_FOUND
        raise RemoteError(code, f"no resource {uri[:200]!r}", {"uri": uri})

    async def _get_prompt(self, request: Request, context: Context) -> bytes:
        params = _decode(_GetParams, request)
        served = self._prompts.get(params.name)
        if served is None:
            raise InvalidArguments(f"unknown prompt {params.name!r}")
        arguments = params.arguments if isinstance(params.arguments, dict) else {}
        subject = (params.name.encode(), encode(sorted(arguments.items())))
        round = Round(params, request, context, subject, self._seal)
        try:
            result = await served.get(arguments, context)
        except InputRequired as error:
            return round.ask(error, self._encoder)
        return self._encoder.prompt(result, context.revision)

    async def _complete(self, request: Request, context: Context) -> bytes:
        params = _decode(CompleteParams, request)
        ref = params.ref
        name = ref.name if isinstance(ref, PromptReference) else ref.uri
        table: Mapping[str, object] = (
            self._prompts if isinstance(ref, PromptReference) else self._templates
        )
        if name not in table:
            raise InvalidArguments(f"unknown prompt or resource template {name!r}")
        served = self._completions.get((name, params.argument.name))
        before = {} if params.context is UNSET else params.context.arguments
        values = await served.complete(params.argument.value, before) if served else []
        completion = values if isinstance(values, Completion) else _completion(list(values))
        body = encode(CompleteResult(completion=completion))
        return self._encoder.result(body, context.revision)

    # Subscriptions

    async def _subscribe(self, request: Request, context: Context) -> bytes:
        uri = _uri(request)
        if context.session is not None:
            uris = context.session.subscriptions
            if len(uris) >= listeners.MAX_URIS:
                raise InvalidArguments(f"over {listeners.MAX_URIS} subscriptions")
            self._find_resource(uri, context)
            uris.add(uri)
        return b"{}"

    async def _unsubscribe(self, request: Request, context: Context) -> bytes:
        if context.session is not None:
            context.session.subscriptions.discard(_uri(request))
        return b"{}"

    async def _listen(self, request: Request, context: Context) -> bytes:
        """Hold a stream open until the client ends it."""
        wanted = _decode(ListenParams, request).notifications
        has = self.capabilities()
        honoured = SubscriptionFilter(
            tools_list_changed=wanted.tools_list_changed and has.tools is not None,
            prompts_list_changed=wanted.prompts_list_changed and has.prompts is not None,
            resources_list_changed=wanted.resources_list_changed and has.resources is not None,
            resource_subscriptions=wanted.resource_subscriptions if has.resources else [],
        )
        listener = listeners.for_stream(request.id, honoured, context.link.notify)
        self.listeners.add(listener)
        try:
            acknowledged = {
                "notifications": honoured,
                "_meta": {revisions.SUBSCRIPTION_KEY: request.id},
            }
            context.link.notify("notifications/subscriptions/acknowledged", encode(acknowledged))
            await asyncio.get_running_loop().create_future()  # until cancelled
        finally:
            self.listeners.remove(listener)
        raise AssertionError("unreachable")


class _Capabilities(Wire, frozen=True):
    tools: JsonObject | None = None
    resources: JsonObject | None = None
    prompts: JsonObject | None = None
    completions: JsonObject | None = None
    logging: JsonObject | None = None


# Small things


def _add(table: dict[Any, _T], key: Any, item: _T, noun: str) -> None:
    if key in table:
        raise LocalProtocolError(f"the server has a {noun} {key!r} already; remove it first")
    table[key] = item


def _decode(type: type[_T], request: Request) -> _T:
    try:
        return msgspec.json.decode(request.params, type=type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArguments(f"params of {request.method}: {error}") from None


def _start_of(cursor: object, count: int) -> int:
    if cursor == "":
        return 0
    if not (isinstance(cursor, str) and cursor.isdecimal() and len(cursor) < 10):
        raise InvalidArguments("the cursor is not one of ours")
    start = int(cursor)
    if not 0 < start < count:
        raise InvalidArguments("the cursor points past the end; begin again without it")
    return start


def _completion(values: list[str]) -> Completion:
    return Completion(
        values=values[:MAX_VALUES], total=len(values), has_more=len(values) > MAX_VALUES
    )


def _uri(request: Request) -> str:
    uri = _decode(dict[str, Any], request).get("uri")
    if not isinstance(uri, str):
        raise InvalidArguments(f"params of {request.method}: uri is missing")
    return uri
