"""Whether the headers of a request agree with its body, which they repeat.

Spec 2026-07-28: basic/transports, "Request headers", and server/tools, "x-mcp-header".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from interlock.errors import ParseError, SchemaError
from interlock.protocol.envelope import Envelope
from interlock.protocol.headers import NAMES, annotated, decode_value
from interlock.revisions import HEADER_MISMATCH, INVALID_PARAMS
from interlock.server.http.responses import HttpRefusal
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.server.http.request import HttpRequest

MAX_REMEMBERED = 10_000  # tools

_INTEGER = re.compile(r"(-?[0-9]{1,16})(?:\.0+)?")
_ROUTING = frozenset((b"mcp-protocol-version", b"mcp-method", b"mcp-name"))

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


def check(exchange: HttpRequest, method: str, params: Params, version: str) -> None:
    """Compare the headers of every modern request.

    Raises:
        HttpRefusal: 400, -32020; one is missing, differs, or is there twice.
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
        name = getattr(params, "task_id" if member == "taskId" else member)
        if not _is_plainly(get(b"mcp-name"), name) and _value(exchange, b"mcp-name") != name:
            raise _mismatch("Mcp-Name", f"params.{member}")
    if exchange.repeated:
        for name in exchange.repeated:
            if name in _ROUTING or name.startswith(b"mcp-param-"):
                raise HttpRefusal(400, f"header given twice: {name.decode()}", HEADER_MISMATCH)


def _is_plainly(header: bytes | None, name: object) -> bool:
    """Whether a header is a name as it is, as most are."""
    return (
        isinstance(name, str)
        and name.isascii()
        and header == name.encode()
        and not name.startswith("=?")
    )


def _value(exchange: HttpRequest, name: bytes) -> str | None:
    text = exchange.header(name)
    if text is None:
        return None
    try:
        return decode_value(text)
    except ValueError as error:
        raise HttpRefusal(400, f"{name.decode()}: {error}", HEADER_MISMATCH) from None


def _mismatch(header: str, member: str) -> HttpRefusal:
    return HttpRefusal(400, f"header {header} does not equal {member} of the body", HEADER_MISMATCH)


# Arguments


class ExpectedHeaders:
    """The annotations of our own tools, found once for each definition."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[JsonObject, dict[bytes, tuple[str, ...]]]] = {}

    def of(self, tool: str, schema: JsonObject) -> dict[bytes, tuple[str, ...]]:
        """Give paths of arguments by header."""
        known = self._known.get(tool)
        if known is None or known[0] is not schema:
            if len(self._known) >= MAX_REMEMBERED:  # there were tools that are gone
                self._known.clear()
            self._known[tool] = known = (schema, _by_header(schema))
        return known[1]


def _by_header(schema: JsonObject) -> dict[bytes, tuple[str, ...]]:
    try:
        found = annotated(schema)
    except SchemaError:
        return {}  # clients leave out such a tool, or its headers
    return {b"mcp-param-" + name.lower().encode(): path for name, path in found.items()}


def check_params(
    exchange: HttpRequest, expected: dict[bytes, tuple[str, ...]], arguments: Raw | UnsetType
) -> None:
    """Compare the headers of a tool's annotated arguments.

    Raises:
        HttpRefusal: 400, -32020.
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
