"""An inspection's connection, which lists items and restarts when the server's files change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from interlock import config
from interlock.calls import Call, Entry, Outcome
from interlock.client import Client, ClientOptions
from interlock.client.listing import Listing
from interlock.config import CONFIGURED, HttpServer, OpenApiConfig, ServerConfig, StdioServer
from interlock.errors import AskRefused, InterlockError, RemoteError, ServerUnavailable
from interlock.revisions import METHOD_NOT_FOUND
from interlock.store.pin import TOOL_KINDS
from interlock.text.redaction import Redactor, redact_error
from interlock.toolbox.connect import make_client
from interlock.toolbox.hints import with_hint
from interlock.toolbox.pins import CheckedLists
from interlock.toolbox.tool_list import ToolList
from interlock.toolbox.user_credentials import (
    UserCredentials,
    check_values,
    needs_of,
    placeholders_of,
)
from interlock.transports import InProcessServer
from interlock.types import JsonObject
from interlock.web.app_documents import SUPPORT
from interlock.web.inspector.wire import InspectedWire

if TYPE_CHECKING:
    from interlock.transports.http_pool import HttpPool

MAX_WATCHED = 500  # source files whose changes are noticed
_KINDS = ("resources", "resourceTemplates", "prompts")

_log = logging.getLogger("interlock.web")


class InspectedConnection:
    """A separate connection to one server.

    Args:
        name: The server's name.
        server: The server's configuration.
        environ: The environment variables that replace `${VAR}`.
        wire: Records all messages.
        on_change: Called after the state or a list has changed.
        owner: The principal whose credentials are used; "" for the local user.
        credentials: The users' credentials; None if the local user is the only one.

    Attributes:
        name: The server's name.
        server: The server's configuration.
        era: The requested protocol: a revision, "auto" or "legacy".
        state: "starting", "ok", "failed", "down" or "closed".
        reason: Why the state is not "ok".
        tools: The tools that the server listed last.
        items: Resources, resource templates and prompts by kind, as the server sent them.
        problems: Problems with the lists, one line each.
        redactor: Removes the server's secrets from texts.
    """

    def __init__(
        self,
        name: str,
        server: ServerConfig | InProcessServer,
        *,
        environ: Mapping[str, str],
        wire: InspectedWire,
        on_change: Callable[[], None],
        owner: str = "",
        credentials: UserCredentials | None = None,
    ) -> None:
        self.name = name
        self.server = server
        self.era = "auto"
        self.state = "starting"
        self.reason = ""
        self.items: dict[str, list[JsonObject]] = {kind: [] for kind in _KINDS}
        self.problems: list[str] = []
        self.redactor = Redactor()
        admitted = server.tools if isinstance(server, CONFIGURED) else None
        self._accepts_all = CheckedLists(name, None)  # pins are checked for each call instead
        self.tools = ToolList(name, admitted, self._accepts_all)
        self._environ = environ
        self._wire = wire
        self._on_change = on_change
        self._owner = owner
        self._credentials = credentials
        self._client: Client | None = None
        self._pool: HttpPool | None = None
        self._opening: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._times: dict[Path, float] = {}

    @property
    def client(self) -> Client | None:
        """The client; None until the server has been reached."""
        return self._client

    # Opening and closing

    def begin(self) -> None:
        """Start to connect, unless the connection is open or being opened."""
        if self._opening is None:
            self._set("starting")
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(self._opened)

    async def ready(self) -> Client:
        """Return the open client, connecting first if necessary.

        Raises:
            InterlockError: The server cannot be reached.
        """
        if self._client is None or self.state != "ok":
            self.begin()
        if self._opening is not None:
            await asyncio.wait({self._opening})
        if self._client is None or self.state != "ok":
            raise ServerUnavailable(self.name, self.reason or self.state)
        return self._client

    async def restart(self, era: str = "") -> None:
        """Close the connection and open another one.

        Args:
            era: The protocol to request from now on; "" keeps the present one.
        """
        self.era = era or self.era
        await self.disconnect()
        self.begin()

    async def close(self) -> None:
        await self.disconnect()
        self.state = "closed"
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def disconnect(self) -> None:
        tasks = [*self._tasks, *([self._opening] if self._opening is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("inspecting server %r failed", self.name, exc_info=error)
            self._set("failed", f"{type(error).__name__}: {self.redactor.redact(str(error))}")

    async def _open(self) -> None:
        self._times = dict(self._watched())
        lost, self._client = self._client, None
        if lost is not None:
            await lost.close()
        client: Client | None = None
        try:
            client = await self._make()
            await client.open()
            await self._list(client)
        except InterlockError as error:
            if client is not None:
                await client.close()
            reason = with_hint(error, self.name, self.server)
            self._set("failed", self.redactor.redact(reason))
            return
        except BaseException:
            if client is not None:
                await client.close()
            raise
        self._client = client
        self._set("ok")

    async def _make(self) -> Client:
        options: ClientOptions = {
            "strict_output": True,
            "revision": self.era,
            "trace": self._wire,
            "elicitation": _refuse,
            "extensions": SUPPORT,
            "roots": [],
            "on_list_changed": self._list_changed,
            "on_loss": lambda error: self._lost(str(error)),
        }
        values, login, owner, server = None, None, "", self.server
        if self._credentials is not None and (needs := needs_of(server)):
            owner = self._owner
            if needs.names and not isinstance(server, OpenApiConfig):
                values = await self._credentials.values(owner, self.name)
                check_values(self.name, needs.names, values)
            if needs.login:
                login = partial(self._credentials.login, owner, self.name)
        if isinstance(server, OpenApiConfig):
            from interlock.openapi.server import OpenApiServer  # loads aiohttp

            server = OpenApiServer.from_config(
                server,
                self._environ,
                self._http_pool,
                self.name,
                self._credentials,
            )
        client, self.redactor = make_client(
            server,
            self._environ,
            self._http_pool,
            options,
            owner=owner,
            user=values,
            login=login,
        )
        return client

    def _http_pool(self) -> HttpPool:
        if self._pool is None:
            from interlock.transports.http_pool import HttpPool  # loads aiohttp

            self._pool = HttpPool()
        return self._pool

    def _lost(self, reason: str) -> None:
        if self.state == "ok":
            self._set("down", self.redactor.redact(reason))

    def _set(self, state: str, reason: str = "") -> None:
        self.state, self.reason = state, reason
        self._on_change()

    # Lists

    def _list_changed(self, _kind: str) -> None:
        task = asyncio.create_task(self._list_again())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _list_again(self) -> None:
        if self._client is not None and self.state == "ok":
            try:
                await self._list(self._client)
            except InterlockError as error:
                self.problems = [self.redactor.redact(str(error))]
            self._on_change()

    async def _list(self, client: Client) -> None:
        can = client.capabilities
        self.problems = []
        listed = await _listed(client.list_tools) if can.tools is not None else Listing()
        await self._accepts_all.check((), TOOL_KINDS)
        await self.tools.install(listed, ())
        self.problems += self.tools.missing
        has_resources = can.resources is not None
        wanted: dict[str, tuple[bool, Callable[[], Any]]] = {
            "resources": (has_resources, client.list_resources),
            "resourceTemplates": (has_resources, client.list_resource_templates),
            "prompts": (can.prompts is not None, client.list_prompts),
        }
        for kind, (has_any, list_all) in wanted.items():
            found: Listing[Any] = await _listed(list_all) if has_any else Listing()
            self.items[kind] = found.definitions
            self.problems += found.skipped

    def entry(self, name: str) -> Entry | None:
        """Return the tool with this name; None if the server did not list it."""
        return next((each for each in self.tools.entries if each.tool.name == name), None)

    # Calling

    async def send(self, call: Call) -> Outcome:
        """Send a call without checking its arguments. This is the stack's innermost handler.

        Raises:
            InterlockError: The same errors as `Client.forward`, without secrets in their texts.
        """
        client = await self.ready()
        try:
            raw = await client.forward(
                call.method,
                call.params(),
                name=call.name,
                timeout=call.timeout,
                progress=call.progress,
                meta=call.meta,
                back=call.back,
                capabilities=call.capabilities,
            )
            if call.method == "tools/call":
                return Outcome(raw, client.check_result(call.name, raw))
        except InterlockError as error:
            raise redact_error(error, self.redactor) from None
        return Outcome(raw)

    async def request(self, method: str, params: JsonObject) -> bytes:
        """Send a request of any other method, and return the encoded result.

        Raises:
            InterlockError: The same errors as `Client.request`.
        """
        client = await self.ready()
        try:
            return bytes(await client.request(method, params))
        except InterlockError as error:
            raise redact_error(error, self.redactor) from None

    # Files

    async def restart_if_changed(self) -> bool:
        """Restart a program if one of its source files has changed; return whether it restarted."""
        if self.state == "starting" or not self._times:
            return False
        now = dict(self._watched())
        if now == self._times:
            return False
        self._times = now
        self._wire.noted("spawn", "a file has changed, so the server is started again")
        await self.restart()
        return True

    def _watched(self) -> Iterator[tuple[Path, float]]:
        """Yield the source files named in a program's command line, and others in their folders."""
        server = self.server
        if not isinstance(server, StdioServer):
            return
        resolved = config.resolve(server, self._environ, placeholders_of(server))
        if "--reload" in resolved.args:  # the program itself notices changes
            return
        folder = Path(resolved.cwd or ".")
        found: set[Path] = set()
        for each in (resolved.command, *resolved.args):
            path = folder / each
            if len(each) < 1000 and path.suffix in _SOURCES and path.is_file():
                found.update(path.parent.glob(f"*{path.suffix}"))
        for path in sorted(found)[:MAX_WATCHED]:
            yield path, path.stat().st_mtime_ns


_SOURCES = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh")


async def _listed(list_all: Callable[[], Any]) -> Listing[Any]:
    try:
        found: Listing[Any] = await list_all()
    except RemoteError as error:
        if error.code == METHOD_NOT_FOUND:  # many servers do not implement templates
            return Listing()
        raise
    return found


async def _refuse(_: object) -> NoReturn:
    raise AskRefused("the server sent a request outside of a call", "cannot_ask")


def kind_of(server: object) -> str:
    """Return the kind of a server: "stdio", "http", "openapi" or "python"."""
    match server:
        case StdioServer():
            return "stdio"
        case HttpServer():
            return "http"
        case OpenApiConfig():
            return "openapi"
    return "python"
