"""`interlock openapi`: look at OpenAPI documents, and at the tools made of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interlock.cli import config_option
from interlock.cli.database_options import database_of
from interlock.cli.signals import run
from interlock.cli.terminal import emit_json, emit_lines, emit_table, safe_line, say, warn
from interlock.errors import ConfigError

if TYPE_CHECKING:
    from interlock.config import Config
    from interlock.openapi.document import Document
    from interlock.openapi.review import Change, State
    from interlock.openapi.server import OpenApiServer

_ENDINGS = (".json", ".yaml", ".yml")
MANY_TOOLS = 40  # with more tools, models choose badly
MANY_TAGS = 20  # tags that a message lists


@click.group()
def openapi() -> None:
    """Look at OpenAPI documents, and at the tools made of them.

    A DOCUMENT is a path or an https URL. A SERVER is one of the mcpServers file, with a member
    "openapi".

    \b
    Example:
      interlock openapi list shop.yaml --search order
      interlock openapi init shop.yaml
      interlock openapi check shop
    """


@openapi.command("list")
@click.argument("name", metavar="DOCUMENT|SERVER")
@click.option("--tag", metavar="TAG", help="Only operations with this tag.")
@click.option("--method", metavar="METHOD", help="Only operations with this method.")
@click.option(
    "--search", metavar="TEXT", help="Only operations with TEXT in their id, path or summary."
)
@config_option.config_option
@config_option.json_option
def list_(
    name: str,
    tag: str | None,
    method: str | None,
    search: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """List the operations of a document, with the tools that call them.

    With --json for a server, prints each tool with its operation, and where each argument is sent.

    \b
    Example:
      interlock openapi list shop.yaml --method GET
      interlock openapi list shop --json
    """
    server, document = _loaded(name, config)
    if as_json and server is not None:
        emit_json({"tools": _tools(server)})
        return
    from interlock.openapi import review

    exposed: dict[str, list[str]] = {}
    if server is not None:
        for tool, each in server.tools.by_name.items():
            exposed.setdefault(each.plan.operation.key, []).append(tool)
    rows = [
        {**review.summary(document, key), "tools": exposed.get(key, [])}
        for key in document.keys
        if method is None or key.startswith(f"{method.upper()} ")
    ]
    rows = [
        row
        for row in rows
        if (tag is None or tag in row.get("tags", ())) and (not search or _has(row, search))
    ]
    if as_json:
        emit_json({"operations": rows})
        return
    emit_lines(map(_cells, rows))
    if not rows:
        say("no operations")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["operation"],
        row.get("operationId", ""),
        row.get("summary", "") or row.get("problem", ""),
        " ".join(row.get("security", ())),
        " ".join(row["tools"]),
    )


def _has(row: dict[str, Any], search: str) -> bool:
    texts = (row["operation"], row.get("operationId", ""), row.get("summary", ""))
    return any(search.lower() in text.lower() for text in texts)


def _tools(server: OpenApiServer) -> list[dict[str, Any]]:
    return [
        {
            "tool": name,
            "operation": tool.plan.operation.operation_id or tool.plan.operation.key,
            "method": tool.plan.operation.method,
            "path": tool.plan.operation.path,
            "arguments": tool.plan.arguments,
        }
        for name, tool in server.tools.by_name.items()
    ]


@openapi.command()
@click.argument("document", metavar="DOCUMENT")
@click.option("--write", is_flag=True, help="Also operations that may change something.")
@click.option("--tag", metavar="TAG", default="", help="Only operations with this tag.")
def init(document: str, write: bool, tag: str) -> None:
    """Print an entry for the mcpServers file, to edit: the operations that only read, as tools.

    Leaves out deprecated operations, and those about tokens, users' rights and the like. Remove
    the tools that models do not need, and check baseUrl before you use it.

    \b
    Example:
      interlock openapi init shop.yaml > mcp.json
      interlock openapi init https://shop.example/openapi.json --tag orders
    """
    from interlock.openapi import review

    found = run(_read(document))
    known = review.tags(found)
    if tag and tag not in known:
        raise click.BadParameter(_unknown_tag(tag, known), param_hint="--tag")
    proposal = review.entry(found, document, writes=write, tag=tag)
    entry = proposal.entry
    emit_json({"mcpServers": {proposal.server: entry}})
    for key, why in proposal.left_out.items():
        say(f"left out: {safe_line(key)}: {why}")
    tools, auth = entry["openapi"]["tools"], entry["openapi"].get("auth", {})
    say(f"{len(tools)} tools; check baseUrl {safe_line(entry['openapi']['baseUrl'])}")
    if len(tools) > MANY_TOOLS:
        say(f"models choose badly among more than {MANY_TOOLS}: remove what they do not need")
    for line in review.schemes_in_words(found, auth):
        say(f"auth {safe_line(line)}; remove it if you have no such credential")


def _unknown_tag(tag: str, known: list[str]) -> str:
    some = f"tags: {', '.join(known[:MANY_TAGS])}" if known else "no operation has one"
    more = ", …" if len(known) > MANY_TAGS else ""
    return safe_line(f"no operation has the tag {tag!r}; {some}{more}")


@openapi.command()
@click.argument("name", metavar="SERVER|DOCUMENT")
@config_option.config_option
@config_option.json_option
def check(name: str, config: Path | None, as_json: bool) -> int:
    """Report problems: missing tools, missing credentials, delicate operations, sizes.

    With a DOCUMENT, checks every operation. Exits with 1 if a tool is missing, or if the document
    of a server cannot be read.

    \b
    Example:
      interlock openapi check shop
      interlock openapi check shop.yaml --json
    """
    from interlock.openapi import review
    from interlock.openapi.plan import compile_tools
    from interlock.openapi.selection import ToolSelection

    server, document = _loaded(name, config)
    if server is None:
        every = {key: ToolSelection(operation=key) for key in document.keys}
        plans, missing = compile_tools(document, every)
        found = list(review.check(document, plans, missing))
    else:
        plans = {name: tool.plan for name, tool in server.tools.by_name.items()}
        missing = server.tools.missing
        found = list(review.check(document, plans, missing))
        found += review.check_credentials(plans, server.tools.identity)
        found += [review.Finding("note", "", f"drift: {line}") for line in server.kept_drift]
        if server.source.stale:
            stale = f"read from a stale copy: {server.source.stale}"
            found.insert(0, review.Finding("error", "", stale))
    has_errors = any(each.level == "error" for each in found)
    if as_json:
        emit_json({"findings": found})
        return int(has_errors)
    emit_table((each.level, each.tool, each.text) for each in found)
    say(f"{len(plans)} tools, {len(missing)} missing")
    return int(has_errors)


@openapi.command()
@click.argument("old", metavar="SERVER|OLD")
@click.argument("new", metavar="[NEW|SERVER]", required=False)
@config_option.config_option
@config_option.json_option
def diff(old: str, new: str | None, config: Path | None, as_json: bool) -> int:
    """Compare two states of a document, breaking changes first.

    With a SERVER alone, compares its tools with the definitions that a gateway's operator accepted,
    or else with the document as interlock last read it. With a SERVER as the second argument,
    prints only changes that affect its tools. Exits with 1 if a change is breaking.

    \b
    Example:
      interlock openapi diff shop
      interlock openapi diff old.yaml new.yaml
      interlock openapi diff old.yaml shop
    """
    from interlock.openapi import review

    if new is None:
        found = _changes_since(old, config)
    elif _is_document(new):
        found = review.changes(run(_read(old)), run(_read(new)))
    else:
        server = _server(new, config)
        before, _ = server.plans(run(_read(old)))
        after, missing = server.plans(run(server.source.read()))
        found = review.changes_of_tools(review.states(before), review.states(after), missing)
    if as_json:
        emit_json({"changes": found})
    else:
        emit_table(
            ("breaking" if each.is_breaking else "", each.subject, each.text) for each in found
        )
        if not found:
            say("no changes")
    return int(any(each.is_breaking for each in found))


def _changes_since(name: str, config: Path | None) -> list[Change]:
    from interlock.openapi import review
    from interlock.text.timestamps import rfc3339

    if _is_document(name):
        raise click.UsageError(f"{name} is a document; name the one to compare it with, too")
    server = _server(name, config)
    before = run(_accepted(name, config_option.load(config)))
    basis = "the definitions that were accepted"
    if not before:
        kept_at, copy = server.source.kept_at, run(server.source.copy())
        if copy is None or kept_at is None:
            raise ConfigError(
                f"interlock has not read the document of {name!r} before; "
                f"compare it with a file: interlock openapi diff OLD {name}"
            )
        before = review.states(server.plans(copy)[0])
        basis = f"the document of {rfc3339(int(kept_at * 1e6))}"
    after, missing = server.plans(run(server.source.read()))
    say(f"{len(after)} tools, compared with {basis}")
    return review.changes_of_tools(before, review.states(after), missing)


async def _accepted(name: str, config: Config) -> dict[str, State]:
    """Return the definitions of a server that a gateway's operator has accepted, if any."""
    import msgspec

    from interlock.openapi import review
    from interlock.store.database import location
    from interlock.store.database.database import open_database
    from interlock.store.pins import PinStore

    place = database_of(config)
    file = location.find(place)
    if isinstance(file, Path) and not file.exists():
        return {}
    database = await open_database(place)
    try:
        pins = await PinStore(database).list(name)
    finally:
        await database.close()
    accepted = {pin.name: pin.definition for pin in pins if pin.kind == "tool"}
    states = {
        tool: review.pinned_state(msgspec.json.decode(text))
        for tool, text in accepted.items()
        if text
    }
    return {tool: state for tool, state in states.items() if state is not None}


