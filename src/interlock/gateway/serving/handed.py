"""The worker's side of `serve --workers`: a server that gets its connections from a supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import Any

from interlock.gateway.serving.worker import READY
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
        self._taken: set[asyncio.Task[Any]] = set()

    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        self._channel.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel, self._take)
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
            connection = socket.socket(fileno=descriptor)
            connection.setblocking(False)
            task = loop.create_task(loop.connect_accepted_socket(self._protocol, connection))
            self._taken.add(task)
            task.add_done_callback(self._taken.discard)

    def _protocol(self) -> asyncio.Protocol:
        config: Any = self.config
        made: asyncio.Protocol = config.http_protocol_class(
            config=config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made
