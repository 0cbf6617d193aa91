"""Headers that repeat what a message says, so that proxies need not read it.

Spec 2026-07-28: basic/transports, "Request headers", and server/tools, "x-mcp-header".
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

from interlock.errors import SchemaError
from interlock.quoting import echo, place
from interlock.types import JsonObject, Tool
from interlock.urls import HTTP_TOKEN

ANNOTATION = "x-mcp-header"
MAX_INTEGER = 2**53 - 1  # of either sign; JSON of many languages has no larger ones

MAX_DEPTH = 32  # of an argument that a header repeats, inside other arguments

# Methods whose header Mcp-Name repeats a member of `params`.
NAMES = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

_PLAIN = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_BASE64, _END = "=?base64?", "?="

# Keywords of JSON Schema whose members are schemas with names of the author's own.
_MAPS = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))
# ... and those that hold no schema at all.
_DATA = frozenset(("const", "default", "enum", "examples", "required", "dependentRequired"))
_CONTAINERS = (dict, list)

# A part of a schema; the argument it describes, or that it is within; whether it describes it.
_Node: TypeAlias = tuple[JsonObject | list[Any], tuple[str, ...], bool]

# Values


def encode_value(value: str) -> str:
    """Write a value so that any text fits into a header and comes back the same.

    Raises:
        ValueError: It has half of a surrogate pair, which no UTF-8 can carry.
    """
    if _PLAIN.fullmatch(value) and not (value.startswith(_BASE64) and value.endswith(_END)):
        return value
    return f"{_BASE64}{base64.b64encode(value.encode()).decode()}{_END}"


def decode_value(text: str) -> str:
    """Read a value that was written by `encode_value`.

    Raises:
        ValueError: It is marked as Base64 and is not, or is not UTF-8.
    """
    whole = len(_BASE64) + len(_END)
    if len(text) < whole or not text.startswith(_BASE64) or not text.endswith(_END):
        return text
    inner = text[len(_BASE64) : -len(_END)]
    try:
        decoded = base64.b64decode(inner, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    if base64.b64encode(decoded).decode() != inner:
        raise ValueError("not the canonical Base64")
    return decoded.decode()


# Arguments


def annotated(schema: JsonObject) -> dict[str, tuple[str, ...]]:
    """Find the arguments of a tool that headers repeat.

    Returns:
        Paths of members of the arguments, by header name as it is written in the schema.
        No two names differ in their case only.

    Raises:
        SchemaError: An annotation that the specification forbids. Over HTTP a client must not
            use such a tool.
    """
    found: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    # A stack, as a server may nest deeper than Python recurses; of iterators, as it may give
    # millions of arguments, each of which would have a path.
    levels: list[Iterator[_Node]] = [iter([(schema, (), True)])]
    while levels:
        for node, path, reachable in levels[-1]:
            if isinstance(node, dict) and ANNOTATION in node:
                name = _check(node, path, reachable)
                if name.lower() in taken:
                    raise SchemaError(f"{ANNOTATION} {echo(name)} is there twice")
                taken.add(name.lower())
                found[name] = path
            levels.append(_within(node, path, reachable))
            break
        else:
            levels.pop()
    return found


def _within(
    node: JsonObject | list[Any], path: tuple[str, ...], reachable: bool
) -> Iterator[_Node]:
    """Give the objects and lists right inside of one, but for empty ones."""
    if isinstance(node, list):
        yield from ((each, path, False) for each in node if each and isinstance(each, _CONTAINERS))
        return
    for key, value in node.items():
        if key in _MAPS and isinstance(value, dict):
            plain = reachable and key == "properties" and len(path) < MAX_DEPTH
            for member, inner in value.items():
                if inner and isinstance(inner, _CONTAINERS):
                    yield inner, (*path, member) if plain else path, plain
        elif value and isinstance(value, _CONTAINERS) and key not in _DATA and key != ANNOTATION:
            yield value, path, False


def _check(node: JsonObject, path: tuple[str, ...], reachable: bool) -> str:
    name = node[ANNOTATION]
    where = place([*path]) or "the schema itself"
    if not isinstance(name, str) or not HTTP_TOKEN.fullmatch(name):
        raise SchemaError(f"{ANNOTATION} of {where} is no name of a header: {echo(name)}")
    if not reachable or not path:
        raise SchemaError(f"{ANNOTATION} {echo(name)} stands where no plain argument is: {where}")
    if node.get("type") not in ("string", "integer", "boolean"):
        raise SchemaError(f"{ANNOTATION} {echo(name)}: {where} is no string, integer or boolean")
    return name


class ToolHeaders:
    """What a client knows of the annotations of a server's tools.

    It outlives the list of tools, whose time may be over when a tool is called.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[str, ...]]] = {}

    def learn(self, tool: Tool) -> None:
        """Remember the annotations of a tool, and nothing else that was known of it.

        Raises:
            SchemaError: One is not valid; nothing is known of the tool now.
        """
        self._known.pop(tool.name, None)
        if found := annotated(tool.input_schema):
            self._known[tool.name] = {f"Mcp-Param-{name}": path for name, path in found.items()}

    def replace(self, other: ToolHeaders) -> None:
        """Know what another one knows, and nothing else."""
        self._known = other._known.copy()

    def __contains__(self, tool: object) -> bool:
        return tool in self._known

    def of(self, tool: str, arguments: JsonObject | Raw) -> dict[str, str]:
        """Give the headers for a call, encoded: {"Mcp-Param-Region": "eu"}.

        An argument that is missing or null has no header. Nor has a value of which the
        specification says no spelling: a fraction, an integer beyond 2^53 - 1, a list, an
        object. A server that checks refuses those.

        Args:
            tool: Its name; one that is not known has no headers.
            arguments: Of the call; they may be encoded already.
        """
        known = self._known.get(tool)
        if not known:
            return {}
        given = msgspec.json.decode(arguments) if isinstance(arguments, Raw) else arguments
        headers = {}
        for header, path in known.items():
            text = _spelling(_at(given, path))
            if text is not None:
                headers[header] = encode_value(text)
        return headers


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for member in path:
        arguments = arguments.get(member) if isinstance(arguments, dict) else None
    return arguments


def _spelling(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) and -MAX_INTEGER <= value <= MAX_INTEGER:
        return str(int(value)) if value == int(value) else None
    return None
