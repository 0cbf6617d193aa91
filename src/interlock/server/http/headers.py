"""Headers that repeat what the body says, so that proxies need not read it. They must agree.

Spec 2026-07-28: basic/transports, "Request headers", and server/tools, "x-mcp-header".
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from interlock.envelope import Envelope
from interlock.errors import ParseError, SchemaError
from interlock.revisions import HEADER_MISMATCH, INVALID_PARAMS
from interlock.server.http.replies import Refusal
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.server.http.exchange import Exchange

ANNOTATION = "x-mcp-header"
MAX_INTEGER = 2**53 - 1

# Methods whose header Mcp-Name repeats a member of `params`.
NAMES = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "task_id",
    "tasks/update": "task_id",
    "tasks/cancel": "task_id",
}

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_INTEGER = re.compile(r"(-?\d{1,16})(?:\.0+)?")
_PLAIN = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_ROUTING = frozenset((b"mcp-protocol-version", b"mcp-method", b"mcp-name"))

# Values


def encode_value(value: str) -> str:
    """Write a value so that any text fits into a header and comes back the same."""
    if _PLAIN.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decode_value(text: str) -> str:
    """Read a value that was written by `encode_value`.

    Raises:
        ValueError: It is marked as Base64 and is not, or is not UTF-8.
    """
    if not text.startswith("=?base64?") or not text.endswith("?=") or len(text) < 11:
        return text
    inner = text[9:-2]
    try:
        decoded = base64.b64decode(inner, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    if base64.b64encode(decoded).decode() != inner:
        raise ValueError("not the canonical Base64")
    return decoded.decode()


# Method and name


class Params(Struct, gc=False):
    """What the headers of a request repeat, and its metadata."""

    meta: Raw | UnsetType = field(name="_meta", default=UNSET)
    name: Any = UNSET
    uri: Any = UNSET
    task_id: Any = field(name="taskId", default=UNSET)
    arguments: Raw | UnsetType = UNSET


_decode_params = msgspec.json.Decoder(Params).decode


def params_of(message: Envelope) -> Params:
    """Decode what the checks need.

    Raises:
        ParseError: `params` is not an object.
    """
    if message.params is UNSET:
        return Params()
    try:
        return _decode_params(message.params)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ParseError(f"params: {error}", INVALID_PARAMS) from None


def check(exchange: Exchange, method: str, params: Params, version: str) -> None:
    """Compare the headers of every modern request.

    Raises:
        Refusal: 400, -32020; one is missing, differs, or is there twice.
    """
    get = exchange.headers.get  # most values are equal as they are, without blanks around them
    if (
        get(b"mcp-protocol-version") != version.encode()
        and exchange.header(b"mcp-protocol-version") != version
    ):
        raise _mismatch("MCP-Protocol-Version", "_meta")
    if get(b"mcp-method") != method.encode() and exchange.header(b"mcp-method") != method:
        raise _mismatch("Mcp-Method", "method")
    member = NAMES.get(method)
    if member is not None:
        name = getattr(params, member)
        if not _is_plainly(get(b"mcp-name"), name) and _value(exchange, b"mcp-name") != name:
            raise _mismatch("Mcp-Name", f"params.{'taskId' if member == 'task_id' else member}")
    if exchange.repeated:
        for name in exchange.repeated:
            if name in _ROUTING or name.startswith(b"mcp-param-"):
                raise Refusal(400, f"header given twice: {name.decode()}", HEADER_MISMATCH)


def _is_plainly(header: bytes | None, name: object) -> bool:
    """Whether a header is a name as it is, as most are."""
    return (
        isinstance(name, str)
        and name.isascii()
        and header == name.encode()
        and not name.startswith("=?")
    )


def _value(exchange: Exchange, name: bytes) -> str | None:
    text = exchange.header(name)
    if text is None:
        return None
    try:
        return decode_value(text)
    except ValueError as error:
        raise Refusal(400, f"{name.decode()}: {error}", HEADER_MISMATCH) from None


def _mismatch(header: str, member: str) -> Refusal:
    return Refusal(400, f"header {header} does not equal {member} of the body", HEADER_MISMATCH)


# Arguments


def annotated(schema: JsonObject) -> dict[str, tuple[str, ...]]:
    """Find the arguments that headers repeat: paths of members by lower-case name.

    Raises:
        SchemaError: An annotation that the specification forbids.
    """
    found: dict[str, tuple[str, ...]] = {}
    _collect(schema, (), True, found)
    return found


def _collect(
    node: Any, path: tuple[str, ...], reachable: bool, found: dict[str, tuple[str, ...]]
) -> None:
    if isinstance(node, list):
        for each in node:
            _collect(each, path, False, found)
        return
    if not isinstance(node, dict):
        return
    name = node.get(ANNOTATION)
    if name is not None:
        where = ".".join(path) or "the schema itself"
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise SchemaError(f"{ANNOTATION} of {where} is not a header name")
        if not reachable or not path:
            raise SchemaError(f"{ANNOTATION} {name!r} stands where no plain argument is")
        if node.get("type") not in ("string", "integer", "boolean"):
            raise SchemaError(f"{ANNOTATION} {name!r}: {where} is no string, integer or boolean")
        if name.lower() in found:
            raise SchemaError(f"{ANNOTATION} {name!r} is there twice")
        found[name.lower()] = path
    for key, value in node.items():
        if key == "properties" and isinstance(value, dict):
            for property, inner in value.items():
                _collect(inner, (*path, property), reachable, found)
        elif key not in ("const", "default", "enum", "examples"):
            _collect(value, path, False, found)


class ToolHeaders:
    """The annotations of tools, found once for each definition."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[JsonObject, dict[bytes, tuple[str, ...]]]] = {}

    def of(self, tool: str, schema: JsonObject) -> dict[bytes, tuple[str, ...]]:
        """Give paths of arguments by header."""
        known = self._known.get(tool)
        if known is None or known[0] is not schema:
            self._known[tool] = known = (schema, _by_header(schema))
        return known[1]


def _by_header(schema: JsonObject) -> dict[bytes, tuple[str, ...]]:
    try:
        found = annotated(schema)
    except SchemaError:
        return {}  # clients leave out such a tool, or its headers
    return {b"mcp-param-" + name.encode(): path for name, path in found.items()}


def check_params(
    exchange: Exchange, expected: dict[bytes, tuple[str, ...]], arguments: Raw | UnsetType
) -> None:
    """Compare the headers of a tool's annotated arguments.

    Raises:
        Refusal: 400, -32020.
    """
    given: Any = msgspec.json.decode(arguments) if isinstance(arguments, Raw) else {}
    for header, path in expected.items():
        value = given
        for member in path:
            value = value.get(member) if isinstance(value, dict) else None
        if not _agrees(_value(exchange, header), value):
            raise _mismatch(header.decode(), f"arguments.{'.'.join(path)}")


def _agrees(text: str | None, value: object) -> bool:
    if text is None or value is None:
        return text is None and value is None
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int | float):
        match = _INTEGER.fullmatch(text)
        return match is not None and int(match[1]) == value
    return text == value
