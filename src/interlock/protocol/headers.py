"""HTTP headers that repeat parts of a message, so that proxies need not decode the message.

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
from interlock.text.quoting import echo, place
from interlock.text.urls import HTTP_TOKEN
from interlock.types import JsonObject, Tool

ANNOTATION = "x-mcp-header"
MAX_INTEGER = 2**53 - 1  # positive or negative; larger integers lose precision in many decoders

MAX_DEPTH = 32  # levels of nesting of an argument that a header repeats

# For each method with the header Mcp-Name, the member of `params` that the header repeats.
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

# Keywords of JSON Schema that contain schemas, keyed by names that the schema's author chose.
_MAPS = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))
# Keywords of JSON Schema that contain data, not schemas.
_DATA = frozenset(("const", "default", "enum", "examples", "required", "dependentRequired"))
_CONTAINERS = (dict, list)

# A part of a schema, the path of the argument, and whether the part describes the argument itself.
_Node: TypeAlias = tuple[JsonObject | list[Any], tuple[str, ...], bool]

# Values


def encode_value(value: str) -> str:
    """Encode any text as a header value.

    Raises:
        ValueError: The text has half of a surrogate pair, which UTF-8 cannot encode.
    """
    if _PLAIN.fullmatch(value) and not (value.startswith(_BASE64) and value.endswith(_END)):
        return value
    return f"{_BASE64}{base64.b64encode(value.encode()).decode()}{_END}"


def decode_value(text: str) -> str:
    """Decode a header value that `encode_value` encoded.

    Raises:
        ValueError: The text is marked as Base64, but is not valid Base64 of UTF-8 text.
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
    """Return the arguments of a tool that HTTP headers repeat.

    Returns:
        The path of each argument, keyed by the header's name as the schema writes it. No two
        names differ in case only.

    Raises:
        SchemaError: An annotation breaks the specification. A client must not use the tool over
            HTTP.
    """
    found: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    # Use a stack, because a schema may be nested deeper than Python's recursion limit. The stack
    # has iterators, because a list of millions of arguments with their paths would be too large.
    levels: list[Iterator[_Node]] = [iter([(schema, (), True)])]
    while levels:
        for node, path, reachable in levels[-1]:
            if isinstance(node, dict) and ANNOTATION in node:
                name = _check(node, path, reachable)
                if name.lower() in taken:
                    raise SchemaError(f"{ANNOTATION} {echo(name)} is used twice; rename one")
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
    """Yield the non-empty objects and lists that a node directly contains."""
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
        raise SchemaError(f"{ANNOTATION} of {where} is not a valid header name: {echo(name)}")
    if not reachable or not path:
        raise SchemaError(f"{ANNOTATION} {echo(name)} must be in a plain argument, not in {where}")
    if node.get("type") not in ("string", "integer", "boolean"):
        raise SchemaError(f"{ANNOTATION} {echo(name)}: {where} is not a string, integer or boolean")
    return name


class ToolHeaders:
    """The header annotations of one server's tools.

    They are kept apart from the cached list of tools, which may expire before a tool is called.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[str, ...]]] = {}

    def learn(self, tool: Tool) -> None:
        """Replace a tool's annotations by those in its input schema.

        Raises:
            SchemaError: An annotation is not valid; the tool's stored annotations were removed.
        """
        self._known.pop(tool.name, None)
        if found := annotated(tool.input_schema):
            self._known[tool.name] = {f"Mcp-Param-{name}": path for name, path in found.items()}

    def replace(self, other: ToolHeaders) -> None:
        """Replace all annotations with a copy of `other`'s."""
        self._known = other._known.copy()

    def __contains__(self, tool: object) -> bool:
        return tool in self._known

    def of(self, tool: str, arguments: JsonObject | Raw) -> dict[str, str]:
        """Return the headers for a call, encoded: {"Mcp-Param-Region": "eu"}.

        No header is sent for an argument that is missing or null, or whose value the specification
        does not allow in a header: a fraction, an integer beyond 2^53 - 1, a list or an object.
        Servers that check headers refuse calls with such a value.

        Args:
            tool: The tool's name; an unknown tool has no headers.
            arguments: The arguments of the call, encoded or not.
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
