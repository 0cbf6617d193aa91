"""Starts the process that serves a file, and another one whenever the file changes.

Rules:

1. A new process replaces the old one once it is ready. If it fails, the old one stays.
2. A process that exits by itself is started again, at most once a second.
3. At most one process that was replaced finishes its requests; an older one is ended at once.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from interlock.cli.reload.child_server import PATIENCE, ChildReport, ChildServer
from interlock.cli.reload.client_relay import DRAIN, ClientRelay
from interlock.cli.reload.watched_files import WatchedFiles
from interlock.cli.terminal import complain, say
from interlock.config.gateway import Address

RESTART_PAUSE = 1.0  # seconds before a process that exited by itself is started again


class _Front(Protocol):
    """The part that clients stay connected to while processes are replaced."""

    current: ChildServer | None

    def reported(self, child: ChildServer, report: ChildReport) -> None: ...

    def from_child(self, child: ChildServer, frames: list[bytes]) -> None: ...

    async def introduce(self, child: ChildServer) -> None:
        """Return when a new process is ready."""
        ...

    async def use(self, child: ChildServer) -> None:
        """Send new requests to a process that is ready, instead of to its predecessor."""
        ...

    def fail(self, problem: str) -> None: ...

    async def drained(self, child: ChildServer) -> None:
        """Return when a process that was replaced may be ended."""
        ...

    def lost(self, child: ChildServer) -> None: ...


class _Port:
    """The HTTP side of the reloader: a socket on which each process accepts connections."""

    def __init__(self) -> None:
        self.current: ChildServer | None = None
        self._ready: dict[ChildServer, asyncio.Event] = {}
        self._closed: dict[ChildServer, asyncio.Event] = {}
        self._has_announced = False

    def reported(self, child: ChildServer, report: ChildReport) -> None:
        if report.url:
            self._ready.setdefault(child, asyncio.Event()).set()
            if not self._has_announced:
                say(f"serving at {report.url}")
                self._has_announced = True
        if report.closed:
            self._closed.setdefault(child, asyncio.Event()).set()

    def from_child(self, child: ChildServer, frames: list[bytes]) -> None:
        """Do nothing: clients are connected to the process itself."""

    async def introduce(self, child: ChildServer) -> None:
        await self._ready.setdefault(child, asyncio.Event()).wait()

    async def use(self, child: ChildServer) -> None:
        old, self.current = self.current, child
        if old is not None:
            old.drain()
            closed = self._closed.setdefault(old, asyncio.Event())
            await _first(
                closed=closed.wait(), exited=old.exited.wait(), late=asyncio.sleep(PATIENCE)
            )

    def fail(self, problem: str) -> None:
        """Do nothing: clients wait for a process that accepts their connections."""

    async def drained(self, child: ChildServer) -> None:
        await _first(exited=child.exited.wait(), late=asyncio.sleep(DRAIN))

    def lost(self, child: ChildServer) -> None:
        self._ready.pop(child, None)
        self._closed.pop(child, None)
        if self.current is child:
            self.current = None


async def serve_on_stdio(path: Path, source: str, streams: tuple[int, int]) -> None:
    """Serve a file to the client at these descriptors until the client disconnects.

    Args:
        path: The file.
        source: The file, or FILE:NAME.
        streams: The descriptors to read and write.
    """
    relay = ClientRelay(*streams)
    async with _Reloader(path, relay, [source]).running():
        await relay.open()
        try:
            await relay.ended.wait()
        finally:
            await relay.close()


async def serve_on_port(
    path: Path, source: str, address: tuple[str, int], options: Sequence[str]
) -> None:
    """Serve a file over HTTP until this task is cancelled.

    Args:
        path: The file.
        source: The file, or FILE:NAME.
        address: The host and the port.
        options: Further options for `interlock run`.

    Raises:
        ConfigError: The address is in use, or not one of this machine.
    """
    from interlock.server.http.listening import bound, listen
    from interlock.server.http.serve import check_exposure

    check_exposure(address[0], protected=False)
    port = _Port()
    with bound(Address(*address)) as listener:
        listen(listener)
        host, number = listener.getsockname()[:2]
        name = f"[{host}]" if ":" in host else host
        arguments = [source, f"--http={name}:{number}", *options]
        async with _Reloader(path, port, arguments, listener).running():
            await asyncio.get_running_loop().create_future()


class _Reloader:
    """Runs the processes that serve a file.

    Args:
        path: The file.
        front: The part that clients are connected to.
        arguments: The arguments of `interlock run`.
        listener: The socket for servers over HTTP; None for stdio.
    """

    def __init__(
        self,
        path: Path,
        front: _Front,
        arguments: Sequence[str],
        listener: socket.socket | None = None,
    ) -> None:
        self._path = path
        self._front = front
        self._arguments = arguments
        self._listener = listener
        self._files = WatchedFiles(path)
        self._draining: asyncio.Task[None] | None = None
        self._children: set[ChildServer] = set()
        self._watching: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve the file during the block; then end all processes."""
        try:
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(self._serve())
                yield
                serving.cancel()
        finally:
            for task in self._watching:
                task.cancel()
            if self._draining is not None:
                self._draining.cancel()
            await asyncio.gather(*(each.end() for each in self._children))

    async def _serve(self) -> None:
        while True:
            self._files.mark()
            child = await self._started()
            if child is not None:
                state = await self._settled(child)
                if state == "changed":
                    await self._end(child)
                    continue
                if state == "ready":
                    await self._replace(child)
                else:
                    await self._end(child)
                    self._tell_failure(child.reason)
            await self._until_needed()

    async def _started(self) -> ChildServer | None:
        child = ChildServer(self._reported, self._front.from_child)
        self._children.add(child)
        try:
            await child.start(self._arguments, self._listener)
        except OSError as error:
            await self._end(child)
            complain(f"cannot start Python: {error.strerror}")
            self._tell_failure(f"Python cannot be started: {error.strerror}")
            return None
        task = asyncio.create_task(self._watch(child))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        return child

    def _reported(self, child: ChildServer, report: ChildReport) -> None:
        self._files.add(report.files)
        self._front.reported(child, report)

    async def _watch(self, child: ChildServer) -> None:
        await child.exited.wait()
        self._front.lost(child)

    async def _settled(self, child: ChildServer) -> str:
        """Return "ready", "exited" or "changed", whichever comes first."""
        return await _first(
            ready=self._front.introduce(child),
            exited=child.exited.wait(),
            changed=self._files.changed(),
        )

    async def _replace(self, child: ChildServer) -> None:
        old = self._front.current
        await self._front.use(child)
        if old is not None:
            if self._draining is not None:
                self._draining.cancel()
            self._draining = asyncio.create_task(self._drain(old))
            say(f"reloaded {self._path}")

    async def _drain(self, child: ChildServer) -> None:
        try:
            await self._front.drained(child)
        finally:
            await self._end(child)

    async def _end(self, child: ChildServer) -> None:
        self._children.discard(child)
        await child.end()
        self._front.lost(child)

    def _tell_failure(self, problem: str) -> None:
        if self._front.current is not None:
            say(f"{self._path} is not reloaded; the server from before the change stays up")
        else:
            say(f"{self._path} is served once it is changed and has no error")
            self._front.fail(problem)

    async def _until_needed(self) -> None:
        """Return when a file has changed, or the process that serves has exited."""
        child = self._front.current
        if child is None:
            await self._files.changed()
            return
        why = await _first(exited=child.exited.wait(), changed=self._files.changed())
        if why == "exited":
            say(f"the server exited by itself: {child.reason}; it is started again")
            await self._end(child)
            await asyncio.sleep(RESTART_PAUSE)


async def _first(**waits: Coroutine[Any, Any, object]) -> str:
    """Return the name of the first coroutine that returns; cancel the others.

    If several return at once, the first in the order of the arguments is named.
    """
    tasks = {name: asyncio.ensure_future(each) for name, each in waits.items()}
    try:
        await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        return next(name for name, task in tasks.items() if task.done())
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.wait(tasks.values())
