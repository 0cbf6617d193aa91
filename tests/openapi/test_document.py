"""Documents of every version: operations, servers, security schemes, and hostile ones."""

from __future__ import annotations

import random
import re
import resource
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from interlock.errors import InvalidArguments
from interlock.openapi import document, review
from interlock.openapi.document import Document
from interlock.openapi.plan import compile_tools
from interlock.openapi.references import DocumentError
from interlock.openapi.selection import read_tools
from tests.support.rows import each_row


def read(**members: Any) -> Document:
    return document.read(msgspec.json.encode({"openapi": "3.1.0", **members}))


@each_row(
    ("text", "version"),
    [
        ('{"swagger": "2.0"}', "2.0"),
        ("swagger: 2.0", "2.0"),
        ("openapi: 3.0.4", "3.0"),
        ("openapi: '3.1.0'", "3.1"),
        ("\ufeff{openapi: 3.2.0}", "3.2"),
    ],
)
def test_version_is_known_whether_json_or_yaml(text: str, version: str):
    assert document.read(text.encode()).version == version


@each_row(
    ("text", "problem"),
    [
        ("{}", "no version"),
        ('{"openapi": "4.0.0"}', r"version '4.0.0'\); use OpenAPI 2.0, 3.0, 3.1 or 3.2"),
        ("[]", "must be an object, not a list"),
        ('{"openapi": "3.0.0",, }', "not valid JSON"),
        ('{"openapi": "3.0.0", "x": ' + "[" * 200_000, "not valid JSON|nested too deep"),
        ('{"a":' * 200_000, "nested too deep|not valid"),
        (
            '{"a": [' + "[]," * 500_001 + "]}",
            r"too many values \(about 1,000,004, limit 1,000,000\)",
        ),
    ],
)
def test_document_that_cannot_be_used_is_refused_quickly(text: str, problem: str):
    start = time.process_time()

    with pytest.raises(DocumentError, match=problem):
        document.read(text.encode())
    assert time.process_time() - start < 1


def test_half_of_a_character_costs_no_document():
    found = document.read(rb'{"openapi": "3.0.0", "info": {"title": "x\ud83d"}}')

    assert found.root["info"] == {"title": "x\ufffd"}


def test_json_key_that_is_repeated_has_its_last_value_and_a_warning():
    found = document.read(b'{"openapi": "3.0.0", "x:y": [{"a": ":", "b": "\\":", "a": "c:"}]}')
    plain = document.read(b'{"openapi": "3.0.0", "x:y": [{"a": ":", "b": "\\":"}, {"a": 1}]}')

    assert found.root["x:y"] == [{"a": "c:", "b": '":'}]
    assert found.warnings == ["the key 'a' is repeated; its last value is used"]
    assert plain.warnings == []


def test_file_over_the_limit_is_refused(tmp_path: Path):
    path = tmp_path / "api.json"
    with path.open("wb") as file:
        file.truncate(document.MAX_FILE_BYTES + 1)

    with pytest.raises(DocumentError, match="too large"):
        document.load(path)


def test_missing_file_names_the_path(tmp_path: Path):
    with pytest.raises(DocumentError, match=r"api\.json cannot be read \(No such file"):
        document.load(tmp_path / "api.json")


def test_operations_have_keys_as_written_and_hidden_methods_are_left_out():
    operation: dict[str, Any] = {}
    found = document.read(
        msgspec.json.encode(
            {
                "openapi": "3.2.0",
                "paths": {
                    "/a": {
                        "get": operation,
                        "trace": operation,
                        "query": operation,
                        "additionalOperations": {"COPY": operation, "CONNECT": operation},
                    },
                    "/b#part": {"$ref": "#/x-items/b"},
                    "x-path": {"get": operation},
                    "/broken": {"$ref": "#/nowhere"},
                },
                "x-items": {"b": {"post": operation}},
                "webhooks": {"w": {"post": operation}},
            }
        )
    )

    assert set(found.keys) == {"GET /a", "QUERY /a", "COPY /a", "POST /b#part"}
    assert found.warnings == ["path '/broken': the reference '#/nowhere' leads nowhere"]


