"""Checks that the headers of a request match its body, whose values they repeat.

Spec 2026-07-28: basic/transports, "Request headers", and server/tools, "x-mcp-header".
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from interlock.errors import InterlockError, SchemaError
from interlock.protocol.envelope import Envelope
from interlock.protocol.headers import NAMES, annotated, decode_value
from interlock.protocol.leniency import decode_params
from interlock.revisions import ALL, HEADER_MISMATCH, INVALID_PARAMS, INVALID_REQUEST
from interlock.server.catalogue import input_schema
from interlock.server.http.responses import HttpRefusal
from interlock.server.request_context import (
    MAX_CACHED_META,
    NOTHING_STATED,
    CallParams,
    Stated,
    decode_call,
    read_cached,
    read_changing,
    stated_in,
)
from interlock.text.quoting import clip
from interlock.types import JsonObject, Tool

if TYPE_CHECKING:
    from interlock.server.http.request import HttpRequest

MAX_REMEMBERED = 10_000  # tools whose headers are cached

_INTEGER = re.compile(r"(-?[0-9]{1,16})(?:\.0+)?")
_ROUTING = frozenset((b"mcp-protocol-version", b"mcp-method", b"mcp-name"))

_Paths: TypeAlias = dict[bytes, tuple[str, ...]]  # the path of an argument, by header name

# Method and name


class Params(Struct, gc=False):
    """The metadata, and those params that headers repeat."""

    meta: Raw | UnsetType = field(name="_meta", default=UNSET)
    name: Any = UNSET
    uri: Any = UNSET
    task_id: Any = field(name="taskId", default=UNSET)
    arguments: Raw | UnsetType = UNSET


AnyParams: TypeAlias = Params | CallParams

_decode_params = msgspec.json.Decoder(Params).decode
_NO_PARAMS = Params()


def read_params(message: Envelope) -> tuple[AnyParams, Stated | None]:
    """Decode the params that headers repeat; for a valid `tools/call`, decode all params.

    Returns:
        The params, and the content of their `_meta`, which is None if a member is missing that
            modern requests must have.

    Raises:
        DecodeError, RecursionError: The params are not a JSON object.
    """
    if message.params is UNSET:
        return _NO_PARAMS, NOTHING_STATED
    params: AnyParams
    try:
        if message.method == "tools/call":
            params = decode_call(message.params)
        else:
            params = _decode_params(message.params)
    except (msgspec.DecodeError, RecursionError):
        params = _reread(message.method, message.params)
    if params.meta is UNSET:
        return params, NOTHING_STATED
    meta = bytes(params.meta)
    try:
        if (  # the cases of `stated_in`, to save a call for most requests
            b'"traceparent"' in meta or b'"progressToken"' in meta
        ):
            return params, read_changing(meta)
        return params, stated_in(meta) if len(meta) > MAX_CACHED_META else read_cached(meta)
    except InterlockError:
        return params, None


def _reread(method: object, encoded: Raw) -> AnyParams:
    if method == "tools/call":
        # Errors in headers are reported before errors of these types.
        with suppress(msgspec.DecodeError, RecursionError):
            return decode_params(CallParams, encoded)
    return decode_params(Params, encoded)


def check_version(http: HttpRequest, code: int = INVALID_REQUEST) -> None:
    """Check that the version header, if there is one, names a protocol revision.

    Raises:
        HttpRefusal: 400, `code`: the header names an unknown revision.
    """
    version = http.header(b"mcp-protocol-version")
    if version is not None and version not in ALL:
        known = ", ".join(ALL)
        text = f"header MCP-Protocol-Version is {clip(version)!r}, which is none of {known}"
        raise HttpRefusal(400, text, code)


def check(http: HttpRequest, method: str, params: AnyParams, version: str) -> None:
    """Check the headers that every modern request must have.

    Raises:
        HttpRefusal: 400, -32020: a header is missing, is repeated, or differs from the body.
    """
    get = http.headers.get  # without stripping spaces, because most values have none
    if (
        get(b"mcp-protocol-version") != version.encode()
        and http.header(b"mcp-protocol-version") != version
    ):
        check_version(http, HEADER_MISMATCH)
        raise _mismatch("MCP-Protocol-Version", "_meta")
    if get(b"mcp-method") != method.encode() and http.header(b"mcp-method") != method:
        raise _mismatch("Mcp-Method", "method")
    member = NAMES.get(method)
    if member is not None:
        name = getattr(params, "task_id" if member == "taskId" else member)
        is_plain = isinstance(name, str) and name.isascii() and not name.startswith("=?")
        is_equal = is_plain and get(b"mcp-name") == name.encode()
        if not is_equal and _value(http, b"mcp-name") != name:
            raise _mismatch("Mcp-Name", f"params.{member}")
    if http.repeated:
        for repeated in http.repeated:
            if repeated in _ROUTING or repeated.startswith(b"mcp-param-"):
                raise HttpRefusal(400, f"header given twice: {repeated.decode()}", HEADER_MISMATCH)


def _value(http: HttpRequest, name: bytes) -> str | None:
    text = http.header(name)
    if text is None:
        return None
    try:
        return decode_value(text)
    except ValueError as error:
        raise HttpRefusal(400, f"{name.decode()}: {error}", HEADER_MISMATCH) from None


def _mismatch(header: str, member: str) -> HttpRefusal:
    return HttpRefusal(400, f"header {header} does not equal {member} of the body", HEADER_MISMATCH)


# Arguments


class ToolHeaderChecks:
    """Checks of the headers that repeat tool arguments; the header names are cached per tool.

    Attributes:
        unannotated: Definitions of tools that have no such headers, by name.
    """

    def __init__(self) -> None:
        self.unannotated: dict[str, Tool | JsonObject] = {}
        self._known: dict[str, tuple[Tool | JsonObject, _Paths]] = {}

    def check(
        self,
        http: HttpRequest,
        name: str,
        definition: Tool | JsonObject,
        arguments: Raw | UnsetType,
    ) -> None:
        """Check the headers of a tool's annotated arguments.

        Raises:
            HttpRefusal: 400, -32020: a header is missing, is repeated, or differs from the
                argument.
        """
        known = self._known.get(name)
        if known is None or known[0] is not definition:
            known = definition, _by_header(input_schema(definition))
            self._remember(name, *known)
        if known[1]:
            _check_arguments(http, known[1], arguments)

    def _remember(self, name: str, definition: Tool | JsonObject, paths: _Paths) -> None:
        for table in (self.unannotated, self._known):
            table.pop(name, None)
            if len(table) >= MAX_REMEMBERED:  # many of the cached tools may no longer exist
                table.clear()
        if paths:
            self._known[name] = definition, paths
        else:
            self.unannotated[name] = definition


def _by_header(schema: JsonObject) -> _Paths:
    try:
        found = annotated(schema)
    except SchemaError:
        return {}  # the annotations are invalid, so clients ignore the tool or send no headers
    return {b"mcp-param-" + name.lower().encode(): path for name, path in found.items()}


def _check_arguments(http: HttpRequest, expected: _Paths, arguments: Raw | UnsetType) -> None:
    try:
        given: Any = msgspec.json.decode(arguments) if isinstance(arguments, Raw) else {}
    except msgspec.DecodeError as error:  # the arguments contain a number that no float can hold
        raise HttpRefusal(400, f"params.arguments: {error}", INVALID_PARAMS) from None
    for header, path in expected.items():
        value = given
        for member in path:
            value = value.get(member) if isinstance(value, dict) else None
        if not _agrees(_value(http, header), value):
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
