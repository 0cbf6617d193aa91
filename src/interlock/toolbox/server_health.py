"""The state of a server: whether its tools can be called now, and if not, why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from interlock.errors import AuthError, LoginExpired, LoginRequired, ServerUnavailable

State = Literal["starting", "ok", "down", "failed", "disabled", "needs login", "expired", "refused"]

# The stable code for each state in which tools cannot be called; "server_down" for other states.
_CODES = {
    "disabled": "server_disabled",
    "needs login": "needs_login",
    "expired": "needs_login",
}

_log = logging.getLogger("interlock.toolbox")


class ServerStatus(Struct, frozen=True):
    """A report on one server's state, tools and connections.

    Attributes:
        name: The server's name in the toolbox.
        state: See `State`.
        reason: The reason for the state; "" if the server works.
        tools: Number of tools that the server offers.
        missing: One line for each tool of the server that the toolbox does not offer.
        flagged: One line for each tool whose results break the protocol.
        dropped: Number of dropped messages on all the server's connections, keyed by reason.
        revision: The protocol revision in use; "" while the server is not connected.
        server_info: The name and version that the server states.
        start_seconds: Seconds that the server's last start took.
        connections: Number of open connections.
        starts: Number of connections that were opened or tried so far.
        retry_in: Seconds until the server may be started again; 0 if it may start now.
    """

    name: str
    state: State
    reason: str = ""
    tools: int = 0
    missing: tuple[str, ...] = ()
    flagged: tuple[str, ...] = ()
    dropped: Mapping[str, int] = {}
    revision: str = ""
    server_info: str = ""
    start_seconds: float = 0.0
    connections: int = 0
    starts: int = 0
    retry_in: float = 0.0


class ServerHealth:
    """Keeps the state of one server, and notifies the toolbox of changes.

    States: `starting` -> `ok` <-> `down` (the server has worked before, and its last good list is
    kept), or `failed` (the server has never worked), or `disabled`. If a server with a URL rejects
    the credentials, its state is `needs login`, `expired` (log in again) or `refused`.

    Args:
        server: The server's name in the toolbox.
        on_change: Called after each change of the state or its reason.

    Attributes:
        state: The server's state.
        reason: The reason for the state in one line; "" if the server works.
        is_closed: Whether no connection may be opened any more.
    """

    def __init__(self, server: str, on_change: Callable[[], None]) -> None:
        self.state: State = "starting"
        self.reason = ""
        self.is_closed = False
        self._server = server
        self._on_change = on_change

    @property
    def obstacle(self) -> tuple[str, str]:
        """Why tools cannot be called: a stable code, and a line of text; both "" if they can."""
        if self.state == "ok":
            return "", ""
        return _CODES.get(self.state, "server_down"), self.reason or self.state

    def set(self, state: State, reason: str = "") -> None:
        if (state, reason) == (self.state, self.reason):
            return
        self.state, self.reason = state, reason
        if state != "ok":
            _log.warning("server %r %s: %s", self._server, state, reason)
        self._on_change()

    def disable(self) -> None:
        self.state, self.reason = "disabled", "disabled in the configuration"

    def close(self) -> None:
        self.is_closed = True
        if self.state != "disabled":
            self.state, self.reason = "down", "the toolbox is closed"

    def check_start(self) -> None:
        """Raise an error if no connection may be opened.

        Raises:
            ServerUnavailable: The server is disabled or closed.
        """
        if self.state == "disabled" or self.is_closed:
            code = "server_disabled" if self.state == "disabled" else "server_down"
            raise ServerUnavailable(self._server, self.reason, code)


def state_of(error: Exception) -> State | None:
    """Return a server's state after it rejected the credentials; None for other errors."""
    if isinstance(error, LoginRequired):
        return "expired" if isinstance(error, LoginExpired) else "needs login"
    return "refused" if isinstance(error, AuthError) else None
