"""Documents of every version: operations, servers, security schemes, and hostile ones."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.openapi import document
from interlock.openapi.document import Document
from interlock.openapi.plan import compile_tools
from interlock.openapi.references import DocumentError
from interlock.openapi.selection import read_tools


def read(**members: Any) -> Document:
    return document.read(msgspec.json.encode({"openapi": "3.1.0", **members}))


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "no version"),
        ('{"openapi": "4.0.0"}', r"version '4.0.0'\); use OpenAPI 2.0, 3.0, 3.1 or 3.2"),
        ("[]", "must be an object, not a list"),
        ('{"openapi": "3.0.0",, }', "not valid JSON"),
        ('{"openapi": "3.0.0", "x": ' + "[" * 200_000, "not valid JSON|nested too deep"),
        ('{"a":' * 200_000, "nested too deep|not valid"),
        ('{"a": [' + "[]," * 2_000_001 + "]}", "too many values"),
    ],
)
def test_document_that_cannot_be_used_is_refused_quickly(text: str, problem: str):
    start = time.process_time()

    with pytest.raises(DocumentError, match=problem):
        document.read(text.encode())
    assert time.process_time() - start < 1


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


def test_broken_corner_costs_only_the_tools_that_touch_it():
    good = {"responses": {"200": {"description": "OK"}}}
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
            "/none": None,
        }
    )
    tools = {"good": "GET /good", "odd": "GET /odd", "dangling": "GET /dangling"}
    tools |= {"unknown": "GET /unknown", "schema": "POST /schema"}

    plans, missing = compile_tools(found, read_tools(tools))

    assert set(plans) == {"good", "odd"}
    assert "'#/nowhere' leads nowhere" in missing["dangling"]
    assert "'querystring', which is not supported" in missing["unknown"]
    assert "'#/no' leads nowhere" in missing["schema"]


def test_deep_schema_costs_its_tool_only():
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
