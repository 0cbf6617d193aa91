"""An OpenAPI document as an MCP server: each listed operation is a tool.

The path of a call::

    Request -> OpenApiServer.answer -> Methods -> ApiTool.call -> Plan.request -> Sender.send
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack
from urllib.parse import unquote

from msgspec.structs import replace

from interlock import __version__
from interlock.auth.principal import Principal
from interlock.config import OpenApiConfig, openapi_reading, resolve
from interlock.config.openapi import ApiDocument
from interlock.config.section import parse
from interlock.context import Context
from interlock.errors import ConfigError, InvalidArguments
from interlock.openapi.bodies import MAX_BODY_BYTES
from interlock.openapi.catalogue import ApiCatalogue
from interlock.openapi.drift import Drift
from interlock.openapi.exchange import HttpExchange
from interlock.openapi.identity import UserStores, check_plain_http
from interlock.openapi.plan import Plan, compile_tools
from interlock.openapi.references import DocumentError
from interlock.openapi.selection import ToolSelection, read_tools
from interlock.openapi.sending import Sender
from interlock.openapi.source import Source
from interlock.openapi.tools import ApiTools, build, user_headers
from interlock.protocol.envelope import encode
from interlock.server.answering import is_of_parent_process
from interlock.server.catalogue import ServedTool
from interlock.server.lifespan import Lifespan
from interlock.server.methods import Methods
from interlock.server.sealing import SigningSeal
from interlock.server.server_connection import ServerConnection
from interlock.server.subscribers import Subscribers
from interlock.server.tasks import TASK_TTL
from interlock.transports import Receiver, Transport
from interlock.transports.memory import MemoryTransport
from interlock.types import Implementation, JsonObject

if TYPE_CHECKING:
    from interlock.openapi.asgi import AsgiApp
    from interlock.openapi.document import Document
    from interlock.server.http.app import HttpApp
    from interlock.server.http.http_options import HttpKeywords
    from interlock.transports.http_pool import HttpPool

TIMEOUT = 30.0  # seconds for one call
CONCURRENCY = 8  # requests at the same time
LIST_TTL_MS = 60_000  # how long clients may cache lists; they are notified of changes
MAX_CALL_BYTES = 2 * MAX_BODY_BYTES  # twice the body: files arrive in Base64
APP_URL = "http://localhost"  # the base URL of an application in this program
_log = logging.getLogger("interlock.openapi")


class OpenApiServer:
    """Answers MCP requests with the listed operations of an HTTP API.

    Use it as a server of a `Toolbox` or gateway, with `Client.memory`, or serve `asgi()`.

    Args:
        document: A path, an https URL, or the decoded document.
        base_url: The URL that the paths of the document are appended to. It is never taken from
            the document. The default with `app` is "http://localhost".
        tools: The operation of each tool, keyed by the tool's name: an operationId,
            "METHOD /path", or an object as in the configuration. Other operations cannot be called.
        auth: Credentials keyed by the security scheme's name, as in the configuration.
        headers: Headers sent with each request.
        app: An ASGI application that receives the requests instead of the network.
        timeout: Seconds for one call, including retries.
        concurrency: The most requests at the same time; further requests wait.
        allow_http: Whether credentials may be sent to other machines without TLS.
        name: The name for display; if "", the document's title is displayed.

    Attributes:
        dropped: Number of messages and requests that were dropped, by reason.
        subscribers: The clients to notify of changes.
        drift: How often answers differed from the document.
        file_tools: The names of the tools whose arguments may be files.

    Raises:
        ConfigError: An argument is not valid.
    """

    _users: UserStores | None = None

    def __init__(
        self,
        *,
        document: str | Path | Mapping[str, Any],
        base_url: str = "",
        tools: Mapping[str, str | Mapping[str, Any] | ToolSelection],
        auth: Mapping[str, str | Mapping[str, Any]] | None = None,
        headers: Mapping[str, str] | None = None,
        app: AsgiApp | None = None,
        timeout: float = TIMEOUT,
        concurrency: int = CONCURRENCY,
        allow_http: bool = False,
        name: str = "",
    ) -> None:
        base_url = base_url or (APP_URL if app is not None else "")
        if not base_url:
            raise ConfigError("base_url is missing; set it to the address of the API")
        written = {"document": "-", "baseUrl": base_url, "auth": dict(auth or {})}
        settings = openapi_reading.read(parse(encode(written), None), None)
        place = document if isinstance(document, Mapping) else str(document)
        if isinstance(place, str) and (problem := openapi_reading.document_problem(place)):
            raise ConfigError(f"document {problem}")
        exchange: Any = HttpExchange()
        if app is not None:
            from interlock.openapi.asgi import AsgiExchange

            exchange = AsgiExchange(app)
        self._set_up(
            replace(settings, allow_http=allow_http),
            read_tools(tools),
            dict(headers or {}),
            place,
            exchange,
            timeout,
            concurrency,
            name,
        )

    @classmethod
    def from_config(
        cls,
        config: OpenApiConfig,
        environ: Mapping[str, str],
        pool: Callable[[], HttpPool] | None = None,
        name: str = "",
        users: UserStores | None = None,
    ) -> OpenApiServer:
        """Make a server from a configuration.

        Args:
            config: The entry of the configuration file.
            environ: The environment variables that `${VAR}` refers to.
            pool: Returns a shared pool of connections, which the pool's owner closes; None to
                open a pool for this server.
            name: The name for display.
            users: The credentials of users; None if the local user is the only one.

        Raises:
            ConfigError: A variable is not set, or a value is not valid.
        """
        resolved = resolve(config, environ)
        server = cls.__new__(cls)
        server._users = users
        if users is None and config.kept_login is not None:
            from interlock.store.local_login import LocalLogins

            server._users = LocalLogins(config.kept_login)
        server._set_up(
            resolved.openapi,
            read_tools(resolved.openapi.tools),
            resolved.headers,
            resolved.openapi.document,
            HttpExchange(pool),
            resolved.timeout,
            resolved.concurrency,
            name,
        )
        return server

    def _set_up(
        self,
        settings: ApiDocument,
        selections: dict[str, ToolSelection],
        headers: dict[str, str],
        place: str | Mapping[str, Any],
        exchange: Any,
        timeout: float,
        concurrency: int,
        name: str,
    ) -> None:
        if not settings.allow_http:
            check_plain_http(settings.base_url, settings.auth, headers)
        self.dropped: Counter[str] = Counter()
        self.subscribers = Subscribers()
        self.drift = Drift()
        self._name = name
        self._settings = settings
        self._selections = selections
        self._headers = headers
        of_users = user_headers(headers)
        own = {key: value for key, value in headers.items() if key not in of_users}
        self._source = Source(place, own, settings.base_url)
        self._sender = Sender(exchange, settings.base_url, own, timeout, concurrency)
        self._tools: ApiTools | None = None
        self.file_tools: frozenset[str] = frozenset()
        self._loading: asyncio.Task[Document] | None = None
        self._catalogue = ApiCatalogue(self.subscribers)
        self._methods = Methods(
            Implementation(name=name or "openapi", version=__version__),
            None,
            self._catalogue,
            self.subscribers,
            SigningSeal(None),
            LIST_TTL_MS,
            None,
            TASK_TTL,
        )
        self.answer = self._methods.answer
        self._lifespan = Lifespan(self._open)
        self._connections: set[asyncio.Task[None]] = set()

    # The document

    @property
    def tools(self) -> ApiTools:
        """The tools, and why listed tools are missing; call `load` first."""
        if self._tools is None:
            raise ConfigError("the document is not loaded yet; call load() first")
        return self._tools

    def plans(self, document: Document) -> tuple[dict[str, Plan], dict[str, str]]:
        """Return the plans for the listed tools, and why each missing tool is missing."""
        return compile_tools(document, self._selections, schemes=self._settings.auth)

    @property
    def missing(self) -> tuple[str, ...]:
        """One line for each listed tool that is missing, and one line if the document is stale."""
        missing = {**self.tools.missing, **self._settings.left_out}
        lines = [f"tool {name!r}: {why}" for name, why in missing.items()]
        if self._source.stale:
            lines.append(f"the document is stale: {self._source.stale}")
        return tuple(lines)

    @property
    def source(self) -> Source:
        return self._source

    @property
    def flagged(self) -> tuple[str, ...]:
        """One line for each kind of difference between answers and the document."""
        return tuple(self.drift.lines)

    @property
    def kept_drift(self) -> list[str]:
        """The lines of `flagged` from all earlier runs of interlock on this machine."""
        file = self._source.drift_file
        return [] if file is None else Drift.kept(file).lines

    def behind(self, tool: str) -> JsonObject | None:
        """Return the parts of a tool that models do not see: the request and the whole schema.

        None if no tool has this name.
        """
        found = self._tools.by_name.get(tool) if self._tools is not None else None
        if found is None:
            return None
        plan = found.plan
        return {
            "operation": plan.operation.key,
            "security": plan.operation.security,
            "arguments": plan.arguments,
            "inputSchema": plan.input_schema,
        }

    def stated(self, tool: str) -> JsonObject | None:
        """Return what the document states about a tool's operation; see `Statements`."""
        return None if self._tools is None else self._tools.stated.get(tool)

    def null_arguments(self, tool: str) -> frozenset[str]:
        """Return the arguments of a tool in which null removes a value; see `Plan`."""
        found = self._tools.by_name.get(tool) if self._tools is not None else None
        return frozenset() if found is None else found.plan.null_arguments

    async def with_files(
        self, tool: str, given: JsonObject, read: Callable[[str], Awaitable[JsonObject]]
    ) -> JsonObject:
        """Replace each resource named in a call's arguments by the resource's contents.

        Args:
            tool: The name of the tool.
            given: The arguments.
            read: Returns the file argument for a resource's URI.

        Raises:
            InvalidArguments: The files together are too large.
            InterlockError: `read` failed.
        """
        found = self._tools.by_name.get(tool) if self._tools is not None else None
        if found is None:
            return given
        named: list[str] = []

        def note(file: JsonObject) -> JsonObject:
            if "resource" in file and not {"text", "base64"} & file.keys():
                named.append(str(file["resource"]))
            return file

        given = found.plan.replace_files(given, note)
        if not named:
            return given
        contents = {uri: await read(uri) for uri in dict.fromkeys(named)}
        size = sum(len(contents[uri]["base64"]) * 3 // 4 for uri in named)
        if size > MAX_BODY_BYTES:
            raise InvalidArguments(
                f"the files are too large together ({size:,} bytes, limit {MAX_BODY_BYTES:,})"
            )

        def fill(file: JsonObject) -> JsonObject:
            uri = str(file.get("resource"))
            if uri not in contents:
                return file
            others = {key: each for key, each in file.items() if key != "resource"}
            return contents[uri] | others

        return found.plan.replace_files(given, fill)

    async def load(self) -> None:
        """Read the document and make its tools, unless they are already loaded.

        Raises:
            InterlockError: The document cannot be read, or does not match the configuration.
        """
        if self._tools is not None:
            return
        if self._loading is None:
            self._loading = asyncio.create_task(self.read_document())
        loading = self._loading
        try:
            await asyncio.shield(loading)
        finally:
            if loading.done():
                self._loading = None

    async def read_document(self) -> Document:
        """Read the document, make its tools, and return the document, which is not stored.

        Raises:
            InterlockError: See `load`.
        """
        found = await self._source.load()
        self._install(found)
        await self._source.keep(found)
        return found

    async def refresh(self) -> bool:
        """Read the document again if it has changed; return whether a listed tool changed."""
        found = await self._source.load_if_changed()
        if found is None:
            return False
        has_changed = self._install(found)
        await self._source.keep(found)
        return has_changed

    def _install(self, found: Document) -> bool:
        try:
            tools = build(
                found,
                self._selections,
                self._settings,
                self._headers,
                self._sender,
                self.drift,
                self._name,
                self._users,
            )
        except RecursionError:
            raise DocumentError("the document is nested too deep") from None
        self._source.note_files(found)
        has_changed = self._tools is None or tools.fingerprint != self._tools.fingerprint
        self._tools = tools
        self.file_tools = frozenset(
            name for name, each in tools.by_name.items() if each.plan.has_body
        )
        if has_changed:
            self._catalogue.install(tools.by_name)
        return has_changed

    async def _watch(self) -> None:
        """Read the document again at intervals, in case it has changed."""
        while True:
            await asyncio.sleep(self._source.interval)
            before = self._source.stale
            try:
                await self.refresh()
            except Exception:  # keep the tools of the last good document
                _log.exception("the document cannot be used")
            if self._source.stale and self._source.stale != before:
                _log.warning("the document is stale: %s", self._source.stale)

    # The methods of `Answering`

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which connections are open; the last context to end closes them."""
        return self._lifespan.hold()

    def find(self, kind: Literal["tools"], name: str, context: Context) -> ServedTool | None:
        found: ServedTool | None = self._catalogue.find(kind, name, context)
        return found

    def has_prompt(self, name: str, context: Context) -> bool:  # noqa: ARG002
        """Return False: the server of a document has no prompts."""
        return False

    def trusts_trace(self, context: Context) -> bool:
        return is_of_parent_process(context)

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None, None]:
        await self.load()
        await self._sender.exchange.open()
        watching = asyncio.create_task(self._watch()) if self._source.can_change else None
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait({watching})
            await self._methods.tasks.close()
            await self._sender.exchange.close()
            if self._source.drift_file is not None:
                self.drift.keep(self._source.drift_file)

    # Users

    async def check_user(self, tool: str, owner: str) -> None:
        """Raise an error if a call to a tool would lack a user's credential.

        Raises:
            LoginRequired: The user has to log in or to store a credential.
            InterlockError: The credential cannot be checked.
        """
        await self.load()
        found = self.tools.by_name.get(tool)
        if found is not None:
            await found.check_user(owner)

    def end_user(self, owner: str) -> None:
        """Drop a user's cached credentials after the user changed them."""
        if self._tools is not None:
            self._tools.identity.end_user(owner)

    # Serving

    def connect(self, owner: str = "") -> Transport:
        """Return the client's end of an in-process connection; see `Client.memory`.

        Args:
            owner: The `Principal.owner` of the user whose logins and stored credentials the
                requests use; "" for the local user.
        """
        ours, theirs = MemoryTransport.pair(MAX_CALL_BYTES)
        return _Connection(theirs, lambda: self._serve(ours, _principal(owner)))

    async def _serve(self, transport: Transport, principal: Principal | None) -> asyncio.Task[None]:
        await self.load()  # load on connect, so that the client receives the error
        connection = ServerConnection(self, transport, principal)
        task = asyncio.get_running_loop().create_task(connection.serve())
        self._connections.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("the API cannot be served", exc_info=error)

    def asgi(self, **options: Unpack[HttpKeywords]) -> HttpApp:
        """Return an ASGI application that serves MCP, by default at the path `/mcp`.

        See `HttpOptions` for the options.
        """
        from interlock.server.http.app import HttpApp
        from interlock.server.http.http_options import HttpOptions

        return HttpApp(self, HttpOptions.read(options))


class _Connection:
    """The client's end of an in-process connection, which opens and closes the server's end."""

    def __init__(
        self, end: MemoryTransport, start: Callable[[], Awaitable[asyncio.Task[None]]]
    ) -> None:
        self._end = end
        self._start = start
        self._serving: asyncio.Task[None] | None = None
        self.send, self.forget, self.abort = end.send, end.forget, end.abort
        self.diagnostics = end.diagnostics

    @property
    def peer(self) -> Receiver | None:
        return self._end.peer

    async def open(self, receiver: Receiver) -> None:
        self._serving = await self._start()
        await self._end.open(receiver)

    async def close(self) -> None:
        await self._end.close()
        if self._serving is not None:  # wait until the API's connections are closed as well
            await asyncio.wait({self._serving})


def _principal(owner: str) -> Principal | None:
    """Return the principal whose `Principal.owner` is `owner`."""
    if not owner:
        return None
    tenant, _, id = owner.partition("/")
    return Principal(id, tenant=unquote(tenant))
