"""Tools, resources and prompts -> answers, in every revision.

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
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from interlock.context import Context
from interlock.protocol import Request
from interlock.server.catalogue import ServedTool
from interlock.server.lifespan import Lifespan
from interlock.server.local_catalogue import LocalCatalogue
from interlock.server.methods import Handler, Methods
from interlock.server.resources import (
    FunctionCompletion,
    FunctionPrompt,
    FunctionResource,
    ItemOptions,
)
from interlock.server.sealing import SigningSeal
from interlock.server.subscribers import Subscribers
from interlock.server.task_store import TaskStore
from interlock.server.tasks import TASK_TTL
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
    """A named, versioned set of tools, resources and prompts.

    Args:
        name: For display.
        version: For display.
        instructions: Instructions for the model about the tools.
        title, description, website_url, icons: For display.
        lifespan: Entered before the first request and left after the last one, for example
            to open and close a pool of connections.
        middleware: Functions from handler to handler; the first one is outermost.
        sealing_key: Signs the state that modern clients return between rounds of questions.
            Required if several processes serve the same clients: at least 32 bytes.
        list_ttl_ms: Milliseconds for which clients may cache lists.
        task_store: The store of tasks of tools that are marked `task`; in memory when None.
        task_ttl: Seconds that a task may take, and for which its result is kept.

    Attributes:
        dropped: Number of dropped messages, by reason: useless messages, refused requests
            ("HTTP 413"), clients that do not read.
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
        task_store: TaskStore | None = None,
        task_ttl: float = TASK_TTL,
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
        self.dropped: Counter[str] = Counter()
        self.subscribers = Subscribers()
        self._lifespan = lifespan
        self._lifespan_holder = Lifespan(self._open)
        self._workers = Workers()
        self._memory_connections: set[asyncio.Task[None]] = set()
        self._catalogue = LocalCatalogue(self.subscribers)
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
        handler: Handler = self._methods.answer
        if middleware:
            handler = self._answer_changed
        for wrap in reversed(middleware):
            handler = wrap(handler)
        # Answers one request with an encoded result, or raises an `InterlockError`.
        self.answer: Handler = handler

    def _answer_changed(self, request: Request, context: Context) -> Awaitable[bytes]:
        """Answer a request whose params may differ from those that were decoded before."""
        context.call_params = None
        return self._methods.answer(request, context)

    # Tools, resources, prompts

    @overload
    def tool(self, function: _F, /) -> _F: ...
    @overload
    def tool(self, /, **options: Unpack[ToolKeywords]) -> Callable[[_F], _F]: ...
    def tool(self, function: Any = None, /, **options: Unpack[ToolKeywords]) -> Any:
        """Offer a function as a tool: `@server.tool` or `@server.tool(name=...)`.

        Name, description and schemas come from the function unless given. A plain function
        runs in a worker thread, an async one in the event loop. Return the function itself.

        Raises:
            SignatureError: A parameter cannot be described; the text names it.
            LocalProtocolError: The server has a tool of this name.
        """
        if function is None:
            return lambda function: (
                self.tool(function)
                if not options
                else self._add_function(function, ToolOptions(**options))
            )
        return self._add_function(function, ToolOptions())

    def _add_function(self, function: _F, options: ToolOptions) -> _F:
        self._catalogue.add_tool(FunctionTool(function, options, self._workers))
        return function

    def add_tool(self, tool: ServedTool) -> None:
        """Add a tool that is not a function: an object with `definition` and `call`.

        Raises:
            LocalProtocolError: The server has a tool of this name, or the definition has no name.
            SchemaError: The input schema cannot be used.
        """
        self._catalogue.add_tool(tool)

    def remove_tool(self, name: str) -> None:
        """Remove a tool, and notify subscribed clients.

        Raises:
            UnknownTool: The server has no such tool.
        """
        self._catalogue.remove_tool(name)

    def resource(self, uri: str, **options: Unpack[ItemKeywords]) -> Callable[[_F], _F]:
        """Offer a function as a resource, or as a resource template: `"notes://{name}"`.

        The function takes the URI's variables, converted to their hints. It returns text, bytes,
        `ResourceContents`, or any value to be written as JSON.
        """

        def add(function: _F) -> _F:
            served = FunctionResource(uri, function, ItemOptions(**options), self._workers)
            self._catalogue.add_resource(uri, served)
            return function

        return add

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or template, and notify subscribed clients."""
        self._catalogue.remove_resource(uri)

    def resource_updated(self, uri: str) -> None:
        """Notify the clients that have subscribed to a resource that it has changed."""
        self.subscribers.resource_updated(uri)

    @overload
    def prompt(self, function: _F, /) -> _F: ...
    @overload
    def prompt(self, /, **options: Unpack[ItemKeywords]) -> Callable[[_F], _F]: ...
    def prompt(self, function: Any = None, /, **options: Unpack[ItemKeywords]) -> Any:
        """Offer a function of strings as a prompt; it returns text, messages or content."""

        def add(function: _F) -> _F:
            served = FunctionPrompt(function, ItemOptions(**options), self._workers)
            self._catalogue.add_prompt(served)
            return function

        return add if function is None else add(function)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt, and notify subscribed clients."""
        self._catalogue.remove_prompt(name)

    def completion(self, ref: str, argument: str) -> Callable[[_F], _F]:
        """Offer a function that proposes values for an argument of a prompt or URI template.

        Args:
            ref: The prompt's name or the template.
            argument: Name of the argument. The function takes what the user typed and, if it has
                a second parameter, the values of other arguments. It returns strings.
        """

        def add(function: _F) -> _F:
            completion = FunctionCompletion(function, self._workers)
            self._catalogue.add_completion(ref, argument, completion)
            return function

        return add

    # Lifespan

    def running(self) -> AbstractAsyncContextManager[None]:
        """Hold the lifespan open; the first holder enters it, the last one leaves it."""
        return self._lifespan_holder.hold()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            stack.enter_context(watched())
            if self._lifespan is not None:
                await stack.enter_async_context(self._lifespan(self))
            # Workers and tasks end before the lifespan does, as they may use its objects.
            stack.callback(self._workers.close)
            stack.push_async_callback(self._methods.tasks.close)
            yield

    def run(self) -> None:
        """Serve on stdin and stdout until the client closes them; `print` goes to stderr.

        After SIGTERM the running calls are answered, for 30 s at most. A second SIGTERM ends the
        server at once.
        """
        from interlock.transports.pipes import take_standard_streams

        self.run_on(*take_standard_streams())

    def run_on(self, source: int, target: int) -> None:
        """Do the same as `run`, on two file descriptors: one to read from, one to write to."""
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

        with suppress(KeyboardInterrupt):
            asyncio.run(serve())

    def connect(self) -> Transport:
        """Return the client's end of a connection within this program: see `Client.memory`."""
        from interlock.server.server_connection import ServerConnection
        from interlock.transports.memory import MemoryTransport

        ours, theirs = MemoryTransport.pair()
        task = asyncio.get_running_loop().create_task(ServerConnection(self, ours).serve())
        self._memory_connections.add(task)
        task.add_done_callback(self._connection_ended)
        return theirs

    def _connection_ended(self, serving: asyncio.Task[None]) -> None:
        self._memory_connections.discard(serving)
        error = None if serving.cancelled() else serving.exception()
        if error is not None:
            _log.error("server %s cannot serve", self.info.name, exc_info=error)

    def asgi(self, **options: Unpack[HttpKeywords]) -> HttpApp:
        """Return an ASGI application that serves both eras on one path, by default `/mcp`.

        Any ASGI server runs it; FastAPI and Starlette mount it under any prefix. The lifespan
        is entered when the application starts, or else before the first request. `HttpOptions`
        describes the options.
        """
        from interlock.server.http.app import HttpApp
        from interlock.server.http.http_options import HttpOptions

        return HttpApp(self, HttpOptions(**options))

    def run_http(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        unprotected: bool = False,
        **options: Unpack[HttpKeywords],
    ) -> None:
        """Serve on a port until the process gets SIGTERM or SIGINT.

        Args:
            host: Address to bind.
            port: 0 for any free port; the server writes its address to stderr.
            unprotected: Serve without authentication, also at an address that others can reach.
            options: See `asgi`.

        Raises:
            MissingExtra: uvicorn is not installed.
            ConfigError: Others can reach the address, and the server has no authentication; or
                the address cannot be used.
        """
        from interlock.config.gateway import Address
        from interlock.server.http.listening import bound
        from interlock.server.http.serve import UvicornServer, check_exposure

        endpoint = self.asgi(**options)
        check_exposure(host, protected=unprotected or endpoint.is_protected)
        with bound(Address(host, port)) as listener, suppress(KeyboardInterrupt):
            UvicornServer(endpoint, host, port, announces=True).run([listener])
        self.close()

    def find(self, kind: Literal["tools"], name: str, context: Context) -> ServedTool | None:
        """Return the tool of this name; None if there is none that the caller may use."""
        return self._catalogue.find(kind, name, context)

    def close(self) -> None:
        """End the worker threads once their running calls have returned."""
        self._workers.close()


class ToolKeywords(TypedDict, total=False):
    """Options of a tool."""

    name: str  # default: the function's name
    title: str
    description: str  # default: the beginning of the docstring
    annotations: ToolAnnotations
    icons: list[Icon]
    input_schema: Mapping[str, Any]  # used unchanged
    output_schema: Mapping[str, Any]
    timeout: float  # seconds that a call may take
    concurrency: int  # maximum calls at once
    meta: JsonObject
    # True: clients that support tasks get one at once. "later": they get one when the function
    # calls `context.begin_task()`. "required": the same as True, and other clients are refused.
    task: bool | Literal["required", "later"]


class ItemKeywords(TypedDict, total=False):
    """Keyword arguments that describe a resource or prompt of a server."""

    name: str
    title: str
    description: str
    mime_type: str
    icons: list[Icon]
    annotations: Annotations
    ttl_ms: int  # milliseconds for which clients may cache the contents
    cache_scope: str  # "private" or "public"
    meta: JsonObject
