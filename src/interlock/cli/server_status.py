"""How servers are, and what a person is told of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from interlock.cli.terminal import safe_line, say, warn, working

if TYPE_CHECKING:
    from interlock.config import ServerConfig
    from interlock.toolbox import ServerStatus


async def statuses(servers: Mapping[str, ServerConfig]) -> list[ServerStatus]:
    """Start the servers, note how they are, and end them."""
    from interlock.toolbox import Toolbox

    with working("starting servers"):
        async with Toolbox(servers) as toolbox:
            return list(toolbox.status.values())


def is_broken(status: ServerStatus) -> bool:
    """Whether it should work and does not; one that is still starting may."""
    return status.state not in ("ok", "disabled", "starting")


def status_rows(found: Iterable[ServerStatus]) -> list[tuple[str, ...]]:
    """Return name, state, revision, time of start, number of tools and the server's own name."""
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
    """Say in one line how a server is, and why."""
    return f"server {status.name!r} {status.state}: {status.reason}"


def warn_of_broken(found: Iterable[ServerStatus]) -> None:
    """Say which servers are not there, why, and what can be done about it."""
    for each in found:
        if is_broken(each):
            warn(problem_of(each))


def tell_missing(found: Iterable[ServerStatus]) -> None:
    """Say which tools are missing, and why."""
    for each in found:
        for line in each.missing:
            say(f"missing: server {each.name!r}: {safe_line(line)}")


def tell_dropped(found: Iterable[ServerStatus]) -> None:
    """Say which messages of servers were of no use."""
    for each in found:
        if each.dropped:
            reasons = ", ".join(f"{times} x {reason}" for reason, times in each.dropped.items())
            say(f"dropped: messages of server {each.name!r}: {reasons}")
