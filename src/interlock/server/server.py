"""A server of tools, resources and prompts, which answers requests in every revision.

The path of a call::

    Request -> Server.answer -> middleware -> Methods -> ServedTool.call -> your function
    bytes   <- Encoder.call  <- CallToolResult <--------------------------------+
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, get_args, overload

from interlock.aio import ending_on_interrupt
from interlock.context import Context
from interlock.errors import LocalProtocolError, UnknownTool
from interlock.protocol import Request
from interlock.schema.signature import at_caller
from interlock.server.answering import is_of_parent_process
from interlock.server.catalogue import ServedTool
from interlock.server.debugging import check_reach, debugged, is_debugging
from interlock.server.dependencies import Overrides, yielded_by
from interlock.server.lifespan import Lifespan
from interlock.server.local_catalogue import LocalCatalogue
from interlock.server.methods import Handler, Methods
from interlock.server.options import (
    check_function,
    check_uri,
    checked_lifespan,
    hint_of_attribute,
    read_options,
)
from interlock.server.resolver import Runtime
from interlock.server.resources import (
    FunctionCompletion,
    FunctionPrompt,
    FunctionResource,
    ItemOptions,
)
from interlock.server.sealing import SigningSeal
from interlock.server.subscribers import ListKind, Subscribers
from interlock.server.task_store import TaskStore
from interlock.server.tasks import TASK_TTL
from interlock.server.tool_edits import ToolEdits
from interlock.server.tool_layers import ToolLayer, build_layers
from interlock.server.tools import FunctionTool, ToolOptions
from interlock.server.watchdog import watched
from interlock.server.workers import Workers
from interlock.transports import Transport
from interlock.types import Annotations, Icon, Implementation, JsonObject, ToolAnnotations

if TYPE_CHECKING:
    from interlock.server.http.app import HttpApp
    from interlock.server.http.http_options import HttpKeywords

Middleware = Callable[[Handler], Handler]
"""Takes the next handler of a server and returns its own."""
_F = TypeVar("_F", bound=Callable[..., Any])
_log = logging.getLogger("interlock.server")


class Server:
    """A server that offers tools, resources and prompts to MCP clients.

    Args:
        name: The server's name, for display.
        version: The server's version, for display.
        instructions: Instructions for the model about how to use the tools.
        title, description, website_url, icons: For display.
        lifespan: A context that is entered before the first request and exited after the last one,
            for example to open and close a connection pool. What it yields is
            `Context.lifespan`.
        around: Layers around every tool call; the first is outermost. A layer takes a handler,
            an async function from `ServedCall` to the function's value, and returns its own.
        middleware: Functions that wrap a handler of raw requests in another handler; the first is
            outermost.
        sealing_key: Signs the state that modern clients send back between rounds of questions, with
            at least 32 bytes. Required if several processes serve the same clients.
        list_ttl_ms: Milliseconds for which clients may cache lists.
        task_store: The store for tasks of tools marked `task`; None to keep the tasks in memory.
        task_ttl: The seconds that a task may run, and that its result is kept after it ends.
        debug: Whether the text of a failed call contains the exception and the line of your code,
            for clients on this machine; None for whether INTERLOCK_DEBUG is 1.
        strict: Whether arguments must have the types of a tool's schema. False also reads JSON from
            text where the schema permits one reading and nothing is lost, such as 3 from "3".

    Attributes:
        dropped: The numbers of dropped messages, keyed by the reason: unusable messages, refused
            requests such as "HTTP 413", and messages to clients that do not read them.
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
        around: Sequence[ToolLayer] = (),
        middleware: Sequence[Middleware] = (),
        sealing_key: bytes | None = None,
        list_ttl_ms: int = 0,
        task_store: TaskStore | None = None,
        task_ttl: float = TASK_TTL,
        debug: bool | None = None,
        strict: bool = True,
    ) -> None:
        self.info = Implementation(
            name, version, title, description, website_url=website_url, icons=icons
        )
        self.instructions = instructions
        self.dropped: Counter[str] = Counter()
        self.subscribers = Subscribers()
        self._lifespan = checked_lifespan(lifespan)
        self._workers = Workers()
        self._strict = strict
        self._is_entered = False
        self._mounted: list[Server] = []
        self._has_middleware = bool(middleware)
        self._runtime = Runtime(self._workers, Lifespan(self._open), yielded_by(lifespan))
        self._memory_connections: set[asyncio.Task[None]] = set()
        self._catalogue = LocalCatalogue(
            self.subscribers, build_layers(around, self._runtime.lifespan)
        )
        self._methods = Methods(
            self.info,
            instructions,
            self._catalogue,
            self.subscribers,
            SigningSeal(sealing_key),
            list_ttl_ms,
            task_store,
            task_ttl,
        )
        self._debugs = is_debugging(debug)
        # Answers a request with an encoded result, or raises an `InterlockError`.
        self.answer: Handler = self._stack(middleware)

    def _stack(self, middleware: Sequence[Middleware]) -> Handler:
        if not middleware:
            return debugged(self._methods.answer) if self._debugs else self._methods.answer
        handler: Handler = self._answer_changed
        for wrap in reversed(middleware):
            handler = wrap(handler)
        handler = self._with_lifespan(handler)
        return debugged(handler) if self._debugs else handler

    def _with_lifespan(self, handle: Handler) -> Handler:
        """Return a handler that sets `context.lifespan`; functions of items set it themselves."""

        def handle_with_lifespan(request: Request, context: Context) -> Awaitable[bytes]:
            context.lifespan = self._runtime.lifespan.value
            return handle(request, context)

        return handle_with_lifespan

    def _answer_changed(self, request: Request, context: Context) -> Awaitable[bytes]:
        """Answer a request that middleware may have changed, without its decoded params."""
        context.call_params = None
        return self._methods.answer(request, context)

    if not TYPE_CHECKING:  # type checkers report an unknown name themselves

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"the server has no attribute {name!r}{hint_of_attribute(name)}",
                name=name,
                obj=self,
            )

    # Tools, resources, prompts

    @overload
    def tool(self, function: _F, /, **options: Unpack[ToolKeywords]) -> _F: ...
    @overload
    def tool(self, /, **options: Unpack[ToolKeywords]) -> Callable[[_F], _F]: ...
    def tool(self, function: Any = None, /, **options: Unpack[ToolKeywords]) -> Any:
        """Offer a function: `@server.tool`, `@server.tool(name=...)`, `server.tool(f, name=...)`.

        Name, description and schemas are taken from the function, unless options replace them. A
        plain function runs in a worker thread, an async function in the event loop. The decorator
        returns the function unchanged.

        Raises:
            SignatureError: A parameter's type cannot be described by a schema; the text names it.
            LocalProtocolError: The server already has a tool with this name.
        """
        check_function(function, "tool", f"tool(name={function!r})")
        if function is None:
            return lambda function: self._add_function(function, options)
        return self._add_function(function, options)

    def _add_function(self, function: _F, given: Mapping[str, Any]) -> _F:
        options = read_options(ToolOptions, given, function)
        tool = FunctionTool(function, options, self._runtime, strict=self._strict)
        self._catalogue.add_tool(tool)
        return function

    def add_tool(self, tool: ServedTool | Callable[..., Any]) -> None:
        """Add a function as `tool` does, or an object with `definition` and `call`.

        Raises:
            LocalProtocolError: The server already has a tool with this name, or the name is
                missing.
            SchemaError: The input schema is not usable.
            SignatureError: A parameter of the function cannot be described by a schema.
        """
        if isinstance(tool, ServedTool):
            self._catalogue.add_tool(tool)
        else:
            self.tool(tool)

    def remove_tool(self, name: str) -> None:
        """Remove a tool, and notify subscribed clients.

        Raises:
            UnknownTool: The server has no tool with this name.
        """
        self._catalogue.remove("tools", name, UnknownTool(f"unknown tool {name!r}"))

    def resource(self, uri: str, **options: Unpack[ItemKeywords]) -> Callable[[_F], _F]:
        """Offer a function as a resource, or as a template: `"notes://{name}{?limit}"`.

        The function receives the URI's variables, converted to the types of its parameters.
        Parameters in the query, after `?`, have defaults. The function returns text, bytes,
        `ResourceContents`, or another value, which is encoded as JSON.
        """

        check_uri(uri)

        def add(function: _F) -> _F:
            given = read_options(ItemOptions, options, function)
            served = FunctionResource(uri, function, given, self._runtime)
            self._catalogue.add_resource(uri, served)
            return function

        return add

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or template, and notify subscribed clients."""
        self._catalogue.remove_resource(uri)

    def resource_updated(self, uri: str) -> None:
        """Notify the clients subscribed to a resource that the resource has changed."""
        self._catalogue.resource_updated(uri)

    @overload
    def prompt(self, function: _F, /) -> _F: ...
    @overload
    def prompt(self, /, **options: Unpack[ItemKeywords]) -> Callable[[_F], _F]: ...
    def prompt(self, function: Any = None, /, **options: Unpack[ItemKeywords]) -> Any:
        """Offer a function as a prompt, which returns text, messages, content or a list of these.

        Clients send arguments as text; for types such as lists and dataclasses, it is JSON text.
        """

        check_function(function, "prompt", f"prompt(name={function!r})")

        def add(function: _F) -> _F:
            given = read_options(ItemOptions, options, function)
            served = FunctionPrompt(function, given, self._runtime)
            self._catalogue.add("prompts", served.definition.name, served)
            return function

        return add if function is None else add(function)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt, and notify subscribed clients."""
        unknown = LocalProtocolError(f"unknown prompt {name!r}")
        self._catalogue.remove("prompts", name, unknown)

    def completion(self, ref: str, argument: str) -> Callable[[_F], _F]:
        """Register a function that suggests values for an argument of a prompt or URI template.

        Args:
            ref: The name of the prompt, or the URI template.
            argument: The argument's name. The function receives what the user has typed and, if it
                has a second parameter, the values of the other arguments. It returns strings.
        """

        def add(function: _F) -> _F:
            completion = FunctionCompletion(function, self._workers)
            self._catalogue.add("completions", (ref, argument), completion)
            return function

        return add

    def list_changed(self, kind: ListKind) -> None:
        """Notify subscribed clients that a list has changed: "tools", "prompts" or "resources".

        Use it when tools with `visible` appear or disappear for a caller. The server notifies
        clients itself when you add or remove something.

        Raises:
            LocalProtocolError: `kind` is not the name of a list.
        """
        if kind not in get_args(ListKind):
            raise LocalProtocolError(f"{kind!r} is not one of {', '.join(get_args(ListKind))}")
        self._catalogue.list_changed(kind)

    def mount(self, prefix: str, other: Server, *, tools: ToolEdits | None = None) -> None:
        """Offer the items of another server as well, now and whenever that server changes.

        Its tools and prompts are named PREFIX_NAME, and its resources keep their URIs. Its lifespan
        is entered with that of this server, and calls pass its layers as well.

        Args:
            prefix: The prefix of the names; "" to keep the names.
            other: The other server.
            tools: Changes to the other server's tools, by their own names: False to leave a tool
                out, or a dict with `name`, `title`, `description` and `arguments`. `arguments` has
                a dict with `name`, `description`, `default`, `value` or `hide` for each argument
                to change, by its own name. An argument with a `value` is not offered to clients.

        Raises:
            SignatureError: A name clashes, a change cannot be made, or `other` cannot be mounted.
        """
        if isinstance(prefix, Server):
            raise at_caller('the prefix comes first: mount("crm", other), or mount("", other)')
        if not isinstance(other, Server):
            raise at_caller(
                f"mount takes a Server, not {type(other).__name__}; interlock.gateway.Gateway "
                "joins servers of every kind"
            )
        if other._has_middleware:
            raise at_caller(
                f"server {other.info.name!r} has middleware, which gets whole requests and cannot "
                "be mounted; use around=[...]"
            )
        if self._is_entered:
            raise at_caller(f"server {self.info.name!r} is running already; mount before it starts")
        self._catalogue.mount(prefix, other._catalogue, tools or {})
        self._mounted.append(other)

    def override(self, others: Overrides) -> AbstractContextManager[None]:
        """Replace dependencies in a `with` block, for tests.

        Args:
            others: The function that runs instead, for each function that `Depends` names. It may
                take what a dependency may take.

        Raises:
            SignatureError: A key is not a dependency of this server, or its function cannot be one.
        """
        return self._runtime.override(others)

    # Lifespan

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the lifespan open: the first caller enters it, and the last caller exits it."""
        return self._runtime.lifespan.hold()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Any, None]:
        async with AsyncExitStack() as stack:
            stack.enter_context(watched())
            value = None
            if self._lifespan is not None:
                value = await stack.enter_async_context(self._lifespan(self))
            self._is_entered = True
            stack.callback(setattr, self, "_is_entered", False)
            for mounted in self._mounted:
                await stack.enter_async_context(mounted.running())
            # Stop workers and tasks before exiting the lifespan, because they may use its objects.
            stack.callback(self._workers.close)
            stack.push_async_callback(self._methods.tasks.close)
            yield value

    def run(self) -> None:
        """Serve on stdin and stdout until the client closes them. `print` writes to stderr.

        After SIGTERM, running calls get up to 30 s to finish. A second SIGTERM ends the server
        immediately.
        """
        from interlock.transports.pipes import take_standard_streams

        self.run_on(*take_standard_streams())

    def run_on(self, source: int, target: int) -> None:
        """Serve as `run` does, but read from one file descriptor and write to another."""
        from interlock.server.server_connection import ServerConnection
        from interlock.transports.pipes import PipeTransport

        async def serve() -> None:
            connection = ServerConnection(self, PipeTransport(source, target))
            serving = asyncio.ensure_future(connection.serve())

            def end() -> None:
                if not connection.drain():  # a second signal, or the connection is not open
                    serving.cancel()

            with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
            with suppress(asyncio.CancelledError):
                await serving

        with ending_on_interrupt():
            asyncio.run(serve())

    def connect(self) -> Transport:
        """Return the client's end of an in-process connection; see `Client.memory`."""
        from interlock.server.server_connection import ServerConnection
        from interlock.transports.memory import MemoryTransport

        ours, theirs = MemoryTransport.pair()
        task = asyncio.get_running_loop().create_task(ServerConnection(self, ours).serve())
        self._memory_connections.add(task)
        task.add_done_callback(self._connection_ended)
        theirs.serving = task
        return theirs

    def _connection_ended(self, serving: asyncio.Task[None]) -> None:
        self._memory_connections.discard(serving)
        error = None if serving.cancelled() else serving.exception()
        if error is not None:
            _log.error("server %s cannot serve", self.info.name, exc_info=error)

    def asgi(self, **options: Unpack[HttpKeywords]) -> HttpApp:
        """Return an ASGI application that serves modern and legacy clients on one path.

        Any ASGI server can run the application; FastAPI and Starlette can mount it under any
        prefix. The default path is `/mcp`. The lifespan is entered when the application starts, or
        before the first request. `HttpOptions` describes the options.
        """
        from interlock.server.http.app import HttpApp
        from interlock.server.http.http_options import HttpOptions

        for host in (options.get("hosts") or ()) if self._debugs else ():
            check_reach(host)
        return HttpApp(self, HttpOptions.read(options))

    def run_http(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        unprotected: bool = False,
        proxies: Sequence[str] = (),
        **options: Unpack[HttpKeywords],
    ) -> None:
        """Serve on a port until the process receives SIGTERM or SIGINT.

        Args:
            host: The address to bind.
            port: The port; 0 chooses a free port. The server prints its URL to stderr.
            unprotected: Allow serving without authentication at an address that others can reach.
            proxies: Addresses and networks of reverse proxies, such as "10.0.0.0/8". Only their
                headers `Forwarded` and `X-Forwarded-*` are believed.
            options: The options of `asgi`.

        Raises:
            MissingExtra: uvicorn is not installed.
            ConfigError: Others can reach the address, and the server has no authentication; or
                the address cannot be used; or an item of `proxies` is not an address.
        """
        from interlock.server.http.serve import check_exposure, run_app

        if self._debugs:
            check_reach(host)
        endpoint = self.asgi(**options)
        check_exposure(host, protected=unprotected or endpoint.is_protected)
        run_app(endpoint, host, port, proxies)
        self.close()

    def find(self, kind: Literal["tools"], name: str, context: Context) -> ServedTool | None:
        """Return the tool with this name; None if the caller has no such tool."""
        return self._catalogue.find(kind, name, context)

    def has_prompt(self, name: str, context: Context) -> bool:
        """Return whether the caller has a prompt with this name."""
        return self._catalogue.find("prompts", name, context) is not None

    def trusts_trace(self, context: Context) -> bool:
        """Return whether the client's trace may continue here: that of a program on stdio may."""
        return is_of_parent_process(context)

    def close(self) -> None:
        """End the worker threads after their running calls."""
        self._workers.close()


