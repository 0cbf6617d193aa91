"""Keeps Claude Code's lists of tools equal to the lists of our servers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from time import monotonic

import msgspec
from msgspec import Struct

from interlock.claude.link import Link, object_of
from interlock.claude.servers import Servers
from interlock.errors import InterlockError, RemoteError

SET_TIMEOUT = 20.0  # seconds for Claude Code to accept a new list of servers
LIST_PATIENCE = 5.0  # seconds for Claude Code to list the servers' tools
LIST_PAUSE = 0.05
FORGET_TIMEOUT = 3.0  # seconds; the answer comes at once, or never from version 2.0.0

_log = logging.getLogger("interlock.claude")


class ToolLists:
    """Sends a running program our list of servers, and makes it reload tools that changed.

    Args:
        servers: Our servers.
        link: Returns the connection to Claude Code; None before it is started.
        running: Returns the connection to Claude Code; raises an error if it cannot be used.

    Attributes:
        hears_changes: Whether a notification of a change makes Claude Code list tools again.
    """

    def __init__(
        self, servers: Servers, link: Callable[[], Link | None], running: Callable[[], Link]
    ) -> None:
        self.hears_changes = False
        self._servers = servers
        self._link = link
        self._running = running
        self._outdated: set[str] = set()  # program names of servers to list again
        self._announcing: asyncio.Task[None] | None = None
        self._relists = True  # False once a refresh has failed
        self._closed = False

    async def set_servers(self, without: Sequence[str] = ()) -> None:
        """Send Claude Code our list of servers; it drops all other servers."""
        link = self._running()
        servers = self._servers.configuration(without)
        raw = await link.control("mcp_set_servers", SET_TIMEOUT, servers=servers)
        errors = object_of(raw).get("errors")
        self._servers.problems = errors if isinstance(errors, dict) else {}

    async def wait(self) -> bool:
        """Wait until Claude Code has listed our servers' tools, and connected to its own servers.

        Returns:
            Whether both happened within `LIST_PATIENCE` seconds.
        """
        link = self._running()
        deadline = monotonic() + LIST_PATIENCE
        while monotonic() < deadline:
            waits = any(not each.is_listed for each in self._servers)
            if self._servers.has_direct and not waits:
                raw = await link.control("mcp_status")
                waits = any(each.status == "pending" for each in _decode_status(raw).servers)
            if not waits:
                return True
            await asyncio.sleep(LIST_PAUSE)
        return False

    def note_change(self) -> None:
        """Make Claude Code list the tools again in the background."""
        if self._announcing is None and self._link() is not None and not self._closed:
            self._announcing = asyncio.ensure_future(self._announce())

    async def _announce(self) -> None:
        """Make Claude Code list the tools of servers whose tools have changed."""
        await asyncio.sleep(0)  # let the toolbox report changes of other servers first
        self._announcing = None
        link = self._link()
        if link is None or link.error is not None:
            return
        if not self.hears_changes:
            self._outdated.update(self._servers.outdated())
            return
        message = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        for name in self._servers.outdated():
            with suppress(InterlockError):
                await link.control("mcp_message", server_name=name, message=message)

    async def refresh(self) -> None:
        """Make a program that ignores notifications list the tools again, between two turns."""
        outdated, self._outdated = self._outdated, set()
        if outdated and self._relists and not self.hears_changes:
            self._relists = False
            with suppress(InterlockError):
                await self._forget(outdated)
                await self.set_servers(without=[*outdated])
                self._servers.forget_lists(outdated)
                await self.set_servers()
                self._relists = await self.wait()
            if not self._relists:
                _log.warning("Claude Code keeps an old list of tools; `reopen` refreshes it")

    async def _forget(self, program_names: Iterable[str]) -> None:
        """Make Claude Code forget its cached tool lists of these servers.

        Versions before 2.1.330 cannot reconnect to an in-process server and answer with an error,
        but at least 2.1.176 has forgotten the list by then.
        """
        for name in program_names:
            with suppress(RemoteError):
                await self._running().control("mcp_reconnect", FORGET_TIMEOUT, serverName=name)

    async def close(self) -> None:
        self._closed = True
        if self._announcing is not None:
            self._announcing.cancel()
            await asyncio.gather(self._announcing, return_exceptions=True)


class _ServerState(Struct):
    status: str = ""


class _Status(Struct):
    servers: list[_ServerState] = msgspec.field(name="mcpServers", default=[])


_decode_status = msgspec.json.Decoder(_Status).decode
