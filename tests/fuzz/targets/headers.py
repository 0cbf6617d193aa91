"""Headers: any text survives the round trip, and the server accepts what the client sends."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import msgspec
from msgspec import Raw

from interlock.errors import SchemaError
from interlock.protocol.headers import ToolHeaders, annotated, decode_value, encode_value
from interlock.server.http import header_checks
from interlock.types import Tool
from tests.fuzz.choices import Choices

TOKENS = [b"=?base64?", b"?=", b"YWI=", b"x-mcp-header", b"properties", b"\r\n", b"\t", b"\x00"]
_SAFE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_NAMES = ["Region", "region", "X", "a-b", "", "a b", "ü", "Content-Type", 7]
_TYPES = ["string", "integer", "boolean", "number", "object", ["string"], None]
_MEMBERS = ["a", "b", "properties", "x-mcp-header", "ü", ""]


def target(data: bytes) -> None:
    choices = Choices(data)
    if choices.flag():
        values(choices)
    else:
        schema, arguments = schema_of(choices), arguments_of(choices)
        arguments_agree(schema, arguments)


def values(choices: Choices) -> None:
    rest = choices.rest()
    for text in (rest.decode(errors="replace"), rest.decode("latin-1")):
        written = encode_value(text)
        assert _SAFE.fullmatch(written)
        assert decode_value(written) == text
        try:
            read = decode_value(text)
        except ValueError:
            continue
        # One spelling for each text, so that nobody is told two things by one header.
        assert read == text or encode_value(read) in (text, read)


def arguments_agree(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    known = ToolHeaders()
    tool = Tool(name="x", input_schema=schema)
    try:
        known.learn(tool)
    except SchemaError:
        assert known.of("x", arguments) == {}
        return
    encoded = msgspec.json.encode(arguments)
    headers = known.of("x", arguments)
    assert headers == known.of("x", Raw(encoded))
    assert all(re.fullmatch(r"Mcp-Param-[\x21-\x7e]+", name) for name in headers)
    assert all(_SAFE.fullmatch(value) for value in headers.values())
    if len(headers) == len(annotated(schema)):  # each argument has a spelling
        request: Any = mock.Mock()
        given = {name.lower().encode(): value for name, value in headers.items()}
        request.header = given.get
        header_checks.ToolHeaderChecks().check(request, "x", tool, Raw(encoded))


def schema_of(choices: Choices, depth: int = 4) -> Any:
    schema: dict[str, Any] = {"type": choices.one_of(_TYPES)}
    if choices.flag():
        schema["x-mcp-header"] = choices.one_of(_NAMES)
    if depth and choices.flag():
        names = choices.some_of(_MEMBERS, 3)
        schema["properties"] = {name: schema_of(choices, depth - 1) for name in names}
    if depth and not choices.number(8):
        keyword = choices.one_of(["items", "allOf", "$defs", "const", "enum", "not", "required"])
        schema[keyword] = choices.one_of([schema_of(choices, depth - 1), [1], "x"])
    return schema


def arguments_of(choices: Choices, depth: int = 4) -> dict[str, Any]:
    return {
        name: arguments_of(choices, depth - 1) if depth and choices.flag() else choices.json(1)
        for name in choices.some_of(_MEMBERS, 4)
    }
