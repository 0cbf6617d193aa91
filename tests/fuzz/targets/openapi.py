"""Untrusted OpenAPI documents: refused, or tools that are fit for models and make safe requests."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from interlock.errors import InvalidArguments
from interlock.openapi import document, yaml_parser  # noqa: F401 - loading takes time
from interlock.openapi.plan import Plan, compile_tools
from interlock.openapi.references import DocumentError
from interlock.openapi.selection import ToolSelection
from tests.fuzz.choices import Choices
from tests.fuzz.watch import check_text

LIMIT = 0.3  # seconds; a validator is compiled for each tool
KEYWORDS = [
    *("type", "properties", "required", "items", "additionalProperties", "allOf", "oneOf", "anyOf"),
    *("not", "$ref", "nullable", "readOnly", "writeOnly", "enum", "const", "default", "pattern"),
    *("format", "minimum", "exclusiveMinimum", "discriminator", "description", "minItems", "title"),
    *("contentMediaType", "prefixItems", "patternProperties", "maxLength", "if", "then"),
]
WORDS = [
    *("string", "object", "array", "integer", "boolean", "file", "a", "b", "A", "id", "binary"),
    *(
        "#/components/schemas/A",
        "#/components/schemas/B",
        "#/definitions/A",
        "#/paths",
        "a.json#/b",
    ),
    *("(?=a)", "^a$", "", "a/b", "{a}", "\u202e", "<b>", "| a |", "multi", "pipes", "deepObject"),
    *("label", "matrix", "simple", "form", "spaceDelimited", "path", "query", "header", "cookie"),
]
BODIES = [
    *("application/json", "multipart/form-data", "application/x-www-form-urlencoded"),
    *("text/plain", "application/octet-stream", "*/*", "a\r\nb", "application/x+json; a=b"),
]
PATHS = ["/a", "/a/{id}", "/a/{id}/{b}", "/a/{id}.{b}?x=1#y", "/{a}{b}", "/a/b", "a", "/", "//x"]
TOKENS = [f'"{each}"'.encode() for each in (*KEYWORDS, *WORDS, *BODIES, *PATHS)]
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def target(data: bytes) -> None:
    choices = Choices(data)
    if choices.flag():
        written = json.dumps(document_of(choices)).encode()
        value = choices.json(3)
    else:
        value = choices.json(2)
        written = choices.rest()
    try:
        found = document.read(written)
    except DocumentError as error:
        check_text(error)
        return
    tools = {f"t{i}": ToolSelection(operation=key) for i, key in enumerate(list(found.keys)[:4])}
    plans, missing = compile_tools(found, tools)
    for reason in missing.values():
        check_text(reason)
    for plan in plans.values():
        check(plan, value)


def check(plan: Plan, value: Any) -> None:
    shown = plan.definition["inputSchema"]
    assert (
        {"type", "properties"}
        <= shown.keys()
        <= {
            *("type", "properties", "required", "additionalProperties", "$defs"),
        }
    )
    assert all(NAME.fullmatch(name) for name in shown["properties"])
    jsonschema_rs.validator_for(shown)
    if plan.output_schema is not None:
        jsonschema_rs.validator_for(plan.output_schema)
        assert len(json.dumps(plan.output_schema, separators=(",", ":"))) <= 8 * 1024
    for given in (dict.fromkeys(shown["properties"], value), {}, {"x": value}):
        try:
            request = plan.request(given)
        except InvalidArguments as error:
            check_text(error)
            continue
        path = request.target.partition("?")[0]
        assert path.count("/") == plan.operation.path.count("/")
        assert not {"..", "."} & set(unquote(path).split("/")) - set(plan.operation.path.split("/"))
        assert request.target.isascii()
        assert not re.search(r"[\s\x00-\x1f]", request.target)
        for name, text in request.headers:
            assert not re.search(r"[\r\n\x00]", name + text)


# Documents


def document_of(choices: Choices) -> Any:
    schemas = {"A": schema_of(choices), "B": schema_of(choices)}
    paths = {choices.one_of(PATHS): item_of(choices) for _ in range(1 + choices.number(3))}
    if choices.flag():
        return {"swagger": "2.0", "paths": paths, "definitions": schemas}
    version = choices.one_of(["3.0.3", "3.1.0", "3.2.0"])
    return {"openapi": version, "paths": paths, "components": {"schemas": schemas}}


def item_of(choices: Choices) -> Any:
    operation = {
        "operationId": choices.one_of(WORDS),
        "summary": choices.text(),
        "parameters": [parameter_of(choices) for _ in range(choices.number(4))],
        "responses": {"200": {"content": content_of(choices), "schema": schema_of(choices)}},
    }
    if choices.flag():
        operation["requestBody"] = {"required": choices.flag(), "content": content_of(choices)}
    return {choices.one_of(["get", "post", "put"]): operation}


def parameter_of(choices: Choices) -> Any:
    if choices.number(16) == 15:
        return choices.json(2)
    schema = schema_of(choices)
    parameter = {
        "name": choices.one_of(
            ["id", "a", "b", "a[b]", "Host", "X-A", "a\r\nb", "é", choices.text()]
        ),
        "in": choices.one_of(["path", "query", "header", "cookie", "body", "formData"]),
        "required": choices.flag(),
        "schema": schema,
    }
    if choices.flag():
        parameter["style"] = choices.one_of(WORDS)
        parameter["explode"] = choices.flag()
    if choices.flag():
        parameter |= schema if isinstance(schema, dict) else {}
        parameter["collectionFormat"] = choices.one_of(WORDS)
    return parameter


def content_of(choices: Choices) -> Any:
    media = {"schema": schema_of(choices)}
    if choices.flag():
        encoding = {"style": choices.one_of(WORDS), "contentType": choices.one_of(BODIES)}
        media["encoding"] = {"a": encoding}
    return {choices.one_of(BODIES): media}


def schema_of(choices: Choices, depth: int = 3) -> Any:
    kind = choices.number(8)
    if kind == 0 or not depth:
        return {"$ref": choices.one_of(WORDS)} if choices.flag() else choices.json(1)
    schema: dict[str, Any] = {"type": choices.one_of(WORDS[:6])}
    for _ in range(choices.number(4)):
        schema[choices.one_of(KEYWORDS)] = argument_of(choices, depth - 1)
    return schema


def argument_of(choices: Choices, depth: int) -> Any:
    match choices.number(8):
        case 0 | 1:
            return {choices.one_of(["a", "b", "id", "text"]): schema_of(choices, depth)}
        case 2:
            return [schema_of(choices, depth) for _ in range(choices.number(3))]
        case 3:
            return choices.one_of(WORDS)
        case 4:
            return choices.flag()
        case 5:
            return choices.some_of(WORDS, 3)
        case 6:
            return schema_of(choices, depth)
        case _:
            return choices.json(1)