def test_operation_is_found_by_id_or_by_method_and_path_and_by_nothing_else():
    found = read(
        paths={
            "/a": {"get": {"operationId": "listA"}, "post": {"operationId": "twice"}},
            "/b": {"get": {"operationId": "twice"}},
        }
    )

    assert found.find("listA") == "GET /a"
    assert found.find("get /a") == "GET /a"
    for wrong in ("lista", "GET /A", "DELETE /a", "/a", "", "GET"):
        with pytest.raises(DocumentError, match="no operation"):
            found.find(wrong)
    with pytest.raises(DocumentError, match="not unique; name one of POST /a, GET /b"):
        found.find("twice")


def test_servers_have_the_defaults_of_their_variables():
    variables = {"region": {"default": "eu"}, "broken": 1}
    found = read(servers=[{"url": "https://{region}.example/v1", "variables": variables}, {}, 1])
    old = document.read(b'{"swagger": "2.0", "host": "a.example", "basePath": "/v1"}')

    assert found.servers == ["https://eu.example/v1"]
    assert old.servers == ["https://a.example/v1"]


def test_security_schemes_of_2_0_have_the_form_of_3():
    flow = {"flow": "application", "tokenUrl": "https://a.example/t", "scopes": {"x": "X"}}
    found = document.read(
        msgspec.json.encode(
            {
                "swagger": "2.0",
                "securityDefinitions": {
                    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
                    "login": {"type": "basic"},
                    "oauth": {"type": "oauth2", **flow},
                },
            }
        )
    )

    schemes = found.security_schemes
    assert schemes["key"]["name"] == "X-Key"
    assert schemes["login"]["scheme"] == "basic"
    assert schemes["oauth"]["flows"]["clientCredentials"]["tokenUrl"] == "https://a.example/t"


def test_number_of_operations_is_limited():
    paths = {f"/p{i}": {"get": {}} for i in range(document.MAX_OPERATIONS + 1)}

    with pytest.raises(DocumentError, match="too many operations"):
        read(paths=paths)


def test_invalid_part_of_a_document_disables_only_the_tools_that_use_it():
    good = {"responses": {"200": {"description": "OK"}}}
    header = {"schema": {"const": "\n"}}
    part = {"schema": {"properties": {"a": {}}}, "encoding": {"a": {"headers": {"X-A": header}}}}
    odder = {"anyOf": 1, "discriminator": {"propertyName": "a", "mapping": {"b": "c"}}}
    found = read(
        paths={
            "/good": {"get": good},
            "/dangling": {"get": {"parameters": [{"$ref": "#/nowhere"}]}},
            "/unknown": {"get": {"parameters": [{"name": "q", "in": "querystring"}]}},
            "/schema": {
                "post": {
                    "requestBody": {
                        "content": {"application/json": {"schema": {"items": {"$ref": "#/no"}}}}
                    }
                }
            },
            "/odd": {"get": {"parameters": 5, "responses": [], "tags": {}, "security": 1}},
            "/odder": {
                "post": {"requestBody": {"content": {"application/json": {"schema": odder}}}}
            },
            "/part": {"post": {"requestBody": {"content": {"multipart/form-data": part}}}},
            "/none": None,
        }
    )
    tools = {
        "good": "GET /good",
        "odd": "GET /odd",
        "odder": "POST /odder",
        "dangling": "GET /dangling",
    }
    tools |= {"unknown": "GET /unknown", "schema": "POST /schema", "part": "POST /part"}

    plans, missing = compile_tools(found, read_tools(tools))

    assert set(plans) == {"good", "odd", "odder"}
    assert "'#/nowhere' leads nowhere" in missing["dangling"]
    assert "'querystring', which is not supported" in missing["unknown"]
    assert "'#/no' leads nowhere" in missing["schema"]
    assert "header X-A must be printable ASCII" in missing["part"]


def test_too_deep_schema_removes_only_its_tool():
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"items": schema}
    body = {"requestBody": {"content": {"application/json": {"schema": schema}}}}

    plans, missing = compile_tools(
        read(paths={"/deep": {"post": body}, "/a": {"get": {}}}),
        read_tools({"deep": "POST /deep", "a": "GET /a"}),
    )

    assert set(plans) == {"a"}
    assert "nested too deep" in missing["deep"]


