"""Whether a server can be used now, and why not."""

from __future__ import annotations

import logging
from collections.abc import Callable

from interlock.errors import AuthError, LoginExpired, LoginRequired, ServerUnavailable
from interlock.toolbox.server_status import State

# The word for each state that keeps tools from being called, but for "server_down".
_CODES = {
    "disabled": "server_disabled",
    "needs login": "needs_login",
    "expired": "needs_login",
}

_log = logging.getLogger("interlock.toolbox")


class ServerHealth:
    """The state of one server.

    States: `starting` -> `ok` <-> `down` (it worked once; its last good list is kept), or `failed`
    (it never worked), or `disabled`. A server with a URL that rejects our credentials is
    `needs login`, `expired` (log in again) or `refused`.

    Args:
        server: Its name in the toolbox.
        on_change: Called after each change of the state or its reason.

    Attributes:
        state: See above.
        reason: Why, in a line; "" while all is well.
        is_closed: No connection may be opened.
    """

    def __init__(self, server: str, on_change: Callable[[], None]) -> None:
        self.state: State = "starting"
        self.reason = ""
        self.is_closed = False
        self._server = server
        self._on_change = on_change

    @property
    def obstacle(self) -> tuple[str, str]:
        """Why tools cannot be called now, as a stable word and in a line; "" if they can."""
        if self.state == "ok":
            return "", ""
        return _CODES.get(self.state, "server_down"), self.reason or self.state

    def set(self, state: State, reason: str = "") -> None:
        """Change the state."""
        if (state, reason) == (self.state, self.reason):
            return
        self.state, self.reason = state, reason
        if state != "ok":
            _log.warning("server %r %s: %s", self._server, state, reason)
        self._on_change()

    def disable(self) -> None:
        """Note that the configuration switches the server off."""
        self.state, self.reason = "disabled", "disabled in the configuration"

    def close(self) -> None:
        """Note that the toolbox is closed."""
        self.is_closed = True
        if self.state != "disabled":
            self.state, self.reason = "down", "the toolbox is closed"

    def check_start(self) -> None:
        """Raise if no connection may be opened.

        Raises:
            ServerUnavailable: The server is disabled or closed.
        """
        if self.state == "disabled" or self.is_closed:
            code = "server_disabled" if self.state == "disabled" else "server_down"
            raise ServerUnavailable(self._server, self.reason, code)


def state_of(error: Exception) -> State | None:
    """Return the state of a server that rejects our credentials; None for other errors."""
    if isinstance(error, LoginRequired):
        return "expired" if isinstance(error, LoginExpired) else "needs login"
    return "refused" if isinstance(error, AuthError) else None
