"""`interlock call`: call one tool from the command line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from interlock.cli import completion, config_option
from interlock.cli.call_lines import progress_text
from interlock.cli.servers import inputs, server_option
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_foreign, emit_json, say, warn, working
from interlock.cli.utf8_command import Utf8Command
from interlock.errors import InterlockError, InvalidArguments, RequestTimeout
from interlock.schema.annotations import Hints
from interlock.text.surrogates import repair_json

if TYPE_CHECKING:
    from interlock.config import Config, ServerConfig
    from interlock.types import CallToolResult, Content


MAX_LINES = 40  # of a program's stderr, after a failed call


@click.command(cls=Utf8Command)
@click.argument("address", metavar="[SERVER:]TOOL", shell_complete=completion.addresses)
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1, shell_complete=completion.arguments)
@click.option("--arguments", metavar="JSON", help="All arguments at once, as a JSON object.")
@server_option.server_option
@config_option.config_option
@config_option.root_option
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Longest wait without progress; by default the server's own timeout.",
)
@click.option("--yes", is_flag=True, help="Run a call that a gateway's policy would ask about.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print the request of an OpenAPI tool, credentials masked, instead of sending it.",
)
@config_option.raw_option
@config_option.json_option
def call(
    address: str,
    pairs: tuple[str, ...],
    arguments: str | None,
    given: str | None,
    config: Path | None,
    roots: tuple[Path, ...],
    timeout: float | None,
    yes: bool,
    dry_run: bool,
    raw: bool,
    as_json: bool,
) -> int:
    """Call a tool and print its result. Exits with 1 if the tool reports an error.

    A VALUE is text where the tool's schema accepts text, else JSON: numbers, true, null,
    ["lists"], {"objects": 1}. Where an API's tool accepts a file, @PATH sends a local one.
    Only the tool's own server is started.

    \b
    Example:
      interlock call time:get_current_time timezone=Asia/Tokyo
      interlock call git:git_log --arguments '{"repo_path": ".", "max_count": 3}' --json
      interlock call shop:add_photo photo=@cat.png --dry-run
      interlock call --server notes.py search query=milk
    """
    only = None
    if given is not None:
        name, only = server_option.only(given, config, roots=roots)
        address = f"{name}:{address}"
    server, colon, tool = address.partition(":")
    if not (server and colon and tool):
        raise click.UsageError(
            f"{address!r} is not a tool's address; write SERVER:TOOL, or --server COMMAND|URL|FILE"
        )
    texts, values = given_arguments(pairs, arguments)
    loaded = only or config_option.load(config, roots=roots)
    key, found = config_option.find(loaded, server)
    if dry_run:
        return run(_preview(server, tool, found, texts, values, as_json))
    answered = inputs.answered(loaded, [key])
    with server_option.bare_names(key) if only else nullcontext():
        return run(_call(answered, key, address, texts, values, timeout, yes, raw, as_json))


async def _call(
    config: Config,
    key: str,
    address: str,
    texts: dict[str, str],
    values: dict[str, Any],
    timeout: float | None,
    yes: bool,
    raw: bool,
    as_json: bool,
) -> int:
    from interlock.cli.servers.local_toolbox import command_caller, open_toolbox

    with working(address) as spinner:
        async with open_toolbox(config, key, spinner, yes=yes) as toolbox:
            entry = toolbox.find(address, command_caller())
            arguments = typed(texts, entry.tool.input_schema) | values
            for unknown in unknown_parameters(arguments, entry.tool.input_schema):
                warn(f"tool {address} {unknown}")
            server = toolbox.upstreams[entry.server]
            written = server.stderr
            try:
                result = await toolbox.call(
                    address,
                    arguments,
                    timeout=timeout,
                    progress=lambda each: spinner.note(f"{address} {progress_text(each)}"),
                    caller=command_caller(),
                )
            except InterlockError as error:
                _say_stderr(entry.server, server.stderr.removeprefix(written))
                if isinstance(error, RequestTimeout):
                    more = f"{error}; --timeout SECONDS gives it more time"
                    raise RequestTimeout(more) from None
                raise
            if result.is_error:
                _say_stderr(entry.server, server.stderr.removeprefix(written))
    if result.warning:
        warn(result.warning)
    if as_json:
        emit_json(_fields(result))
    else:
        emit_foreign(format_result(result), raw=raw)
    return int(result.is_error)


def _say_stderr(server: str, written: str) -> None:
    """Print what a program wrote to stderr during a failed call."""
    lines = [line.rstrip() for line in written.splitlines() if line.strip()]
    if lines:
        say(f"server {server!r} wrote to stderr:")
        for line in lines[-MAX_LINES:]:
            say(f"  {line}")


async def _preview(
    server: str,
    tool: str,
    config: ServerConfig,
    texts: dict[str, str],
    values: dict[str, Any],
    as_json: bool,
) -> int:
    from interlock.cli.servers.openapi import server_of
    from interlock.errors import UnknownTool

    api = server_of(server, config)
    await api.load()
    found = api.tools.by_name.get(tool)
    if found is None:
        why = api.tools.missing.get(tool)
        raise UnknownTool(f"no tool {server}:{tool}" + (f": {why}" if why else ""))
    schema = found.definition["inputSchema"]
    request = await found.preview(typed(texts, schema) | values)
    if as_json:
        emit_json(request)
        return 0
    lines = [f"{request['method']} {request['url']}"]
    lines += [f"{name}: {value}" for name, value in request["headers"]]
    if request["body"] is not None:
        lines += ["", request["body"]]
    emit("\n".join(lines))
    return 0


# Arguments


def given_arguments(
    pairs: Iterable[str], arguments: str | None
) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the texts of KEY=VALUE arguments, and the JSON values of --arguments."""
    pairs = list(pairs)
    if pairs and pairs[0].startswith("{"):
        raise click.UsageError("write --arguments before a JSON object")
    texts, values = texts_of(pairs), _object(arguments)
    if twice := sorted(texts.keys() & values.keys()):
        raise click.UsageError(f"{', '.join(twice)}: both as KEY=VALUE and in --arguments")
    return texts, values