class ToolKeywords(TypedDict, total=False):
    """Keyword arguments that describe a tool of a server."""

    name: str  # by default, the function's name
    title: str
    description: str  # by default, the first part of the function's docstring
    # A dict has the names of the specification, such as {"readOnlyHint": True}.
    annotations: ToolAnnotations | Mapping[str, Any]
    read_only: bool  # whether the tool changes nothing
    destructive: bool  # whether it may delete or overwrite something
    idempotent: bool  # whether a repeated call has no further effect
    open_world: bool  # whether it reaches beyond the server's own data, such as the web
    scopes: Sequence[str]  # over HTTP, callers without these scopes get 403
    visible: Callable[[Context], object]  # for other callers, the tool does not exist
    icons: list[Icon]
    input_schema: Mapping[str, Any]  # used unchanged, instead of one derived from the function
    output_schema: Mapping[str, Any]
    timeout: float  # seconds after which a call is cancelled
    concurrency: int  # the most calls that run at the same time
    meta: JsonObject
    # True: clients that support tasks always get a task. "later": they get a task when the function
    # calls `context.begin_task()`. "required": like True, but clients without support are refused.
    task: bool | Literal["required", "later"]


class ItemKeywords(TypedDict, total=False):
    """Keyword arguments that describe a resource or prompt of a server."""

    name: str
    title: str
    description: str
    mime_type: str
    icons: list[Icon]
    # A dict has the names of the specification: audience, priority, lastModified.
    annotations: Annotations | Mapping[str, Any]
    ttl_ms: int  # milliseconds for which clients may cache the contents
    cache_scope: str  # "private" or "public"
    meta: JsonObject
