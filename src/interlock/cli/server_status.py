"""Starts servers, and shows the user their status."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from interlock.cli.terminal import safe_line, say, warn, working

if TYPE_CHECKING:
    from interlock.config import ServerConfig
    from interlock.toolbox import ServerStatus, Toolbox


IDLE_TIMEOUT = 10.0  # seconds; if no server becomes ready or fails for so long, the list is shown


@asynccontextmanager
async def started(servers: Mapping[str, ServerConfig]) -> AsyncIterator[Toolbox]:
    """Start the servers; stop waiting once none becomes ready or fails for `IDLE_TIMEOUT`.

    A single server gets its whole connect timeout.
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
    """Start the servers, close them again, and return their status."""
    async with started(servers) as toolbox:
        return list(toolbox.status.values())


def is_broken(status: ServerStatus) -> bool:
    """Return whether an enabled server has failed; a server that is starting has not."""
    return status.state not in ("ok", "disabled", "starting")


def status_rows(found: Iterable[ServerStatus]) -> list[tuple[str, ...]]:
    """Return a row for each server: name, state, revision, start time, tools, its own name."""
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
    """Return a server's state and the reason for it, on one line."""
    return f"server {status.name!r} {status.state}: {status.reason}"


def warn_of_broken(found: Iterable[ServerStatus]) -> None:
    """Print a warning for each server that does not work, with the reason and the remedy."""
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
