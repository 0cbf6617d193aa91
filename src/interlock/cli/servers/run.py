"""`interlock run`: serve the `Server` or `Gateway` of a Python file."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interlock.cli.log import open_log
from interlock.cli.servers import server_file
from interlock.errors import ConfigError
from interlock.text.urls import page_origin

if TYPE_CHECKING:
    from interlock.server.http.http_options import HttpKeywords


@click.command()
@click.argument("source", metavar="FILE[:NAME]")
@click.option("--http", metavar="HOST:PORT", help="Serve over HTTP; port 0 picks a free port.")
@click.option(
    "--proxies",
    multiple=True,
    metavar="NETWORK",
    help="Believe the X-Forwarded headers of proxies at this address or in this network.",
)
@click.option(
    "--cors",
    multiple=True,
    metavar="ORIGIN",
    help="Let web pages of this origin call the server, such as https://app.example.com.",
)
@click.option("--reload", is_flag=True, help="Serve the file again when it changes.")
@click.option("--child", hidden=True)
def run(
    source: str,
    http: str | None,
    proxies: tuple[str, ...],
    cors: tuple[str, ...],
    reload: bool,
    child: str | None,
) -> None:
    """Serve the Server or Gateway of a Python FILE, on stdin and stdout.

    NAME selects one of several servers, or a function that returns one. Ends when the client closes
    stdin, or on SIGINT or SIGTERM.

    \b
    Example:
      interlock run notes.py
      interlock run notes.py:server --http 127.0.0.1:8000
      interlock run notes.py --http 127.0.0.1:8000 --proxies 127.0.0.1
      interlock run notes.py --reload
    """
    if http is None and (proxies or cors):
        raise click.UsageError("--proxies and --cors are for --http")
    address = None if http is None else _address(http)
    path, name = server_file.checked(source)
    options: HttpKeywords = {"cors": _origins(cors)}
    if child is not None:
        _serve_as_child(path, name, child, options, _listed(proxies))
    elif reload:
        _reload(path, source, address, [*_repeated("proxies", proxies), *_repeated("cors", cors)])
    elif address is not None:
        open_log(logging.WARNING)  # a server logs to stderr
        server_file.load(path, name).run_http(*address, proxies=_listed(proxies), **options)
    else:
        open_log(logging.WARNING)
        from interlock.transports.pipes import take_standard_streams

        streams = take_standard_streams()  # before the file can print to stdout
        server_file.load(path, name).run_on(*streams)


def _reload(
    path: Path, source: str, address: tuple[str, int] | None, options: Sequence[str]
) -> None:
    from interlock.cli import signals
    from interlock.cli.reload import reloader

    if address is None:
        from interlock.transports.pipes import take_standard_streams

        signals.run(reloader.serve_on_stdio(path, source, take_standard_streams()))
    else:
        signals.run(reloader.serve_on_port(path, source, address, options))


def _serve_as_child(
    path: Path, name: str, child: str, options: HttpKeywords, proxies: Sequence[str]
) -> None:
    """Serve in a process that `--reload` has started.

    Args:
        path, name: The file and the name in it.
        child: The descriptors of the socket for reports and, over HTTP, of the listening socket.
        options, proxies: For HTTP.
    """
    from interlock.cli.reload.child_server import ChildReport, imported_files, report_to
    from interlock.transports.pipes import take_standard_streams

    open_log(logging.WARNING)
    link, *listening = map(int, child.split(","))
    report = report_to(link)
    streams = None if listening else take_standard_streams()
    try:
        server = server_file.load(path, name)
    except ConfigError as error:
        report(ChildReport(imported_files(), str(error)))
        raise
    report(ChildReport(imported_files()))
    if streams is not None:
        server.run_on(*streams)
        return
    listener = socket.socket(fileno=listening[0])

    from interlock.cli.reload.child_http import serve_http
    from interlock.server import Server

    serve_http(server.asgi(**options), listener, report, proxies)
    if isinstance(server, Server):
        server.close()


def _address(http: str) -> tuple[str, int]:
    host, _, port = http.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isascii() and port.isdecimal() and int(port) < 65536):
        raise click.UsageError(f"--http {http!r} is not HOST:PORT, such as 127.0.0.1:8000")
    return host, int(port)


def _repeated(option: str, values: Sequence[str]) -> list[str]:
    return [f"--{option}={each}" for each in values]


def _listed(values: tuple[str, ...]) -> list[str]:
    """Return the items of an option that may be repeated, and may have items between commas."""
    return [item.strip() for each in values for item in each.split(",") if item.strip()]


def _origins(values: tuple[str, ...]) -> list[str]:
    origins = []
    for text in _listed(values):
        found = page_origin(text)
        if found is None:  # also for "*": every page could call a server without authentication
            raise click.UsageError(f"--cors {text!r} is not an origin: write https://HOST[:PORT]")
        origins.append(found)
    return origins
