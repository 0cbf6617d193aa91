"""Many servers, one set of tools."""

from __future__ import annotations

import asyncio
import difflib
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, Unpack

from interlock import config
from interlock.client import ClientOptions
from interlock.config import HttpServer, ServerConfig, StdioServer
from interlock.errors import ConfigError, ServerUnavailable, UnknownTool
from interlock.protocol import ProgressHandler
from interlock.toolbox.upstream import Entry, ServerStatus, Upstream
from interlock.transports import InProcessServer
from interlock.types import CallToolResult

if TYPE_CHECKING:
    from interlock.transports.http_pool import HttpPool

# That start. With 51 servers on two processors all are ready in the time that 32 at once take, but
# each in half of it, 14 s instead of 23 s; with 8 it takes longer.
PROGRAMS_AT_ONCE = max(12, 6 * (os.cpu_count() or 1))
_log = logging.getLogger("interlock.toolbox")


class Toolbox:
    """The tools of many servers, by address ("time:get_current_time") or wire name.

    Use it as an async context manager, or `open` and `close`. A server that cannot be started
    is reported in `status` and does not stop the others.

    Args:
        servers: By name: a `StdioServer`, an `HttpServer`, or a server in this program.
        environ: Where `${VAR}` in the servers' configuration is looked up; ours when None.
        options: Handlers for what servers ask; see `ClientOptions`.
    """

    def __init__(
        self,
        servers: Mapping[str, ServerConfig | InProcessServer],
        *,
        environ: Mapping[str, str] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.warnings: tuple[str, ...] = ()
        self._members: dict[str, Upstream] = {}
        self._tools: list[Entry] | None = None  # None when it must be put together again
        self._by_name: dict[str, Entry] = {}
        self._same: set[str] = set()  # names of tools that several servers have, as was warned of
        self._pool: HttpPool | None = None
        self._starts: set[asyncio.Task[None]] = set()
        for key, server in servers.items():
            name = key
            if isinstance(server, StdioServer | HttpServer):
                name = server.namespace or key
            if not name or ":" in name:  # an address could not be split again
                raise ConfigError(f"{name!r} is no name of a server: give one without colon")
            if name in self._members:
                raise ConfigError(f"two servers are called {name!r}; give one another namespace")
            self._members[name] = Upstream(
                name,
                server,
                environ=os.environ if environ is None else environ,
                pool=self._http_pool,
                on_change=self._changed,
                **options,
            )

    @classmethod
    def from_config(
        cls, path: str | Path | None = None, **options: Unpack[ClientOptions]
    ) -> Toolbox:
        """Read an `mcpServers` file.

        Args:
            path: The file; when None, `INTERLOCK_MCP_CONFIG`, else `mcp.json` in the user's
                config folder, which may be missing.
            options: See `ClientOptions`.

        Raises:
            ConfigError: The file is missing or wrong. Nothing was started.
        """
        loaded = config.load(config.find(path))
        toolbox = cls(loaded.servers, **options)
        toolbox.warnings = loaded.warnings
        return toolbox

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self, *, idle_timeout: float | None = None) -> None:
        """Start the servers; return when each is up or has failed.

        All start at the same time, but for programs beyond `PROGRAMS_AT_ONCE`: they would take
        the processor from each other until none is ready in time.

        Args:
            idle_timeout: Return after this many seconds in which no server became ready or
                failed. The others go on starting. None waits for all.
        """
        turns = asyncio.Semaphore(PROGRAMS_AT_ONCE)
        self._starts = starting = {
            asyncio.create_task(member.start(turns)) for member in self._members.values()
        }
        try:
            while starting:
                done, starting = await asyncio.wait(
                    starting, timeout=idle_timeout, return_when=asyncio.FIRST_COMPLETED
                )
                for each in done:
                    each.result()
                if not done:
                    break
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End all servers at the same time."""
        await asyncio.gather(*(member.close() for member in self._members.values()))
        await asyncio.gather(*self._starts, return_exceptions=True)
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def _http_pool(self) -> HttpPool:
        if self._pool is None:
            from interlock.transports.http_pool import HttpPool  # loads aiohttp

            self._pool = HttpPool()
        return self._pool

    # Looking

    @property
    def tools(self) -> list[Entry]:
        """Every tool that can be called, servers in the order of the configuration."""
        if self._tools is None:
            self._put_together()
        return list(self._tools or ())

    @property
    def status(self) -> dict[str, ServerStatus]:
        """Every server by name, with its state and what is missing."""
        return {name: member.status for name, member in self._members.items()}

    async def refresh(self) -> None:
        """Renew the lists that are no longer fresh; the lists of servers that are down stay.

        Servers that have never given a list are tried again, which nobody waits for.
        """
        due = [member for member in self._members.values() if member.is_due]
        if due:  # seldom, and asked before each request to a model
            await asyncio.gather(*(member.refresh() for member in due))

    def find(self, name: str) -> Entry:
        """Find a tool by address or wire name.

        Raises:
            UnknownTool: There is none; the text says what is near, or why it is missing.
            ServerUnavailable: Its server has not given a list.
        """
        if self._tools is None:
            self._put_together()
        entry = self._by_name.get(name)
        if entry is None:
            raise self._why_missing(name)
        return entry

    def _changed(self) -> None:
        self._tools = None

    def _put_together(self) -> None:
        self._tools = []
        self._by_name = {}
        servers: dict[str, list[str]] = {}  # by the name of a tool
        for member in self._members.values():
            for entry in member.entries:
                if entry.wire_name in self._by_name:
                    _log.error("tool %s has the wire name of another one", entry.address)
                    continue
                self._tools.append(entry)
                self._by_name[entry.wire_name] = self._by_name[entry.address] = entry
                servers.setdefault(entry.tool.name, []).append(member.name)
        same = {name for name, offering in servers.items() if len(offering) > 1}
        for name in sorted(same - self._same):
            _log.warning("tool %r is of several servers: %s", name, ", ".join(servers[name]))
        self._same = same

    def _why_missing(self, name: str) -> UnknownTool | ServerUnavailable:
        server, colon, tool = name.partition(":")
        member = self._members.get(server) if colon else None
        if member is not None:
            status = member.status
            if status.state != "ok" and not member.entries:
                return ServerUnavailable(server, status.reason or status.state)
            for line in status.missing:
                if repr(tool) in line:
                    return UnknownTool(f"{name} is not offered: {line}")
        addresses = [entry.address for entry in self.tools]
        same = [each for each in addresses if each.partition(":")[2] == name]
        near = same or difflib.get_close_matches(name, addresses, 3, 0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return UnknownTool(f"no tool {name!r}{hint}")

    # Calling

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
    ) -> CallToolResult:
        """Call a tool.

        Args:
            name: Address or wire name. A bare name is refused, as another server may bring it.
            arguments: JSON values by parameter name, checked before anything is sent.
            timeout: Seconds without progress; the server's own limit when None.
            progress: Called with each `Progress`.

        Raises:
            UnknownTool: There is no such tool.
            InvalidArguments: They do not fit its schema; it was not called.
            ServerUnavailable: Its server is down and cannot be started now.
            InterlockError: As `Client.call_tool`.
        """
        entry = self.find(name)
        started = monotonic()
        outcome = "failed"
        try:
            result = await self._members[entry.server].call(
                entry, arguments or {}, timeout=timeout, progress=progress
            )
            outcome = "said no" if result.is_error else "ok"
        finally:
            # Names and times only: arguments and results may hold secrets.
            _log.info("tool %s: %s in %.3f s", entry.address, outcome, monotonic() - started)
        return result
