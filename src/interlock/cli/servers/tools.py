"""`interlock tools`: list and describe tools."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from interlock.cli import completion, config_option
from interlock.cli.server_status import say_missing, say_starting, started, warn_of_broken
from interlock.cli.servers import inputs
from interlock.cli.signals import run
from interlock.cli.terminal import emit_foreign, emit_json, emit_table, say, working

if TYPE_CHECKING:
    from interlock.toolbox import Entry, ServerStatus, Toolbox
    from interlock.types import Tool


@click.command()
@click.argument(
    "name", metavar="[SERVER[:TOOL]]", required=False, shell_complete=completion.addresses
)
@config_option.config_option
@config_option.raw_option
@config_option.json_option
def tools(name: str | None, config: Path | None, raw: bool, as_json: bool) -> int:
    """List every tool by its address, with its server's state; or describe one.

    With SERVER, only that server is started. With SERVER:TOOL, prints the tool's description and
    arguments. Missing tools are listed on stderr, with the reason. Exits with 1 if servers are
    configured and none of them works.

    \b
    Example:
      interlock tools
      interlock tools time
      interlock tools time:get_current_time
      interlock tools --json | jq -r '.tools[].address'
    """
    found = config_option.load(config)
    if name is None:
        return run(_tools(inputs.answered(found).servers, as_json))
    server, _, tool = name.partition(":")
    key, _ = config_option.find(found, server)
    chosen = {key: inputs.answered(found, [key]).servers[key]}
    return run(_tool(chosen, name, raw, as_json) if tool else _tools(chosen, as_json))


async def _tool(servers: dict[str, Any], address: str, raw: bool, as_json: bool) -> int:
    from interlock.toolbox import Toolbox

    with working(address):
        async with Toolbox(servers) as toolbox:
            entry = toolbox.find(address)
    if as_json:
        emit_json(_fields(entry))
    else:
        emit_foreign(describe(entry.tool), raw=raw)
    return 0


async def _tools(servers: dict[str, Any], as_json: bool) -> int:
    async with started(servers) as toolbox:
        if as_json:
            emit_json(_servers_and_tools(toolbox))
        else:
            emit_table(rows(toolbox))
            if not servers:
                say("no servers; add one with `interlock servers add NAME COMMAND`")
        completion.remember(toolbox)
        found = toolbox.status.values()
        warn_of_broken(found)
        say_starting(found)
        say_missing(found)
        return int(all_failed(found))


def rows(toolbox: Toolbox) -> list[tuple[str, str, str]]:
    """Return address, state of the server and description of each tool."""
    states = toolbox.status
    return [
        (each.address, states[each.server].state, _first_line(each.tool.description))
        for each in toolbox.tools
    ]


def all_failed(statuses: Iterable[ServerStatus]) -> bool:
    """Return whether servers are enabled and none of them works."""
    enabled = [status for status in statuses if status.state != "disabled"]
    return bool(enabled) and all(status.state != "ok" for status in enabled)


def describe(tool: Tool) -> str:
    """Return a tool's description, then each argument with its type and description."""
    schema = tool.input_schema
    required = schema.get("required", ())
    lines = [tool.description.strip() or tool.title or tool.name]
    properties = schema.get("properties", {})
    lines.append("\narguments:" if properties else "\nno arguments")
    for name, about in properties.items():
        need = "" if name in required else ", optional"
        lines.append(f"  {name} ({_type_name(about)}{need})")
        words = about.get("description") if isinstance(about, dict) else None
        if isinstance(words, str):
            lines += (f"      {line.strip()}" for line in words.strip().splitlines())
    return "\n".join(lines)


def _type_name(schema: Any) -> str:
    """Return the type that a schema accepts: `integer`, `array of string`, `"a" | "b"`."""
    if not isinstance(schema, dict):
        return "anything"
    if isinstance(options := schema.get("enum"), list):
        return " | ".join(json.dumps(each) for each in options)
    if isinstance(reference := schema.get("$ref"), str):
        return reference.rpartition("/")[2]
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list):
            return " | ".join(dict.fromkeys(map(_type_name, options)))
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        kind = " | ".join(map(str, kind))
    return f"array of {_type_name(schema['items'])}" if "items" in schema else str(kind)


def _servers_and_tools(toolbox: Toolbox) -> dict[str, Any]:
    return {
        "servers": list(toolbox.status.values()),
        "tools": [_fields(each) for each in toolbox.tools],
    }


def _fields(entry: Entry) -> dict[str, Any]:
    return {
        "address": entry.address,
        "server": entry.server,
        "wire_name": entry.wire_name,
        "stale": entry.stale,
        **msgspec.to_builtins(entry.tool),
    }


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