# Documents and servers


def _loaded(name: str, config: Path | None) -> tuple[OpenApiServer | None, Document]:
    """Return a configured server and its document, or None and the document at a path or URL."""
    if _is_document(name):
        return None, run(_read(name))
    server = _server(name, config)
    return server, run(_load(server))


def _is_document(name: str) -> bool:
    return "://" in name or name.endswith(_ENDINGS) or Path(name).is_file()


def _server(name: str, config: Path | None) -> OpenApiServer:
    return server_of(name, config_option.find(config_option.load(config), name)[1])


async def _read(place: str) -> Document:
    from interlock.config.openapi_reading import document_problem
    from interlock.openapi.source import Source

    if problem := document_problem(place):
        raise ConfigError(f"document {place!r} {problem}")
    return await Source(place, {}, place).read()


async def _load(server: OpenApiServer) -> Document:
    document = await server.read_document()
    for line in server.missing:
        warn(line)
    return document


def server_of(name: str, server: Any) -> OpenApiServer:
    """Return the server of a configured API.

    Raises:
        ConfigError: The server is of another kind, or a variable is not set.
    """
    from interlock.config import OpenApiConfig
    from interlock.openapi.server import OpenApiServer

    if not isinstance(server, OpenApiConfig):
        raise ConfigError(f'server {name!r} has no member "openapi": see `interlock servers list`')
    return OpenApiServer.from_config(server, os.environ, name=name)
