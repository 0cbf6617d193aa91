"""The HTTP server of a process that `--reload` has started."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from interlock.cli.reload.child_server import ChildReport
from interlock.server.http.app import HttpApp
from interlock.server.http.serve import UvicornServer


def serve_http(
    endpoint: HttpApp,
    listener: socket.socket,
    report: Callable[[ChildReport], None],
    proxies: Sequence[str],
) -> None:
    """Serve on a socket that other processes may use, too.

    Args:
        endpoint: The application.
        listener: The socket, on which the parent listens already.
        report: Reports the URL, and later that no more connections are accepted.
        proxies: See `Server.run_http`.
    """
    host, port = listener.getsockname()[:2]
    server = _ReportingServer(
        endpoint,
        host,
        port,
        on_start=lambda url: report(ChildReport(url=url)),
        proxies=proxies,
    )
    server.report = report
    with suppress(KeyboardInterrupt):
        server.run([listener])


class _ReportingServer(UvicornServer):
    report: Callable[[ChildReport], None]

    async def shutdown(self, sockets: list[Any] | None = None) -> None:
        for each in self.servers:
            each.close()
        self.report(ChildReport(closed=True))
        await super().shutdown(sockets)
