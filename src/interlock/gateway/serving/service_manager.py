"""Notifies the service manager of the system, systemd, of the state of this process.

systemd names a datagram socket in NOTIFY_SOCKET; see sd_notify(3). If the variable is not set, or
its socket cannot be used, nothing is sent.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import CLOCK_MONOTONIC, clock_gettime_ns

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
_SEND_DEADLINE = 1.0  # seconds that a full socket may delay this process
_READY_EVERY = 0.5  # seconds between two checks of a gateway that starts


class ServiceManager:
    """Sends the states of a service.

    Args:
        address: The path of the socket, or "@" and its abstract name; "" to send nothing.
        watchdog: Seconds after which a silent process is killed; 0 for never.
    """

    def __init__(self, address: str = "", watchdog: float = 0.0) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._watchdog = watchdog
        self._is_ready = False
        self._is_leaving = False

    @classmethod
    def of_environment(cls) -> ServiceManager:
        """Return the service manager of this process; no child inherits the variables."""
        address, micros, process = (os.environ.pop(each, "") for each in _VARIABLES)
        is_watched = micros.isdecimal() and process in ("", str(os.getpid()))
        return cls(address, int(micros) / 1_000_000 if is_watched else 0.0)

    async def follow(self, is_ready: Callable[[], Awaitable[bool]]) -> None:
        """Notify the manager once this process is ready, and then that its event loop runs."""
        if not self._address:
            return
        while not await is_ready():  # noqa: ASYNC110 - no event announces it
            await asyncio.sleep(_READY_EVERY)
        self.ready()
        while self._watchdog:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog / 3)

    def ready(self) -> None:
        self._is_ready = True
        self._send("READY=1")

    def reloading(self) -> None:
        """Notify the manager that the configuration is read again, until `reloaded`."""
        if self._is_ready:
            micros = clock_gettime_ns(CLOCK_MONOTONIC) // 1_000
            self._send(f"RELOADING=1\nMONOTONIC_USEC={micros}")

    def reloaded(self) -> None:
        if self._is_ready:
            self._send("READY=1")

    def leaving(self) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            self._send("STOPPING=1")

    def _send(self, state: str) -> None:
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_SEND_DEADLINE)
                sender.sendto(state.encode(), self._address)
