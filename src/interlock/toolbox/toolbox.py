"""The tools of many servers as one set."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, Unpack

from msgspec import Raw

from interlock import aio, config
from interlock.calls import LOCAL, Call, Caller, CallHandler, Entry, Item, Outcome
from interlock.client import ClientOptions
from interlock.client.options import check_options
from interlock.config import CONFIGURED, ServerConfig, environment
from interlock.config.gateway import OWN
from interlock.errors import (
    CapabilityError,
    ConfigError,
    InvalidArguments,
    RemoteError,
    SchemaError,
)
from interlock.layers import Layers
from interlock.layers.delivery import CallReceiver, Delivery
from interlock.layers.results import ResultBudget
from interlock.layers.stack import AroundCalls
from interlock.protocol import ProgressHandler
from interlock.protocol.decoding import decode, decode_prompt
from interlock.revisions import METHOD_NOT_FOUND
from interlock.text.redaction import HiddenValues
from interlock.toolbox import resource_files
from interlock.toolbox.own_tools import OwnServer, OwnTool
from interlock.toolbox.pins import PinKeeper
from interlock.toolbox.resource_files import FindResource
from interlock.toolbox.resource_tool import resource_tool
from interlock.toolbox.search_tool import search_tool
from interlock.toolbox.server_health import ServerStatus
from interlock.toolbox.tool_directory import ToolDirectory, is_read_only
from interlock.toolbox.upstream import Upstream
from interlock.toolbox.user_credentials import UserCredentials
from interlock.transports import InProcessServer
from interlock.types import CallToolResult, GetPromptResult, JsonObject, ReadResourceResult

if TYPE_CHECKING:
    from interlock.toolbox.tool_finder import ToolFinder
    from interlock.transports.http_pool import HttpPool

# The most programs that start at the same time. Measured with 51 servers on two processors: with a
# limit of 12, all are ready as soon as with 32, but each starts in 14 s instead of 23 s; with a
# limit of 8, all are ready later.
PROGRAMS_AT_ONCE = max(12, 6 * (os.cpu_count() or 1))
RETIREMENT = 30.0  # seconds until a replaced server is closed even if it has running calls
RETRY_INTERVAL = 1.0  # seconds between retries of servers that are down
_log = logging.getLogger("interlock.toolbox")


class Toolbox:
    """The tools of many servers, by address ("time:get_current_time") or wire name.

    Use it as an async context manager, or `open` and `close`. A server that cannot be started
    is reported in `status` and does not stop the others.

    Args:
        servers: The servers by name: each a `StdioServer`, an `HttpServer`, or a server object in
            this process.
        environ: The environment variables that `${VAR}` in the configuration refers to; None
            for `os.environ`.
        around: Layers that every call passes after its arguments have been validated. Either a
            list of functions from `CallHandler` to `CallHandler`, such as a policy or a log,
            the outermost first; or a `Layers` object, which fixes the order.
        forwards: Whether the calls come from a gateway's clients; see `Upstream`.
        handlers: Returns further handlers for a server's questions, given the server's name.
        keeps_trying: Whether to restart servers that are down in the background, when the back-off
            allows it. If False, they restart only with the next call.
        results: The budget for results that models read. By default, large results are kept in
            memory.
        own_tools: Further tools of interlock itself, besides the tool that reads kept results.
        credentials: The callers' credentials; None if the local user is the only caller.
        pins: The accepted definitions; None to accept every definition.
        find_resource: Finds a resource by the URI that a caller wrote, for file arguments; by
            default, the servers' lists are searched.
        options: Handlers for every server's questions; see `ClientOptions`.

    Attributes:
        warnings: Warnings about the configuration file, one line each.
        results: The budget for results that models read.
        own: Interlock's own tools. They are not in `tools`, but can be found and called.
        version: A number that changes whenever a tool or a server's state changes.
        listeners: Functions to call after `version` has changed.
        find_resource: The argument `find_resource`, or the default.
        loop: The event loop in which the toolbox was opened and all calls run; None before.
        adapted: The toolbox's tools as other frameworks' tools. They are cached here because they
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
        reader = resource_tool(self.find_resource, self.handle, lambda: self._upstreams)
        search = search_tool(lambda: self.finder, lambda: self.tools, lambda: self._upstreams)
        self.own = OwnServer(self.results, (reader, search, *own_tools))
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
        self._finder: ToolFinder | None = None
        self._pool: HttpPool | None = None
        self._install(servers, self._plan(servers), around)

    def _plan(self, servers: Mapping[str, ServerConfig | InProcessServer]) -> dict[str, Upstream]:
        """Return each server's upstream; reuse the upstream if the configuration is unchanged.

        Raises:
            ConfigError: A name is not valid, or is used twice.
        """
        planned: dict[str, Upstream] = {}
        for key, server in servers.items():
            name = _name_of(key, server)
            if not name or ":" in name:  # a colon would make addresses ambiguous
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
        self._receivers = receivers
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
            path: The file. None reads the file that `INTERLOCK_MCP_CONFIG` names, or else
                `mcp.json` in the user's config folder, if it exists.
            around: Layers around every call; see `Toolbox`.
            options: See `ClientOptions`.

        Raises:
            ConfigError: The file is missing or not valid. No server was started.
        """
        loaded = config.load(config.find(path))
        for reason in loaded.ignored.values():
            _log.warning("%s: %s; this server is ignored", loaded.path, reason)
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
            environ: The environment variables; None for `os.environ`.
            around: Layers around every call; see `Toolbox`.
            options: See `ClientOptions`.

        Raises:
            ConfigError: A variable is not valid. No server was started.
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
        """Start the servers, and return when each server is ready or has failed.

        Servers start at the same time, but at most `PROGRAMS_AT_ONCE` programs, because more
        programs would compete for the processor and all become ready later.

        Args:
            idle_timeout: Return after this many seconds in which no server became ready or
                failed; the remaining servers continue to start in the background. None waits
                for all servers.
        """
        self._is_open = True
        self.loop = asyncio.get_running_loop()
        if self._keeps_trying:
            self._keep(aio.start_detached(self._keep_trying()))
        try:
            await self._start(self._upstreams.values(), idle_timeout)
        except BaseException:
            await self.close()
            raise

    async def restore(
        self, *, idle_timeout: float | None = None, starts_unknown: bool = True
    ) -> None:
        """Offer the tools that were last compared with the pins, without starting their servers.

        Call this instead of `open`.

        Args:
            idle_timeout: See `open`.
            starts_unknown: Whether to start servers whose tools were never compared with the pins.
        """
        self._is_open = True
        self.loop = asyncio.get_running_loop()
        unknown = [each for each in self._upstreams.values() if not await each.restore()]
        await self._start(unknown if starts_unknown else (), idle_timeout)

    async def _start(self, upstreams: Iterable[Upstream], idle_timeout: float | None) -> None:
        turns = asyncio.Semaphore(PROGRAMS_AT_ONCE)
        starting = {aio.start_detached(each.start(turns)) for each in upstreams}
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
            Whether any server was still starting.
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

        New servers are started first. A server with an unchanged configuration stays connected.
        Running calls finish with the servers and layers with which they began. A replaced server
        is closed after its last call, or after `RETIREMENT` seconds.

        Args:
            servers: See `Toolbox`.
            around: See `Toolbox`.
            idle_timeout: See `open`; it applies while new servers start.
            check: Called with all servers before the replacement; an error from it cancels the
                replacement.
            swap: Called in the same step as the replacement, to replace related data.

        Raises:
            ConfigError: A name is not valid, or `check` raised this error. Nothing was replaced.
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
                self._keep(aio.start_detached(self._retire(each)))
            self._changed()

    async def _retire(self, upstream: Upstream) -> None:
        """Close a replaced server after its last call, or after `RETIREMENT` seconds."""
        self._replaced.add(upstream)
        await self._delivery.last_call(upstream.calls, RETIREMENT)
        self._replaced.discard(upstream)
        await upstream.close()

    async def close(self) -> None:
        """Close all servers at the same time."""
        self._is_open = False
        open_now = {*self._upstreams.values(), *self._replaced}
        await asyncio.gather(*(each.close() for each in open_now))
        tasks = [*self._tasks]  # starts and closes that are still waiting
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
        """Every tool that can be called, in the order of the servers in the configuration."""
        return list(self._directory.tools)

    @property
    def finder(self) -> ToolFinder:
        """Searches the tools by words; made when it is first used."""
        if self._finder is None:
            from interlock.toolbox.tool_finder import ToolFinder  # costs time and memory

            self._finder = ToolFinder(lambda: self.tools, lambda: self.version, self._keep)
        return self._finder

    @property
    def upstreams(self) -> Mapping[str, Upstream]:
        """Every server by name."""
        return self._upstreams

    @property
    def status(self) -> dict[str, ServerStatus]:
        """The status of every server, keyed by name; it includes the server's missing tools."""
        return {name: each.status for name, each in self._upstreams.items()}

    async def refresh(self) -> None:
        """Refresh expired lists of tools; a server that is down keeps its last list.

        Servers that have never listed their tools are started in the background.
        """
        due = [each for each in self._upstreams.values() if each.is_due]
        if due:  # skip the rest when nothing is due, because this runs before each model request
            await asyncio.gather(*(each.refresh() for each in due))

    async def _check_pins(self, servers: Collection[str]) -> None:
        found = [each for name, each in self._upstreams.items() if name in servers]
        await asyncio.gather(*(each.check_again() for each in found))

    def find(self, name: str, caller: Caller = LOCAL) -> Entry:
        """Find a tool by address or wire name.

        Args:
            name: Address or wire name.
            caller: The caller, for whom an error suggests other tools.

        Raises:
            UnknownTool: No tool has this name. The text suggests a similar name, or says why the
                tool is missing.
            ServerUnavailable: The tool's server has not listed its tools.
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
        headers: Mapping[str, str] | None = None,
    ) -> CallToolResult:
        """Call a tool. If its server is still starting, the call waits for it.

        Args:
            name: Address or wire name. A bare tool name is refused, because several servers may
                have a tool with this name.
            arguments: JSON values by parameter name, validated before anything is sent.
            timeout: Seconds without progress; None for the server's configured timeout.
            progress: Called with each `Progress`.
            caller: The caller on whose behalf the tool is called; by default the local user.
            headers: HTTP headers of this call only, for a server with a URL. They replace the
                configured headers of the same names, and appear in no log.

        Raises:
            UnknownTool: The tool does not exist.
            ConfigError: A header is not valid, or the server has no URL.
            InvalidArguments: The arguments do not match the tool's schema; it was not called.
            ServerUnavailable: The tool's server is down and cannot be started now.
            InterlockError: See `Client.call_tool`; or a layer in `around` raised this error.
        """
        if name not in self._directory.by_name and self._directory.find(name) is None:
            timeout = await self._wait_for_start(name, timeout)
        entry = self.find(name, caller)
        call = Call(entry, dict(arguments or {}), caller, timeout=timeout, progress=progress)
        if headers:
            call.headers = HiddenValues(headers)
        return (await self.handle(call)).result

    async def _wait_for_start(self, name: str, timeout: float | None) -> float | None:
        """Wait until the server of a tool has started; return the rest of the timeout."""
        starting = self._directory.starting(name)
        if starting is None:
            return timeout
        began = monotonic()
        await starting.wait_for_start(timeout)
        return None if timeout is None else max(timeout - (monotonic() - began), 0.0)

    async def read_resource(
        self, server: str, uri: str, *, timeout: float | None = None, caller: Caller = LOCAL
    ) -> ReadResourceResult:
        """Read a resource.

        Args:
            server: The server's name.
            uri: The resource's URI at the server.
            timeout: See `call`.
            caller: See `call`.

        Raises:
            CapabilityError: The server has no resources.
            InterlockError: See `Client.read_resource`; or a layer in `around` raised this error.
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
            server: The server's name.
            name: The prompt's name at the server.
            arguments: The prompt's arguments by name; all are strings.
            timeout: See `call`.
            caller: See `call`.

        Raises:
            CapabilityError: The server has no prompts.
            InterlockError: See `Client.get_prompt`; or a layer in `around` raised this error.
        """
        call = Call(Item("prompts", server, name), dict(arguments or {}), caller, timeout=timeout)
        return decode_prompt(await self._offered("prompts", call))

    async def _offered(self, kind: str, call: Call) -> Raw:
        """Make a call for a resource or prompt; return the encoded result.

        Raises:
            CapabilityError: The server has no resources, or no prompts.
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

    def convert_arguments(self, call: Call) -> None:
        """Convert a call's arguments as `handle` does, for code that judges the call before it.

        Arguments that cannot be converted stay as they are; `handle` refuses them.
        """
        receiver = self._receivers.get(call.entry.server)
        if receiver is not None:
            with suppress(InvalidArguments, SchemaError):
                receiver.validate(call)

    def handle(self, call: Call) -> Awaitable[Outcome]:
        """Pass a call through all layers to its server; every call goes through this method."""
        return self.stack(call)


def _name_of(key: str, server: ServerConfig | InProcessServer) -> str:
    if isinstance(server, CONFIGURED):
        return server.namespace or key
    return key