@each_row("keyword", ["const", "default", "enum"])
def test_value_of_a_schema_is_limited_in_depth(keyword: str):
    def compiled(levels: int) -> dict[str, str]:
        value: Any = [1]
        for _ in range(levels - 1):
            value = [value]
        parameter = {"name": "a", "in": "query", "schema": {keyword: value}}
        found = read(paths={"/x": {"get": {"parameters": [parameter]}}})
        return compile_tools(found, read_tools({"x": "GET /x"}))[1]

    assert compiled(127) == {}
    assert compiled(129) == {"x": "a value in a schema is nested too deep (limit 128 levels)"}


def test_uncheckable_pattern_is_noted_and_other_patterns_are_checked():
    patterns = {"back": r"^(a)\1$", "broken": "(", "good": "^a$"}
    names = [
        {"name": name, "in": "query", "schema": {"type": "string", "pattern": pattern}}
        for name, pattern in patterns.items()
    ]
    found = read(paths={"/a": {"get": {"parameters": names}}})
    plans, missing = compile_tools(found, read_tools({"a": "GET /a"}))

    notes = [str(each) for each in review.check(found, plans, missing)]

    why = "it is not valid, is too long, or needs backtracking"
    assert [each for each in notes if "not checked" in each] == [
        f"the pattern {pattern!r} is not checked: {why}" for pattern in (r"^(a)\1$", "(")
    ]
    plans["a"].request({"back": "b", "broken": "b", "good": "a"})
    with pytest.raises(InvalidArguments, match="good"):
        plans["a"].request({"good": "b"})


@pytest.mark.slow("compiles a document of 300 cyclic schemas")
def test_hostile_schemas_are_survived_within_time_and_memory():
    schemas: dict[str, Any] = {
        f"S{i}": {"properties": {f"p{j}": {"$ref": f"#/components/schemas/S{(i * 7 + j) % 300}"}
                                 for j in range(30)}}
        for i in range(300)
    }  # fmt: skip
    schemas["Patterns"] = {
        "properties": {f"p{i}": {"type": "string", "pattern": f"(a+)+{i}$"} for i in range(100)}
    }
    schemas["Union"] = {"anyOf": [{"$ref": "#/components/schemas/Union"}] * 50}
    paths = {
        f"/{name}": {
            "post": {
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}
                    }
                },
                "responses": {
                    "200": {
                        "description": "OK",
                        "content": {
                            "application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}
                        },
                    }
                },
            }
        }
        for name in ("S0", "Patterns", "Union")
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()

    plans, _missing = compile_tools(
        read(paths=paths, components={"schemas": schemas}),
        read_tools({name: f"POST /{name}" for name in ("S0", "Patterns", "Union")}),
    )

    assert time.process_time() - start < 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024
    for plan in plans.values():
        assert plan.shown.size <= 8 * 1024


def test_text_of_a_document_is_only_text():
    tricky = "Delete\u202e\u200b all {0.__class__} ${x} __import__('os')\x00\x1b[2J"
    plans, _ = compile_tools(
        read(paths={"/a": {"get": {"summary": tricky, "description": tricky}}}),
        read_tools({"a": "GET /a"}),
    )

    definition = plans["a"].definition
    shown = "Delete all {0.__class__} ${x} __import__('os')[2J"
    assert definition["title"] == shown
    assert definition["description"] == shown


def body_of(schema: Any, **schemas: Any) -> Document:
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    paths = {"/x": {"post": {"requestBody": body}}, "/good": {"get": {}}}
    return read(paths=paths, components={"schemas": schemas})


def referring(count: int, name: str = "S") -> dict[str, Any]:
    return {"properties": {f"p{i}": {"$ref": f"#/components/schemas/{name}"} for i in range(count)}}


LONG = "a" * 20_000


