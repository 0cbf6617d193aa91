"""`interlock tools`: list and describe tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from interlock.cli import completion, config_option
from interlock.cli.server_status import say_missing, say_starting, started, warn_of_broken
from interlock.cli.servers import inputs, server_option
from interlock.cli.signals import run
from interlock.cli.terminal import emit_foreign, emit_json, emit_lines, say, working

if TYPE_CHECKING:
    from interlock.config import Config
    from interlock.toolbox import Entry, ServerStatus, Toolbox
    from interlock.types import Tool

_DEEPEST = 3  # levels of members that are described
_FEW_TYPES = 4  # more alternatives are shown as "anything"


@click.command()
@click.argument(
    "name", metavar="[SERVER[:TOOL]]", required=False, shell_complete=completion.addresses
)
@server_option.server_option
@click.option(
    "--search", "query", metavar="TEXT", help="Show what a model that searches would find, and why."
)
@click.option(
    "--key", "key_id", default="", metavar="ID", help="Search the tools that a key may call."
)
@config_option.config_option
@config_option.raw_option
@config_option.json_option
def tools(
    name: str | None,
    given: str | None,
    query: str | None,
    key_id: str,
    config: Path | None,
    raw: bool,
    as_json: bool,
) -> int:
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
      interlock tools --server notes.py
      interlock tools --search 'create an issue in GitHub'
    """
    if key_id and query is None:
        raise click.UsageError("--key needs --search")
    if query is not None:
        if name is not None or given is not None:
            raise click.UsageError("--search looks through all servers of the configuration")
        return run(_search(config_option.load(config), query, key_id, as_json))
    if given is not None:
        key, only = server_option.only(given, config)
        servers = dict(only.servers)
        if name is None:
            return run(_tools(servers, as_json, bare=True))
        with server_option.bare_names(key):
            return run(_tool(servers, f"{key}:{name}", raw, as_json))
    found = config_option.load(config)
    if name is None:
        return run(_tools(inputs.answered(found).servers, as_json, ignored=len(found.ignored)))
    server, _, tool = name.partition(":")
    key, _ = config_option.find(found, server)
    chosen = {key: inputs.answered(found, [key]).servers[key]}
    return run(_tool(chosen, name, raw, as_json) if tool else _tools(chosen, as_json))


async def _search(found: Config, query: str, key_id: str, as_json: bool) -> int:
    from interlock.cli.servers.tool_search import search_all, search_as_key

    if key_id:
        return await search_as_key(found, query, key_id, as_json=as_json)
    async with started(inputs.answered(found).servers) as toolbox:
        code = await search_all(toolbox, query, as_json=as_json)
        warn_of_broken(toolbox.status.values())
        return code


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


async def _tools(
    servers: dict[str, Any], as_json: bool, ignored: int = 0, *, bare: bool = False
) -> int:
    async with started(servers) as toolbox:
        if as_json:
            emit_json(_servers_and_tools(toolbox))
        else:
            emit_lines(bare_rows(toolbox) if bare else rows(toolbox))
            if not servers and not ignored:
                say("no servers; add one with `interlock servers add NAME COMMAND`")
        if not bare:
            completion.remember(toolbox)
        found = toolbox.status.values()
        warn_of_broken(found)
        say_starting(found)
        say_missing(found)
        return int(all_failed(found) or bool(ignored and not servers))


def rows(toolbox: Toolbox) -> list[tuple[str, str, str]]:
    """Return address, state of the server and description of each tool."""
    states = toolbox.status
    return [
        (each.address, states[each.server].state, _first_line(each.tool.description))
        for each in toolbox.tools
    ]


def bare_rows(toolbox: Toolbox) -> list[tuple[str, str]]:
    """Return name and description of each tool."""
    return [(each.tool.name, _first_line(each.tool.description)) for each in toolbox.tools]


def all_failed(statuses: Iterable[ServerStatus]) -> bool:
    """Return whether servers are enabled and none of them works."""
    enabled = [status for status in statuses if status.state != "disabled"]
    return bool(enabled) and all(status.state != "ok" for status in enabled)


def describe(tool: Tool) -> str:
    """Return a tool's description, then each argument with its type and description."""
    from interlock.schema.plain import plain

    schema = plain(tool.input_schema, lenient=True)
    lines = [tool.description.strip() or tool.title or tool.name]
    lines.append("\narguments:" if schema["properties"] else "\nno arguments")
    if note := schema.get("description"):
        lines += (f"  {line.strip()}" for line in note.strip().splitlines())
    lines += _members(schema, schema, ())
    return "\n".join(lines)


def _members(schema: dict[str, Any], root: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    """Yield lines about the members of an object, and of the objects in it."""
    indent = "  " * (len(path) + 1)
    for name, about in schema.get("properties", {}).items():
        found = _followed(about, root)
        about_value = [_type_name(about, root), *_limits(found)]
        if name not in schema.get("required", ()):
            default = about.get("default", found.get("default"))
            about_value.append("optional" if default is None else f"default {_json(default)}")
        yield f"{indent}{name} ({', '.join(about_value)})"
        for line in (about.get("description") or found.get("description", "")).splitlines():
            yield f"{indent}    {line.strip()}"
        inner = _followed(found.get("items", found), root)
        reference = str(about.get("$ref") or found.get("items", {}).get("$ref") or name)
        if len(path) < _DEEPEST and reference not in path:
            yield from _members(inner, root, (*path, reference))


def _followed(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """Return the translated schema that a reference leads to, or the schema itself."""
    found: dict[str, Any] = schema
    while "$ref" in found:
        found = root["$defs"][found["$ref"].rpartition("/")[2]]
    return found


_RANGES = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
)


def _limits(schema: dict[str, Any]) -> Iterator[str]:
    """Yield what else a value must fulfil: `date-time`, `1 to 10`, `at least 3 characters`."""
    if format := schema.get("format"):
        yield str(format)
    for low, high, unit in _RANGES:
        least, most = schema.get(low), schema.get(high)
        if least is not None and most is not None:
            yield f"{least:,} to {most:,}{unit}"
        elif least is not None:
            yield f"at least {least:,}{unit}"
        elif most is not None:
            yield f"at most {most:,}{unit}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _type_name(schema: dict[str, Any], root: dict[str, Any]) -> str:
    """Return the type that a schema accepts: `integer`, `array of string`, `"a" | "b"`."""
    schema = _followed(schema, root)
    if options := schema.get("enum"):
        return " | ".join(map(_json, options))
    if options := schema.get("anyOf"):
        return " | ".join(dict.fromkeys(_type_name(each, root) for each in options))
    kind = schema["type"]
    if isinstance(kind, list):
        return "anything" if len(kind) > _FEW_TYPES else " | ".join(kind)
    if kind != "array":
        return str(kind)
    items = _type_name(schema["items"], root)
    return "array" if items == "anything" else f"array of {items}"


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
