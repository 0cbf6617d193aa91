"""Several processes that serve one address: a supervisor hands each connection to a worker.

1. The supervisor reads the head of a connection's first request, without taking it, and hashes the
   caller's credential. So all connections of a caller go to one worker, which has the caller's
   sessions, questions and limits in its memory.
2. A worker is the gateway of one process, which gets its connections over a socket pair. If the
   supervisor dies, the socket ends, and so does the worker.
3. A worker that dies is started again. Its callers go to the other workers meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from tempfile import TemporaryDirectory
from time import monotonic

from msgspec import Struct

from interlock.aio import beside
from interlock.errors import SpawnError
from interlock.gateway.serving.affinity import MAX_HEAD, caller_of, is_enough, place_of
from interlock.gateway.serving.process import on_signals
from interlock.gateway.serving.service_manager import ServiceManager
from interlock.gateway.serving.worker import KNOWN, READY, UNKNOWN, Worker
from interlock.server.http.listening import listen

MAX_HEADS = 500  # connections whose first request has not arrived yet
MAX_ARRIVING = 800  # connections without a worker
HEAD_WAIT = 1.0  # seconds until a connection without a head is placed by its address
WORKER_WAIT = 10.0  # seconds for which a connection waits if no worker is ready
_PAUSE = 0.02  # seconds until a full socket or a full table of descriptors is tried again
_SHORT_LIFE = 5.0  # seconds; a worker that ends sooner is started again after a pause
_LONGEST_PAUSE = 30.0


class _Running(Struct, eq=False):
    """A worker's process, and this end of its socket."""

    process: Process
    channel: socket.socket
    since: float
    is_ready: bool = False
    must_reload: bool = False  # SIGHUP would end a process that is still starting