def texts_of(pairs: Iterable[str]) -> dict[str, str]:
    """Split KEY=VALUE arguments; return the values by key."""
    texts: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise click.UsageError(f"{pair!r} is not KEY=VALUE")
        if key in texts:
            raise click.UsageError(f"{key} is given twice")
        texts[key] = value
    return texts


def _object(arguments: str | None) -> dict[str, Any]:
    if arguments is None:
        return {}
    try:
        return msgspec.json.decode(repair_json(arguments.encode()), type=dict[str, Any])
    except msgspec.ValidationError:
        raise click.UsageError("--arguments is not a JSON object") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise click.UsageError(f"--arguments is not JSON: {error}") from None


def typed(texts: dict[str, str], schema: dict[str, Any]) -> dict[str, Any]:
    """Convert the texts of arguments to JSON values: text where the schema accepts it, else JSON.

    Where the schema gives no type, a text that is valid JSON is JSON.

    Raises:
        InvalidArguments: A value is not JSON, and the schema does not accept text.
    """
    if "$ref" in schema or "allOf" in schema:
        schema = schema | (Hints(schema).merged(schema) or {})
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    return {
        key: _file(key, text[1:])
        if text.startswith("@") and _takes_file(known.get(key))
        else _value(key, text, _types(known.get(key), schema, 0))
        for key, text in texts.items()
    }


MAX_FILE_BYTES = 16 * 1024 * 1024


