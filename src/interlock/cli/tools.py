"""`interlock tools`: what there is to call."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from interlock.cli import sources
from interlock.cli.running import run
from interlock.cli.states import tell_missing, warn_of_broken
from interlock.cli.terminal import emit_json, emit_table, say, working

if TYPE_CHECKING:
    from interlock.member import ServerStatus
    from interlock.toolbox import Toolbox


@click.command()
@sources.config_option
@sources.json_option
def tools(config: Path | None, as_json: bool) -> int:
    """List every tool by its address, with its server's state.

    What is missing is told on stderr, with the reason. Exits with 1 if servers are configured
    and none of them works.

    \b
    Example:
      interlock tools
      interlock tools --json | jq -r '.tools[].address'
    """
    return run(_tools(sources.load(config).servers, as_json))


async def _tools(servers: dict[str, Any], as_json: bool) -> int:
    from interlock.toolbox import Toolbox

    async with AsyncExitStack() as stack:
        with working("starting servers"):
            toolbox = await stack.enter_async_context(Toolbox(servers))
        if as_json:
            emit_json(_described(toolbox))
        else:
            emit_table(rows(toolbox))
            if not servers:
                say("no servers: add one with `interlock servers add NAME COMMAND`")
        found = toolbox.status.values()
        warn_of_broken(found)
        tell_missing(found)
        return int(all_failed(found))


def rows(toolbox: Toolbox) -> list[tuple[str, str, str]]:
    """Return address, state of the server and description of each tool."""
    states = toolbox.status
    return [
        (each.address, states[each.server].state, _first_line(each.tool.description))
        for each in toolbox.tools
    ]


def all_failed(statuses: Iterable[ServerStatus]) -> bool:
    """Whether there are servers that should work, and none does."""
    wanted = [status for status in statuses if status.state != "disabled"]
    return bool(wanted) and all(status.state != "ok" for status in wanted)


def _described(toolbox: Toolbox) -> dict[str, Any]:
    return {
        "servers": list(toolbox.status.values()),
        "tools": [
            {
                "address": each.address,
                "server": each.server,
                "wire_name": each.wire_name,
                "stale": each.stale,
                **msgspec.to_builtins(each.tool),
            }
            for each in toolbox.tools
        ],
    }


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
