"""The tools of many servers as one set."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack

from msgspec import Raw

from interlock import config
from interlock.calls import LOCAL, Call, Caller, CallHandler, Entry, Item, Outcome
from interlock.client import ClientOptions
from interlock.client.options import check_options
from interlock.config import CONFIGURED, ServerConfig, environment
from interlock.config.gateway import OWN
from interlock.errors import CapabilityError, ConfigError, RemoteError
from interlock.layers import Layers
from interlock.layers.delivery import CallReceiver, Delivery
from interlock.layers.results import ResultBudget
from interlock.layers.stack import AroundCalls
from interlock.protocol import ProgressHandler
from interlock.protocol.decoding import decode, decode_prompt
from interlock.revisions import METHOD_NOT_FOUND
from interlock.toolbox import resource_files
from interlock.toolbox.own_tools import OwnServer, OwnTool
from interlock.toolbox.pins import PinKeeper
from interlock.toolbox.resource_files import FindResource
from interlock.toolbox.resource_tool import resource_tool
from interlock.toolbox.server_health import ServerStatus
from interlock.toolbox.tool_directory import ToolDirectory, is_read_only
from interlock.toolbox.upstream import Upstream
from interlock.toolbox.user_credentials import UserCredentials
from interlock.transports import InProcessServer
from interlock.types import CallToolResult, GetPromptResult, JsonObject, ReadResourceResult

if TYPE_CHECKING:
    from interlock.transports.http_pool import HttpPool

# Programs that start at the same time. Measured with 51 servers on two processors: with 12, all are
# ready as soon as with 32, but each starts in 14 s instead of 23 s; with 8, all are ready later.
PROGRAMS_AT_ONCE = max(12, 6 * (os.cpu_count() or 1))
RETIREMENT = 30.0  # seconds until the calls of a replaced server are cut off
RETRY_INTERVAL = 1.0  # seconds between retries of servers that are down
_log = logging.getLogger("interlock.toolbox")


class Toolbox:
    """The tools of many servers, by address ("time:get_current_time") or wire name.

    Use it as an async context manager, or `open` and `close`. A server that cannot be started
    is reported in `status` and does not stop the others.

    Args:
        servers: Each server by name: a `StdioServer`, an `HttpServer`, or one in this program.
        environ: The environment that `${VAR}` in the configuration refers to; `os.environ` when
            None.
        around: Layers that every call passes after its arguments have been validated, first one
            outermost: functions from `CallHandler` to `CallHandler`, such as a policy or a log.
            Or `Layers`, which have their places.
        forwards: Whether the calls come from clients, as in a gateway; see `Upstream`.
        handlers: Returns further handlers for the questions of one server, by its name.
        keeps_trying: Start servers that are down in the background, as the back-off allows, and
            not only for the next call.
        results: The budget of results for models. By default large ones are kept in memory.
        own_tools: Further tools of interlock itself, beside the one that reads kept results.
        credentials: The callers' credentials; None if the local user is the only one.
        pins: The accepted definitions; None to accept all.
        find_resource: Finds the resource with a URI as callers write it, for files that name one;
            by default what servers list is searched.
        options: Handlers for questions of every server; see `ClientOptions`.

    Attributes:
        warnings: Warnings about the configuration file, one line each.
        results: The budget of results.
        own: Interlock's own tools. They are not in `tools`, but can be found and called.
        version: Changes whenever a tool or the state of a server does.
        listeners: Called after such a change.
        find_resource: Finds the resource with a URI; see above.
        loop: The event loop in which it was opened and all calls run; None before.
        adapted: The adapters of other frameworks for its tools. They are kept here because they
            refer to the toolbox and must not outlive it.
    """

    def __init__(
        self,
        servers: Mapping[str, ServerConfig | InProcessServer],
        *,
        environ: Mapping[str, str] | None = None,
        around: AroundCalls = (),
        forwards: bool = False,
        handlers: Callable[[str], ClientOptions] | None = None,
        keeps_trying: bool = False,
        results: ResultBudget | None = None,
        own_tools: Iterable[OwnTool] = (),
        credentials: UserCredentials | None = None,
        pins: PinKeeper | None = None,
        find_resource: FindResource | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_options(options)
        self.warnings: tuple[str, ...] = ()
        self.results = results or ResultBudget()
        self.version = 0
        self.adapted: dict[object, Any] = {}
        self.listeners: set[Callable[[], None]] = set()
        self.find_resource = find_resource or self._find_listed
        self.own = OwnServer(self.results, (self._resource_tool(), *own_tools))
        self._environ = os.environ if environ is None else environ
        self._forwards = forwards
        self._handlers = handlers
        self._keeps_trying = keeps_trying
        self._credentials = credentials
        self._pins = pins
        if pins is not None:
            pins.follow(self._check_pins)
        self._options = options
        self._servers: Mapping[str, ServerConfig | InProcessServer] = {}  # by name in addresses
        self.loop: asyncio.AbstractEventLoop | None = None
        self._upstreams: dict[str, Upstream] = {}
        self.stack: CallHandler
        self._delivery = Delivery(self.results)
        self._replaced: set[Upstream] = set()  # replaced servers that are not closed yet
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting: set[asyncio.Task[None]] = set()  # starts that `_start` did not wait for
        self._replacing = asyncio.Lock()
        self._is_open = False
        self._directory = ToolDirectory(lambda: self._upstreams, self.own)
        self._pool: HttpPool | None = None
        self._install(servers, self._plan(servers), around)

    def _resource_tool(self) -> OwnTool:
        return resource_tool(self.find_resource, self.handle, lambda: self._upstreams)

    def _plan(self, servers: Mapping[str, ServerConfig | InProcessServer]) -> dict[str, Upstream]:
        """Return the upstream of each server; an unchanged configuration keeps its upstream.

        Raises:
            ConfigError: A name is not valid, or is used twice.
        """
        planned: dict[str, Upstream] = {}
        for key, server in servers.items():
            name = _name_of(key, server)
            if not name or ":" in name:  # an address could not be split
                raise ConfigError(f'invalid server name {name!r}: it must not contain ":"')
            if name == OWN:
                raise ConfigError(f"server name {name!r} is reserved: give the server another one")
            if name in planned:
                raise ConfigError(f"two servers are named {name!r}; give one another namespace")
            known = self._upstreams.get(name)
            if known is None or self._servers[name] != server:
                options = self._options
                if self._handlers is not None:
                    options = {**options, **self._handlers(name)}
                known = Upstream(
                    name,
                    server,
                    environ=self._environ,
                    pool=self._http_pool,
                    on_change=self._changed,
                    read_file=self._read_file,
                    forwards=self._forwards,
                    credentials=self._credentials,
                    pins=self._pins,
                    **options,
                )
            planned[name] = known
        return planned

    def _install(
        self,
        servers: Mapping[str, ServerConfig | InProcessServer],
        planned: dict[str, Upstream],
        around: AroundCalls,
    ) -> None:
        self._servers = {_name_of(key, server): server for key, server in servers.items()}
        self._upstreams = planned
        receivers: dict[str, CallReceiver] = {name: each.calls for name, each in planned.items()}
        receivers[OWN] = self.own
        self.stack = Layers.of(around).build(
            self._delivery.sending(receivers), self._delivery.validation(receivers)
        )

    @classmethod
    def from_config(
        cls,
        path: str | Path | None = None,
        *,
        around: AroundCalls = (),
        **options: Unpack[ClientOptions],
    ) -> Toolbox:
        """Read an `mcpServers` file.

        Args:
            path: The file; when None, `INTERLOCK_MCP_CONFIG`, else `mcp.json` in the user's
                config folder, which may be missing.
            around: Layers around every call; see `Toolbox`.
            options: See `ClientOptions`.

        Raises:
            ConfigError: The file is missing or wrong. Nothing was started.
        """
        loaded = config.load(config.find(path))
        toolbox = cls(loaded.servers, around=around, **options)
        toolbox.warnings = loaded.warnings
        return toolbox

    @classmethod
    def from_environ(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        around: AroundCalls = (),
        **options: Unpack[ClientOptions],
    ) -> Toolbox:
        """Read MCP_ENABLED, MCP_SERVERS and related variables; see `config.environment`.

        Args:
            environ: The variables; `os.environ` when None.
            around: Layers around every call; see `Toolbox`.
            options: See `ClientOptions`.

        Raises:
            ConfigError: A variable is wrong. Nothing was started.
        """
        settings = environment.read(os.environ if environ is None else environ)
        for warning in settings.warnings:
            _log.warning("%s", warning)
        toolbox = cls(
            settings.servers,
            environ=environ,
            around=around,
            keeps_trying=True,
            **options,
        )
        toolbox.warnings = settings.warnings
        return toolbox

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self, *, idle_timeout: float | None = None) -> None:
        """Start the servers; returns when each is up or has failed.

        They start at the same time, except for programs beyond `PROGRAMS_AT_ONCE`: those would
        compete for the processor and all become ready too late.

        Args:
            idle_timeout: Return after this many seconds in which no server became ready or
                failed. The other servers go on starting in the background. None waits for all.
        """
        self._is_open = True
        self.loop = asyncio.get_running_loop()
        if self._keeps_trying:
            self._keep(asyncio.create_task(self._keep_trying()))
        try:
            await self._start(self._upstreams.values(), idle_timeout)
        except BaseException:
            await self.close()
            raise

    async def restore(
        self, *, idle_timeout: float | None = None, starts_unknown: bool = True
    ) -> None:
        """Offer the tools of the last lists that the pins have, in place of `open`.

        Args:
            idle_timeout: See `open`.
            starts_unknown: Start the servers whose tools were never compared with the pins.
        """
        self._is_open = True
        self.loop = asyncio.get_running_loop()
        unknown = [each for each in self._upstreams.values() if not await each.restore()]
        await self._start(unknown if starts_unknown else (), idle_timeout)

    async def _start(self, upstreams: Iterable[Upstream], idle_timeout: float | None) -> None:
        turns = asyncio.Semaphore(PROGRAMS_AT_ONCE)
        starting = {asyncio.create_task(each.start(turns)) for each in upstreams}
        for task in starting:
            self._keep(task)
        while starting:
            done, starting = await asyncio.wait(
                starting, timeout=idle_timeout, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                each.result()
            if not done:
                break
        self._starting = starting

    async def finish_starting(self) -> bool:
        """Wait for the servers that were still starting when `open` returned.

        Returns:
            Whether there were any.
        """
        starting = self._starting
        if starting:
            await asyncio.wait(starting)
        return bool(starting)

    async def _keep_trying(self) -> None:
        while True:
            await asyncio.sleep(RETRY_INTERVAL)
            for upstream in self._upstreams.values():
                upstream.start_again()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def replace(
        self,
        servers: Mapping[str, ServerConfig | InProcessServer],
        *,
        around: AroundCalls = (),
        idle_timeout: float | None = None,
        check: Callable[[Mapping[str, Upstream]], None] = lambda _: None,
        swap: Callable[[], None] = lambda: None,
    ) -> None:
        """Replace the servers and the layers around calls in one step, without losing a call.

        New servers are started first. A server whose configuration is the same stays connected.
        Running calls end with the servers and layers that they began with. The replaced servers
        are closed after their last call, or after `RETIREMENT` seconds.

        Args:
            servers: See `Toolbox`.
            around: See `Toolbox`.
            idle_timeout: See `open`; it applies while new servers start.
            check: Called with all servers first; raises to replace nothing.
            swap: Called in the same step as the replacement.

        Raises:
            ConfigError: A name is not valid, or `check` raised it. Nothing was replaced.
        """
        async with self._replacing:
            planned = self._plan(servers)
            new = [each for name, each in planned.items() if each is not self._upstreams.get(name)]
            if self._is_open:
                await self._start(new, idle_timeout)
            try:
                check(planned)
            except ConfigError:
                await asyncio.gather(*(each.close() for each in new))
                raise
            replaced = {*self._upstreams.values()} - {*planned.values()}
            self._install(servers, planned, around)
            swap()
            for each in replaced:
                self._keep(asyncio.create_task(self._retire(each)))
            self._changed()

    async def _retire(self, upstream: Upstream) -> None:
        """Close a server that was replaced, after its last call or `RETIREMENT` seconds."""
        self._replaced.add(upstream)
        await self._delivery.last_call(upstream.calls, RETIREMENT)
        self._replaced.discard(upstream)
        await upstream.close()

    async def close(self) -> None:
        """Close all servers at the same time."""
        self._is_open = False
        open_now = {*self._upstreams.values(), *self._replaced}
        await asyncio.gather(*(each.close() for each in open_now))
        tasks = [*self._tasks]  # servers that wait for their turn to start, or for a last call
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def _http_pool(self) -> HttpPool:
        if self._pool is None:
            from interlock.transports.http_pool import HttpPool  # loads aiohttp

            self._pool = HttpPool()
        return self._pool

    # The catalogue

    @property
    def tools(self) -> list[Entry]:
        """Every tool that can be called, servers in the order of the configuration."""
        return list(self._directory.tools)

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """Every server by name."""
        return self._upstreams

    @property
    def status(self) -> dict[str, ServerStatus]:
        """The status of every server by name, with the missing tools."""
        return {name: each.status for name, each in self._upstreams.items()}

    async def refresh(self) -> None:
        """List the tools of servers whose lists have expired; a server that is down keeps its list.

        Servers that have never listed their tools are started in the background.
        """
        due = [each for each in self._upstreams.values() if each.is_due]
        if due:  # seldom true, but checked before each request to a model
            await asyncio.gather(*(each.refresh() for each in due))

    async def _check_pins(self, servers: Collection[str]) -> None:
        found = [each for name, each in self._upstreams.items() if name in servers]
        await asyncio.gather(*(each.check_again() for each in found))

    def find(self, name: str, caller: Caller = LOCAL) -> Entry:
        """Find a tool by address or wire name.

        Args:
            name: Address or wire name.
            caller: The reader of the suggestion, if the tool does not exist.

        Raises:
            UnknownTool: There is none; the text suggests a close name, or says why it is missing.
            ServerUnavailable: Its server has not listed its tools.
        """
        entry = self._directory.by_name.get(name) or self._directory.find(name)
        if entry is None:
            raise self._directory.why_missing(name, caller)
        return entry

    def upstream(self, server: str) -> Upstream:
        """Find a server by name, for its resources and prompts.

        Raises:
            ConfigError: No server has this name.
        """
        found = self._upstreams.get(server)
        if found is None:
            known = ", ".join(self._upstreams) or "none"
            raise ConfigError(f"no server {server!r}; the servers are: {known}")
        return found

    def by_wire_name(self, name: str) -> Entry | None:
        """Return the tool with this wire name, or None."""
        entry = self._directory.by_name.get(name) or self._directory.find(name)
        return entry if entry is not None and entry.wire_name == name else None

    def _changed(self) -> None:
        self._directory.forget()
        self.version += 1
        for listener in tuple(self.listeners):
            listener()

    # Calling

    def may_repeat(self, entry: Entry) -> bool:
        """Return whether the operator marked a tool as read-only or safe to repeat."""
        upstream = self._upstreams.get(entry.server)
        if upstream is None:
            return entry.server == OWN and is_read_only(entry)
        return upstream.calls.may_repeat(entry.tool.name)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
        caller: Caller = LOCAL,
    ) -> CallToolResult:
        """Call a tool.

        Args:
            name: Address or wire name. A bare name is refused, as another server may offer it too.
            arguments: JSON values by parameter name, validated before anything is sent.
            timeout: Seconds without progress; the server's own limit when None.
            progress: Called with each `Progress`.
            caller: The caller on whose behalf the tool is called; the local user unless given.

        Raises:
            UnknownTool: The tool does not exist.
            InvalidArguments: The arguments do not fit its schema; it was not called.
            ServerUnavailable: Its server is down and cannot be started now.
            InterlockError: See `Client.call_tool`; or raised by a layer of `around`.
        """
        entry = self.find(name, caller)
        call = Call(entry, dict(arguments or {}), caller, timeout=timeout, progress=progress)
        return (await self.handle(call)).result

    async def read_resource(
        self, server: str, uri: str, *, timeout: float | None = None, caller: Caller = LOCAL
    ) -> ReadResourceResult:
        """Read a resource.

        Args:
            server: The name of its server.
            uri: The URI as the server writes it.
            timeout: See `call`.
            caller: See `call`.

        Raises:
            CapabilityError: The server has no resources.
            InterlockError: See `Client.read_resource`; or raised by a layer of `around`.
        """
        call = Call(Item("resources", server, uri), {}, caller, timeout=timeout)
        raw = await self._offered("resources", call)
        return decode(ReadResourceResult, raw, "resources/read result")

    async def get_prompt(
        self,
        server: str,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        caller: Caller = LOCAL,
    ) -> GetPromptResult:
        """Get the messages of a prompt.

        Args:
            server: The name of its server.
            name: The prompt's name at the server.
            arguments: Texts by name.
            timeout: See `call`.
            caller: See `call`.

        Raises:
            CapabilityError: The server has no prompts.
            InterlockError: See `Client.get_prompt`; or raised by a layer of `around`.
        """
        call = Call(Item("prompts", server, name), dict(arguments or {}), caller, timeout=timeout)
        return decode_prompt(await self._offered("prompts", call))

    async def _offered(self, kind: str, call: Call) -> Raw:
        """Return the raw result of a call.

        Raises:
            CapabilityError: The server offers nothing of this kind.
        """
        try:
            return (await self.handle(call)).raw
        except RemoteError as error:
            if error.code != METHOD_NOT_FOUND:
                raise
            raise CapabilityError(f"server {call.entry.server!r} has no {kind}") from error

    async def _find_listed(self, uri: str, caller: Caller) -> Item | None:  # noqa: ARG002
        return await resource_files.find(self._upstreams, uri)

    async def _read_file(self, uri: str, call: Call) -> JsonObject:
        return await resource_files.read(self.find_resource, self.handle, uri, call)

    def handle(self, call: Call) -> Awaitable[Outcome]:
        """Pass a call through the stack. Calls from all surfaces pass here."""
        return self.stack(call)


def _name_of(key: str, server: ServerConfig | InProcessServer) -> str:
    if isinstance(server, CONFIGURED):
        return server.namespace or key
    return key
