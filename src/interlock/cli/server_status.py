"""The status of servers, and the lines about it for the user."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from interlock.cli.terminal import safe_line, say, warn, working

if TYPE_CHECKING:
    from interlock.config import ServerConfig
    from interlock.toolbox import ServerStatus, Toolbox


IDLE_TIMEOUT = 10.0  # seconds in which no server becomes ready or fails; then the list is shown


@asynccontextmanager
async def started(servers: Mapping[str, ServerConfig]) -> AsyncIterator[Toolbox]:
    """Start the servers; a slow one delays the others by `IDLE_TIMEOUT` at most.

    A single server has its whole connect timeout.
    """
    from interlock.toolbox import Toolbox

    toolbox = Toolbox(servers)
    enabled = sum(server.enabled for server in servers.values())
    try:
        with working("starting servers"):
            await toolbox.open(idle_timeout=IDLE_TIMEOUT if enabled > 1 else None)
        yield toolbox
    finally:
        await toolbox.close()


async def statuses(servers: Mapping[str, ServerConfig]) -> list[ServerStatus]:
    """Start the servers, return their status, and close them."""
    async with started(servers) as toolbox:
        return list(toolbox.status.values())


def is_broken(status: ServerStatus) -> bool:
    """Return whether an enabled server does not work; a starting server may still work."""
    return status.state not in ("ok", "disabled", "starting")


def status_rows(found: Iterable[ServerStatus]) -> list[tuple[str, ...]]:
    """Return name, state, revision, start time, number of tools and the server's own name."""
    return [
        (
            each.name,
            each.state,
            each.revision or "-",
            f"{each.start_seconds:.2f} s" if each.start_seconds else "-",
            f"{each.tools} tools",
            each.server_info,
        )
        for each in found
    ]


def problem_of(status: ServerStatus) -> str:
    """Return the state of a server and its reason, in one line."""
    return f"server {status.name!r} {status.state}: {status.reason}"


def warn_of_broken(found: Iterable[ServerStatus]) -> None:
    """Warn of each server that does not work, with the reason and the remedy."""
    for each in found:
        if is_broken(each):
            warn(problem_of(each))


def say_starting(found: Iterable[ServerStatus]) -> None:
    """Print on stderr which servers are still starting."""
    for each in found:
        if each.state == "starting":
            name = shlex.quote(each.name)
            say(f"still starting: server {each.name!r}; wait for it with: interlock tools {name}")


def say_missing(found: Iterable[ServerStatus]) -> None:
    """Print on stderr which tools of the servers are missing, and why."""
    for each in found:
        for line in each.missing:
            say(f"missing: server {each.name!r}: {safe_line(line)}")


def say_dropped(found: Iterable[ServerStatus]) -> None:
    """Print on stderr how many messages of the servers were dropped, and why."""
    for each in found:
        if each.dropped:
            reasons = ", ".join(f"{times} x {reason}" for reason, times in each.dropped.items())
            say(f"dropped messages of server {each.name!r}: {reasons}")