def _takes_file(schema: Any) -> bool:
    """Return whether a schema is that of a file argument of an OpenAPI tool."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return isinstance(properties, dict) and {"text", "base64"} <= properties.keys()


def _file(key: str, name: str) -> dict[str, str]:
    from base64 import b64encode
    from mimetypes import guess_type

    path = Path(name)
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            limit = MAX_FILE_BYTES // 2**20
            raise InvalidArguments(
                f"{key}: {path} is too large ({size / 2**20:.1f} MiB, limit {limit} MiB)"
            )
        content = path.read_bytes()
    except OSError as error:
        raise InvalidArguments(f"{key}: {path} cannot be read: {error.strerror}") from None
    value = {"base64": b64encode(content).decode(), "name": path.name}
    kind, _ = guess_type(path.name)
    return value | ({"type": kind} if kind else {})


def _value(key: str, text: str, types: set[str]) -> Any:
    if "string" in types:
        return text
    try:
        return msgspec.json.decode(repair_json(text.encode()))
    except (msgspec.DecodeError, UnicodeError):
        if not types:
            return text
        raise InvalidArguments(
            f"{key}={text!r} is not valid: the tool takes {' or '.join(sorted(types))} here"
        ) from None


_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_MAX_DEPTH = 8  # levels of nested references and alternatives that are followed


def _types(part: Any, schema: dict[str, Any], depth: int) -> set[str]:
    """Return the JSON types that a part of the schema allows; an empty set if it states none."""
    if not isinstance(part, dict) or depth > _MAX_DEPTH:
        return set()
    if "type" in part:
        named = part["type"]
        return {each for each in (named if isinstance(named, list) else [named]) if each}
    if "const" in part or isinstance(part.get("enum"), list):
        values = [part["const"]] if "const" in part else part["enum"]
        return {_KINDS.get(type(value), "object or array") for value in values}
    match str(part.get("$ref", "")).split("/"):
        case ["#", ("$defs" | "definitions") as section, name]:
            definitions = schema.get(section)
            target = definitions.get(name) if isinstance(definitions, dict) else None
            return _types(target, schema, depth + 1)
    alternatives = [
        each
        for keyword in ("anyOf", "oneOf", "allOf")
        if isinstance(part.get(keyword), list)
        for each in part[keyword]
    ]
    return set().union(*(_types(each, schema, depth + 1) for each in alternatives))


# Keywords other than `properties` that can define parameters.
_MORE_PARAMETERS = {"$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties"}


def unknown_parameters(arguments: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    """Yield a problem for each argument that the schema accepts without naming it.

    Arguments that the schema does not accept are not reported: the toolbox refuses such a call.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict) or _MORE_PARAMETERS & schema.keys():
        return
    if False in (schema.get("additionalProperties"), schema.get("unevaluatedProperties")):
        return
    unused = [name for name in properties if name not in arguments]
    for name in [each for each in arguments if each not in properties]:
        # The cutoff is low, so that "tz" finds "timezone".
        near = difflib.get_close_matches(name, unused, 1, 0.4)
        if near:
            yield f"has no parameter {name!r}; did you mean {near[0]!r}?"
        elif "additionalProperties" not in schema:
            yield f"has no parameter {name!r}"


# Results


def format_result(result: CallToolResult) -> str:
    """Return a result as text: all of its text, and a note for each block that is not text."""
    if not result.content and result.structured is not None:
        return msgspec.json.format(msgspec.json.encode(result.structured), indent=2).decode()
    return "\n".join(filter(None, map(format_block, result.content)))


def format_block(block: Content) -> str:
    """Return a block of content as text, with a note if it is not text."""
    from interlock import types

    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            return f"[{block.mime_type}, {len(block.data) * 3 // 4} bytes: see --json]"
        case types.EmbeddedResource():
            return block.resource.text or f"[resource {block.resource.uri}: see --json]"
        case types.ResourceLink():
            return f"[resource {block.uri}]"
        case types.UnknownContent():
            return f"[content of the unknown type {block.fields.get('type')!r}: see --json]"
    return "[content for a model: see --json]"


def _fields(result: CallToolResult) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(result)
    return fields
