"""The effect of failed calls and lost connections on a server's state."""

from __future__ import annotations

from time import monotonic

from interlock.config import HttpServer, ServerConfig
from interlock.errors import (
    AuthError,
    HttpError,
    InterlockError,
    RequestTimeout,
    StreamEnded,
    Unreachable,
)
from interlock.text.redaction import redact_error
from interlock.toolbox.hints import with_hint
from interlock.toolbox.pool import ConnectionPool, PooledClient
from interlock.toolbox.restarts import RestartsByKey
from interlock.toolbox.server_health import ServerHealth, state_of
from interlock.transports import InProcessServer

MAX_HANGS = 3  # consecutive calls without an answer before the connection is replaced


class Failures:
    """Updates a server's state after failures, and drops its broken connections.

    Args:
        name: The server's name in the toolbox.
        server: The server's configuration.
        pool: The server's connections.
        restarts: The counts of lost connections.
        health: The server's state.
    """

    def __init__(
        self,
        name: str,
        server: ServerConfig | InProcessServer,
        pool: ConnectionPool,
        restarts: RestartsByKey,
        health: ServerHealth,
    ) -> None:
        self._name = name
        self._server = server
        self._pool = pool
        self._restarts = restarts
        self._health = health

    def why(self, error: InterlockError) -> str:
        """Return an error's text with a hint for the user."""
        return with_hint(error, self._name, self._server)

    def redacted(self, pooled: PooledClient, error: InterlockError) -> InterlockError:
        """Return a copy of an error without secrets, because a model reads the text."""
        clean = redact_error(error, pooled.redactor)
        if isinstance(clean, AuthError):
            clean.args = (pooled.redactor.redact(self.why(error)),)
        return clean

    def note(self, pooled: PooledClient, error: InterlockError) -> None:
        if pooled.is_dropped:
            return
        if isinstance(error, AuthError):
            if error.status == 401 and pooled is self._pool.shared:  # else it may concern one user
                reason = pooled.redactor.redact(self.why(error))
                self._health.set(state_of(error) or "refused", reason)
        elif isinstance(error, Unreachable):  # over HTTP, only a failed call detects this
            self.lost(pooled, str(error))
        elif _is_no_answer(error):
            pooled.hangs += 1
            if pooled.hangs >= MAX_HANGS:
                reason = f"no answer to {MAX_HANGS} calls in a row; the last one: {error}"
                if isinstance(self._server, HttpServer):
                    self.lost(pooled, reason)  # over HTTP, other calls are independent requests
                else:
                    pooled.client.abort(reason)

    def lost(self, pooled: PooledClient, reason: str) -> None:
        """Send no new calls over a connection that has ended; running calls may finish."""
        if pooled.is_dropped:
            return
        reason = pooled.redactor.redact(reason)
        is_shared = pooled is self._pool.shared
        if pooled in self._pool.connections:  # otherwise the start fails, and counts the failure
            self._restarts.of(pooled.key).lost(monotonic(), reason)
        self._pool.drop(pooled)
        if is_shared:
            self._health.set("down", reason)


def _is_no_answer(error: InterlockError) -> bool:
    """Return whether no MCP answer arrived; status 429 is an answer, because it asks to wait."""
    if isinstance(error, HttpError):
        return error.status != 429
    return isinstance(error, RequestTimeout | StreamEnded)
