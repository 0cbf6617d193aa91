"""The settings of a server that somebody agrees to beside the program or the address."""

from __future__ import annotations

from collections.abc import Iterable

from interlock.config.servers import AUTO, HttpServer, OpenApiConfig, ServerConfig, StdioServer


def consents(server: ServerConfig) -> list[str]:
    """Return a line for each setting that grants something or sends something along."""
    tools, lines = server.tools, []
    if tools.approved:
        lines.append(f"runs without asking you: {_listed(tools.approved)}")
    reading = [
        *tools.risk.read,
        *(name for name, risk in tools.risk.by_tool.items() if risk == "read"),
    ]
    if reading:
        lines.append(f"is said to only read: {_listed(reading)}")
    if tools.idempotent:
        lines.append(f"may be called twice after a lost answer: {_listed(tools.idempotent)}")
    if tools.override:
        lines.append(f"has its own descriptions for: {_listed(tools.override)}")
    if server.asks and server.asks != AUTO:
        lines.append(f"may ask: {_listed(server.asks)}")
    if isinstance(server, StdioServer) and server.env_file is not None:
        lines.append(f"gets the variables of the file {server.env_file}")
    if isinstance(server, HttpServer | OpenApiConfig) and server.headers:
        lines.append(f"gets the headers: {_listed(server.headers)}")
    return lines


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