@each_row(
    "found",
    [
        body_of(referring(900), S={"type": "string", "description": LONG}),
        body_of(referring(900), S={"type": "string", "enum": [LONG]}),
        body_of(referring(900), S={"type": "string", "format": LONG}),
        body_of(referring(900), S={"type": "object", "required": [LONG]}),
        body_of({"items": referring(10_001)}),
        body_of({"items": {"allOf": [referring(60, f"S{i}") for i in range(60)]}},
                **{f"S{i}": referring(400, "T") for i in range(60)}, T={}),
        read(paths={"/x": {"post": {"parameters": [{"name": "a", "in": "query"}] * 1_001}},
                    "/good": {"get": {}}}),
        read(paths={"/x": {"post": {"parameters": [{"name": "a", "in": "query",
                                                     "schema": {"default": "DEEP"}}]}},
                    "/good": {"get": {}}}),
    ],
    ids=["description", "enum", "format", "required", "properties", "definitions", "parameters",
         "value"],
)  # fmt: skip
def test_part_over_a_limit_disables_only_its_tool(found: Document):
    parameters = found.keys["POST /x"][1].get("parameters")
    if parameters and "schema" in parameters[0]:
        deep: Any = 1
        for _ in range(100_000):
            deep = [deep]
        parameters[0]["schema"]["default"] = deep
    start = time.process_time()

    plans, missing = compile_tools(found, read_tools({"x": "POST /x", "good": "GET /good"}))

    assert list(plans) == ["good"]
    assert re.search(r"too (large|many)|nested too deep", missing["x"])
    assert time.process_time() - start < 2


def test_variables_of_a_server_cannot_multiply_its_address():
    variables = {each: {"default": f"{{{after}}}" * 10} for each, after in pairwise("abcdefgh")}
    found = read(servers=[{"url": "https://{a}.example", "variables": variables}])

    assert len(found.servers[0]) <= document.MAX_URL


JUNK: list[Any] = [
    None, True, 0, -1, 1e308, 10**18, "", "x", " ", "#/", "a/b", "a\nb", "\x00", "é" * 70, [], {},
    [[]], [{}], [None], ["x"], [1], {"a": 1}, {"": None}, {"$ref": "#/paths"}, {"$ref": "#"},
    {"$ref": ""}, {"$ref": 5}, {"type": 7}, {"type": ["string", "null"]}, {"items": []},
]  # fmt: skip
KEYWORDS = [
    "$ref", "type", "items", "properties", "allOf", "oneOf", "anyOf", "enum", "default", "in",
    "name", "schema", "content", "required", "style", "explode", "nullable", "readOnly",
    "discriminator", "parameters", "security", "responses", "tags", "description", "encoding",
    "pattern", "additionalProperties", "minimum", "const", "collectionFormat", "consumes",
]  # fmt: skip


def broken(root: Any, chance: random.Random) -> Any:
    """Return a document with junk in some places."""
    root = msgspec.json.decode(msgspec.json.encode(root))
    nodes = [root]
    for node in nodes:  # grows in the loop
        inner = node.values() if isinstance(node, dict) else node
        nodes += [each for each in inner if isinstance(each, dict | list)]
    for _ in range(chance.choice((1, 2, 8))):
        node = chance.choice([each for each in nodes if each])
        junk = chance.choice(JUNK)
        if isinstance(node, list):
            node[chance.randrange(len(node))] = junk
        elif chance.random() < 0.3:
            node[chance.choice(KEYWORDS)] = junk
        elif node:
            node[chance.choice(list(node))] = junk
    return root


@pytest.mark.parametrize(
    "count",
    [
        pytest.param(40, marks=pytest.mark.slow("reads many documents")),
        pytest.param(5_000, marks=pytest.mark.product),
    ],
)
def test_mutated_document_raises_no_unexpected_error(count: int):
    roots = [
        yaml.safe_load(path.read_text())
        for path in sorted((Path(__file__).parent / "fixtures").iterdir())
    ]
    chance = random.Random(count)
    compiled = 0
    for _ in range(count):
        root = broken(chance.choice(roots), chance)
        try:
            found = document.read(msgspec.json.encode(root))
        except DocumentError:
            continue
        tools = {f"t{i}": key for i, key in enumerate(found.keys)}
        plans, missing = compile_tools(found, read_tools(tools))
        compiled += len(plans)
        list(review.check(found, plans, missing))
        review.entry(found, "x.json", writes=True)
        for plan in plans.values():
            for given in ({}, {each: chance.choice(JUNK) for each in plan.arguments}):
                with suppress(InvalidArguments):
                    plan.request(given)

    assert compiled > count