class WorkerProcesses:
    """Starts workers, and hands them the connections of a listening socket.

    Args:
        listener: A bound socket. Connections wait in its queue until all workers are ready.
        command: The command of a worker.
        workers: The number of workers.
        manager: The service manager, which is notified of the state of this process.
        announce: Called once all workers are ready.
        complain: Called with a text if a worker dies.
    """

    def __init__(
        self,
        listener: socket.socket,
        command: Sequence[str],
        workers: int,
        *,
        manager: ServiceManager,
        announce: Callable[[], None],
        complain: Callable[[str], None],
    ) -> None:
        self._listener = listener
        self._command = command
        self._manager = manager
        self._announce = announce
        self._complain = complain
        self._running: list[_Running | None] = [None] * workers
        self._folder = ""
        self._first_is_ready = asyncio.Event()
        self._is_leaving = asyncio.Event()
        self._is_serving = False
        self._is_accepting = False
        self._arriving: set[asyncio.Task[None]] = set()
        self._heads: dict[asyncio.Timeout, None] = {}  # the oldest first
        self._changed = asyncio.Event()  # set and replaced when a worker becomes ready

    async def run(self) -> int:
        """Serve until a signal ends all workers; return the exit code of the program.

        Raises:
            ConfigError: Another program listens on the address.
            SpawnError: The system could not start a worker.
        """
        self._listener.setblocking(False)
        listen(self._listener)
        try:
            folder = TemporaryDirectory(prefix="interlock-", ignore_cleanup_errors=True)
        except OSError as error:
            raise SpawnError(f"no folder for the sockets of workers: {error}") from None
        with folder as self._folder, on_signals(self._end, self._reload):
            keeping = [self._keep(index) for index in range(len(self._running))]
            async with beside(self._manager.follow(self._is_served)):
                codes = await asyncio.gather(*keeping)
        self._stop_accepting()
        for each in self._arriving:
            each.cancel()
        await asyncio.gather(*self._arriving, return_exceptions=True)
        return max(codes)

    # Workers

    async def _keep(self, index: int) -> int:
        """Run a worker, and start it again whenever it dies; return its last exit code."""
        if index:  # an error that all workers meet is reported by the first one alone
            await self._first_is_ready.wait()
        pause, code = 0.0, 0
        while not self._is_leaving.is_set():
            began = monotonic()
            try:
                worker = await self._start(index)
            except OSError as error:
                if not self._is_serving:
                    raise SpawnError(f"a worker cannot be started: {error}") from None
                was_ready, ended = False, f"cannot be started: {error}"
            else:
                was_ready = await self._follow(worker)
                code = await worker.process.wait()
                self._running[index] = None
                worker.channel.close()
                ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            if self._is_leaving.is_set():
                break
            if not (was_ready or self._is_serving):  # it has printed why it cannot start
                self._end()
                break
            is_short = monotonic() - began < _SHORT_LIFE
            pause = min(max(pause * 2, 0.5), _LONGEST_PAUSE) if is_short else 0.0
            self._complain(f"worker {index + 1} {ended}; it starts again")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_leaving.wait(), pause)
        return 0 if code == -signal.SIGTERM else abs(code)  # sent before the worker handled it

    async def _start(self, index: int) -> _Running:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            announces = index == 0 and not self._is_serving
            host, port = self._listener.getsockname()[:2]
            count = len(self._running)
            worker = Worker(index, theirs.fileno(), host, port, self._folder, count, announces)
            try:
                process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=DEVNULL,
                    pass_fds=(worker.channel,),
                    env=os.environ | worker.as_environment(),
                    start_new_session=True,  # the supervisor passes Ctrl-C on
                )
            except OSError:
                ours.close()
                raise
        running = self._running[index] = _Running(process, ours, monotonic())
        if self._is_leaving.is_set():
            process.terminate()
        return running

    async def _follow(self, worker: _Running) -> bool:
        """Wait until the worker's socket ends; return whether the worker was ready."""
        loop = asyncio.get_running_loop()
        with suppress(OSError):
            while await loop.sock_recv(worker.channel, 1) == READY:
                worker.is_ready = True
                if worker.must_reload:
                    worker.process.send_signal(signal.SIGHUP)
                self._first_is_ready.set()
                self._changed.set()
                self._changed = asyncio.Event()
                if all(each is not None and each.is_ready for each in self._running):
                    self._serve()
        was_ready, worker.is_ready = worker.is_ready, False
        return was_ready

    def _end(self) -> None:
        self._manager.leaving()
        self._is_leaving.set()
        self._first_is_ready.set()
        for each in self._running:
            if each is not None:
                _send(each, signal.SIGTERM)

    async def _is_served(self) -> bool:
        return self._is_serving

    def _reload(self) -> None:
        for each in self._running:
            if each is not None and each.is_ready:
                _send(each, signal.SIGHUP)
            elif each is not None:
                each.must_reload = True

    # Connections

    def _serve(self) -> None:
        if not self._is_serving:
            self._is_serving = True
            self._accept_again()
            self._announce()

    def _accept_again(self) -> None:
        if not (self._is_accepting or (self._is_leaving.is_set() and not any(self._running))):
            self._is_accepting = True
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _stop_accepting(self) -> None:
        self._is_accepting = False
        asyncio.get_running_loop().remove_reader(self._listener)

    def _accept(self) -> None:
        try:
            connection, address = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # too many open files, or the client is gone
            self._stop_accepting()
            asyncio.get_running_loop().call_later(_PAUSE, self._accept_again)
            return
        connection.setblocking(False)
        task = asyncio.create_task(self._place(connection, str(address[0])))
        self._arriving.add(task)
        task.add_done_callback(self._placed)
        if len(self._arriving) >= MAX_ARRIVING:
            self._stop_accepting()

    def _placed(self, task: asyncio.Task[None]) -> None:
        self._arriving.discard(task)
        if len(self._arriving) == MAX_ARRIVING - 1:
            self._accept_again()

    async def _place(self, connection: socket.socket, address: str) -> None:
        """Hand a connection to the worker of its caller."""
        with connection, suppress(OSError, TimeoutError):
            caller = caller_of(await self._head(connection))
            said = KNOWN if caller else UNKNOWN
            async with asyncio.timeout(WORKER_WAIT):
                while not await self._hand_over(connection, said, caller or address.encode()):
                    pass

    async def _head(self, connection: socket.socket) -> bytes:
        """Return the head of the first request, as far as it arrives in time, without taking it.

        If too many heads are awaited, the oldest connection is placed with what has arrived.
        """
        head = b""
        with suppress(TimeoutError):
            async with asyncio.timeout(HEAD_WAIT) as limit:
                self._heads[limit] = None
                if len(self._heads) > MAX_HEADS:
                    oldest = next(iter(self._heads))
                    del self._heads[oldest]
                    oldest.reschedule(0)
                try:
                    while True:
                        await _more_than(len(head), connection)
                        before = len(head)
                        head = connection.recv(MAX_HEAD, socket.MSG_PEEK)
                        if len(head) == before or is_enough(head) or len(head) == MAX_HEAD:
                            break
                finally:
                    self._heads.pop(limit, None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        return head

    async def _hand_over(self, connection: socket.socket, said: bytes, caller: bytes) -> bool:
        workers = enumerate(self._running)
        ready = {at: each for at, each in workers if each is not None and each.is_ready}
        if not ready:
            await self._changed.wait()
            return False
        worker = ready[place_of(caller, ready)]
        try:
            socket.send_fds(worker.channel, [said], [connection.fileno()])
        except (BrokenPipeError, ConnectionError):  # the worker has just died
            worker.is_ready = False
            return False
        except OSError:  # the worker has many connections to take
            await asyncio.sleep(_PAUSE)
            return False
        return True


async def _more_than(size: int, connection: socket.socket) -> None:
    """Wait until more than `size` bytes of a connection have arrived, or it has ended."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size + 1)
    loop = asyncio.get_running_loop()
    arrived = loop.create_future()
    loop.add_reader(connection, _arrive, arrived)
    try:
        await arrived
    finally:
        loop.remove_reader(connection)


def _arrive(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)


def _send(worker: _Running, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        worker.process.send_signal(number)
