"""The worker's side of `serve --workers`: a server that gets its connections from a supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress
from functools import partial
from typing import Any

from interlock.gateway.serving.worker import KNOWN, READY
from interlock.server.http.connections import BoundedConnection
from interlock.server.http.serve import UvicornServer


class HandedServer(UvicornServer):
    """A server whose connections a supervisor accepts.

    Call `serve` with an empty list of sockets.

    Args:
        channel: The worker's end of the socket pair.
        others: The arguments of `UvicornServer`.
    """

    def __init__(self, channel: socket.socket, *others: Any, **named: Any) -> None:
        super().__init__(*others, **named)
        self._channel = channel
        self._taken: set[asyncio.Task[None]] = set()
        every: Any = self.config.http
        self._once = type("OneRequest", (_OneRequest, every), {})

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel, self._take)
        with suppress(OSError):  # if the supervisor has just died, `_take` ends the worker
            self._channel.send(READY)

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        await super().shutdown(sockets)
        asyncio.get_running_loop().remove_reader(self._channel)

    def _take(self) -> None:
        try:
            said, descriptors, _, _ = socket.recv_fds(self._channel, 1, 1)
        except BlockingIOError:
            return
        except OSError:
            said, descriptors = b"", []
        loop = asyncio.get_running_loop()
        if not said:
            loop.remove_reader(self._channel)
            os.kill(os.getpid(), signal.SIGTERM)  # the supervisor is gone: end like it
        for descriptor in descriptors:
            task = loop.create_task(self._connect(descriptor, said))
            self._taken.add(task)
            task.add_done_callback(self._taken.discard)

    async def _connect(self, descriptor: int, said: bytes) -> None:
        connection = socket.socket(fileno=descriptor)
        connection.setblocking(False)
        config: Any = self.config
        protocol = config.http_protocol_class if said == KNOWN else self._once
        make = partial(
            protocol,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        try:
            await asyncio.get_running_loop().connect_accepted_socket(make, connection)
        except OSError:  # the client is gone
            connection.close()


class _OneRequest(BoundedConnection):
    """A connection that was placed by its address, and is closed after its first response.

    The client's next request, which may have a credential, is then placed by that credential.
    """

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.newest is not None:
            self.newest.keeps_alive = False
