"""Many servers as one server of a program, without a configuration file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Unpack

from interlock.calls import Around
from interlock.config import ServerConfig
from interlock.gateway.forwarding.server import IDLE_TIMEOUT, ForwardingServer
from interlock.layers import Layers
from interlock.policy import Policy
from interlock.transports import InProcessServer

if TYPE_CHECKING:
    from interlock.server.http.http_options import HttpKeywords


class Gateway(ForwardingServer):
    """Many servers as one server, whose tools are named `SERVER__TOOL`.

    A `StdioServer` is a program, an `HttpServer` has a URL, and a `Server` is in this process. A
    server that does not start is missing, and its next call starts it again.

    Args:
        servers: The servers by name.
        policy: Decides which tools a caller may list and call. Without it, the caller of a stdio or
            loopback endpoint may call everything, and an authenticated caller may call what their
            scopes include, such as `mcp:*`.
        around: Layers around every call, as in `Toolbox`; the first is outermost.
        instructions: Text for a model that uses the tools; "servers" to combine the instructions of
            the servers, for which clients then wait.

    Raises:
        ConfigError: A server's name is not valid.
    """

    def __init__(
        self,
        servers: Mapping[str, ServerConfig | InProcessServer],
        *,
        policy: Policy | None = None,
        around: Sequence[Around] = (),
        instructions: str | None = None,
    ) -> None:
        super().__init__(
            servers,
            Policy.compile(None) if policy is None else policy,
            layers=Layers(around=around),
            instructions=instructions,
            idle_timeout=IDLE_TIMEOUT,
        )

    def run(self) -> None:
        """Serve the local user on stdin and stdout, as `Server.run` does."""
        from interlock.transports.pipes import take_standard_streams

        self.run_on(*take_standard_streams())

    def run_on(self, source: int, target: int) -> None:
        """Serve the local user on two file descriptors; `run` does this on stdin and stdout."""
        from interlock.gateway.serving.stdio import serve_stdio

        with suppress(KeyboardInterrupt):
            asyncio.run(serve_stdio(self, source, target))

    def run_http(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        proxies: Sequence[str] = (),
        **options: Unpack[HttpKeywords],
    ) -> None:
        """Serve on a port until the process receives SIGTERM or SIGINT.

        Args:
            host: The address to bind. Others than loopback need `auth=`.
            port: The port; 0 chooses a free port. The server prints its URL to stderr.
            proxies: Addresses and networks of reverse proxies whose headers are believed.
            options: The options of `asgi`.

        Raises:
            MissingExtra: uvicorn is not installed.
            ConfigError: Others can reach the address, and the gateway has no authentication; or
                the address cannot be used; or an item of `proxies` is not an address.
        """
        from interlock.server.http.serve import check_exposure, run_app

        app = self.asgi(**options)
        check_exposure(host, protected=app.is_protected, remedy="pass auth=...")
        run_app(app, host, port, proxies)
