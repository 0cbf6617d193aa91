"""Listed operations as tools, and the requests that calls become."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import msgspec
import pytest

from interlock.errors import InvalidArguments
from interlock.openapi import document
from interlock.openapi.plan import Plan, compile_tools
from interlock.openapi.selection import read_tools
from tests.support.rows import each_row

SHOP = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/orders": {
            "get": {
                "operationId": "listOrders",
                "summary": "List orders",
                "parameters": [
                    {
                        "name": "page[size]",
                        "in": "query",
                        "schema": {"type": "integer", "maximum": 100},
                    },
                    {"name": "tenant", "in": "query", "schema": {"type": "string"}},
                ],
                "responses": {"200": {"description": "OK", "content": {"application/json": {}}}},
            },
            "post": {
                "operationId": "createOrder",
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {"schema": {"$ref": "#/components/schemas/Order"}}
                    },
                },
                "responses": {"201": {"description": "Created"}},
            },
        },
        "/orders/{id}": {
            "get": {
                "operationId": "getOrder",
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
                ],
                "responses": {"200": {"description": "OK"}},
            }
        },
    },
    "components": {
        "schemas": {
            "Order": {
                "type": "object",
                "required": ["id", "item"],
                "properties": {
                    "id": {"type": "string", "readOnly": True},
                    "item": {"type": "string"},
                    "note": {"type": ["string", "null"]},
                },
            }
        }
    },
}


def compiled(content: object, tools: object) -> tuple[dict[str, Plan], dict[str, str]]:
    return compile_tools(document.read(msgspec.json.encode(content)), read_tools(tools))


def plan(operation: object, content: object = SHOP) -> Plan:
    plans, missing = compiled(content, {"tool": operation})
    assert missing == {}
    return plans["tool"]


def test_plan_of_a_query_sends_the_parameter_under_its_own_name():
    tool = plan("listOrders")

    assert tool.arguments["page_size"] == {"in": "query", "name": "page[size]"}
    assert tool.request({"page_size": 5, "tenant": "a b"}).target == (
        "/orders?page%5Bsize%5D=5&tenant=a%20b"
    )


def test_plan_of_a_flat_body_offers_its_properties_except_read_only_ones():
    tool = plan("createOrder")
    request = tool.request({"item": "tea", "note": None})

    assert set(tool.definition["inputSchema"]["properties"]) == {"item", "note"}
    assert tool.definition["inputSchema"]["required"] == ["item"]
    assert (request.method, request.target) == ("POST", "/orders")
    assert msgspec.json.decode(request.body or b"") == {"item": "tea", "note": None}
    assert ("Content-Type", "application/json") in request.headers


def test_constant_argument_is_sent_and_can_neither_be_seen_nor_set():
    tool = plan(
        {
            "operation": "GET /orders",
            "arguments": {"tenant": {"value": "acme"}, "page[size]": {"name": "limit"}},
        }
    )

    assert set(tool.arguments) == {"limit"}
    assert tool.request({"limit": 1}).target == "/orders?page%5Bsize%5D=1&tenant=acme"
    with pytest.raises(InvalidArguments, match="unknown argument 'tenant'"):
        tool.request({"tenant": "other"})


def test_operator_default_is_sent_when_the_call_leaves_the_argument_out():
    tool = plan({"operation": "listOrders", "arguments": {"page[size]": {"default": 20}}})

    assert tool.request({}).target == "/orders?page%5Bsize%5D=20"


def test_an_empty_value_is_sent_where_the_parameter_has_json():
    filter, tags = {"type": "object"}, {"type": "array", "items": {"type": "string"}}
    parameters = [
        {"name": "f", "in": "query", "content": {"application/json": {"schema": filter}}},
        {"name": "X-F", "in": "header", "content": {"application/json": {"schema": filter}}},
        {"name": "styled", "in": "query", "schema": filter},
        {"name": "tags", "in": "query", "schema": tags},
    ]
    form = {
        "schema": {"type": "object", "properties": {"j": filter, "styled": filter}},
        "encoding": {"j": {"contentType": "application/json"}},
    }
    body = {"content": {"application/x-www-form-urlencoded": form}}
    operation = {"parameters": parameters, "requestBody": body}
    tool = plan("POST /x", {"openapi": "3.1.0", "paths": {"/x": {"post": operation}}})
    names = {each["name"]: name for name, each in tool.arguments.items()}

    request = tool.request({names["f"]: {}, names["X-F"]: {}, names["tags"]: [], names["j"]: {}})

    assert request.target == "/x?f=%7B%7D"
    assert ("X-F", "{}") in request.headers
    assert request.body == b"j=%7B%7D"
    assert tool.request({}).target == "/x"


def test_missing_operation_removes_only_its_tool_and_names_the_nearest_operation():
    plans, missing = compiled(SHOP, {"good": "getOrder", "bad": "getOrders"})

    assert set(plans) == {"good"}
    assert "'getOrders'; did you mean getOrder" in missing["bad"]


def test_invalid_argument_is_refused_without_its_value():
    with pytest.raises(InvalidArguments) as caught:
        plan("listOrders").request({"page_size": "secret"})

    assert "page_size" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_arguments_are_checked_against_the_complete_schema():
    names = [f"name-{index:03}" for index in range(900)]
    schema = {"type": "string", "enum": names}
    root = operation_with({"name": "a", "in": "query", "schema": schema})
    tool = plan("GET /x", root)

    assert "enum" not in tool.definition["inputSchema"]["properties"]["a"]
    assert tool.request({"a": "name-899"}).target == "/x?a=name-899"
    with pytest.raises(InvalidArguments, match="a: "):
        tool.request({"a": "name-900"})


def test_arguments_are_checked_by_the_shown_schema_if_the_exact_one_is_too_large():
    properties = {f"p{i}": {"type": "object", "properties": {"x": {}}} for i in range(1_500)}
    schema = {"type": "object", "properties": properties}
    content = {"application/json": {"schema": {"type": "array", "items": schema}}}
    root = {"openapi": "3.1.0", "paths": {"/x": {"post": {"requestBody": {"content": content}}}}}
    tool = plan("POST /x", root)

    assert tool.request({"body": [{"p0": {"x": 1}}]}).body == b'[{"p0":{"x":1}}]'
    with pytest.raises(InvalidArguments, match="body"):
        tool.request({"body": "text"})


def test_compiled_plans_do_not_keep_the_document_in_memory():
    found = document.read(msgspec.json.encode(SHOP))
    gone = weakref.ref(found)
    plans, _ = compile_tools(found, read_tools({"tool": "getOrder"}))

    del found
    gc.collect()

    assert gone() is None
    assert plans["tool"].request({"id": "7"}).target == "/orders/7"


def test_unlisted_operation_is_not_reachable_by_any_listed_tool():
    plans, missing = compiled(SHOP, {})
    assert plans == missing == {}

    with pytest.raises(InvalidArguments):
        plan("getOrder").request({"id": "../orders"})


@each_row(
    ("method", "read_only", "destructive", "idempotent"),
    [
        ("get", True, False, True),
        ("head", True, False, True),
        ("put", False, True, True),
        ("delete", False, True, True),
        ("post", False, True, False),
        ("patch", False, True, False),
    ],
)
def test_annotations_follow_the_method_unless_configured(
    method: str, read_only: bool, destructive: bool, idempotent: bool
):
    root = {"openapi": "3.1.0", "paths": {"/x": {method: {}}}}
    key = f"{method.upper()} /x"

    assert plan(key, root).definition["annotations"] == {
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": True,
    }
    chosen = plan({"operation": key, "annotations": {"readOnly": True}}, root)
    assert chosen.definition["annotations"]["readOnlyHint"] is True
    assert chosen.definition["annotations"]["destructiveHint"] is False


def test_description_is_the_operators_or_the_summary_and_first_paragraph():
    members = {
        "summary": "List.",
        "description": "All <b>of</b> them.\n\nMore.",
        "deprecated": True,
    }
    root = {"openapi": "3.1.0", "paths": {"/x": {"get": members}}}

    assert plan("GET /x", root).definition["description"] == "Deprecated. List.\n\nAll of them."
    chosen = plan({"operation": "GET /x", "description": "Mine.", "title": "T"}, root)
    assert chosen.definition["description"] == "Mine."
    assert chosen.definition["title"] == "T"


def operation_with(parameter: dict[str, object]) -> dict[str, object]:
    return {"openapi": "3.1.0", "paths": {"/x": {"get": {"parameters": [parameter]}}}}


@each_row(
    ("schema", "sent"),
    [
        ({"enum": ["text/plain", "application/vnd.a+json"]}, "application/vnd.a+json"),
        ({"const": "application/x-a"}, "application/x-a"),
        ({"type": "string"}, "*/*"),
    ],
)
def test_accept_header_is_chosen_from_the_values_that_the_parameter_lists(
    schema: Any, sent: str
) -> None:
    parameter = {"name": "Accept", "in": "header", "schema": schema}
    operation = {"operationId": "one", "parameters": [parameter]}
    root = {"openapi": "3.1.0", "info": {}, "paths": {"/one": {"get": operation}}}
    plans, _ = compile_tools(document.read(msgspec.json.encode(root)), read_tools({"one": "one"}))

    assert plans["one"].request({}).headers == [("Accept", sent)]


OBJECT = {"type": "object", "additionalProperties": {"type": "string"}}
TENANT = {"arguments": {"tenant": {"value": "mine"}}}
CONSTANTS = {"arguments": {**TENANT["arguments"], "scope": {"value": {"scoped": "own"}}}}
ROOT_NAMES = (
    *("tenant", "TENANT", "tenant[]", "tenant[0]", " tenant", "api_key", "api.key", "fixed"),
    *("[tenant]", "[tenant", "]tenant", "tenant]", "tenant.id"),  # qs of Express, Rack, Spring
    *("tenant\0x", "api[key", "api key"),  # PHP
    *("%74enant", "scoped"),  # decoded twice; a member of a constant object
)


def described(path: str, method: str, operation: dict[str, object]) -> dict[str, object]:
    return {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "components": {
            "securitySchemes": {"K": {"type": "apiKey", "in": "query", "name": "api_key"}}
        },
        "paths": {path: {method: {"operationId": "do", "security": [{"K": []}], **operation}}},
    }


def filtered(style: dict[str, object]) -> Plan:
    """Return the plan of a call with a free object, a constant, a fixed pair and a key."""
    parameters = [
        {"name": "tenant", "in": "query", "schema": {"type": "string"}},
        {"name": "filter[own]", "in": "query", "schema": {"type": "string"}},
        {"name": "scope", "in": "query", "schema": OBJECT},
        {"name": "filter", "in": "query", "schema": OBJECT, **style},
    ]
    content = described("/q?fixed=1", "get", {"parameters": parameters})
    found = document.read(msgspec.json.encode(content))
    plans, missing = compile_tools(
        found, read_tools({"t": {"operation": "do", **CONSTANTS}}), schemes=["K"]
    )
    assert missing == {}
    return plans["t"]


def test_object_keys_that_an_api_would_read_as_another_parameter_are_refused():
    exploded = filtered({})
    for key in ROOT_NAMES:
        with pytest.raises(InvalidArguments, match="a key of filter is read as the value"):
            exploded.request({"filter": {key: "other"}})
    sent = exploded.request({"filter": {"tenants": "1", "x[tenant]": "3", "filter": "2"}}).target
    assert sent == "/q?tenant=mine&scoped=own&tenants=1&x%5Btenant%5D=3&filter=2&fixed=1"

    deep = filtered({"style": "deepObject", "explode": True})
    with pytest.raises(InvalidArguments, match=r"is read as the value filter\[own\]"):
        deep.request({"filter": {"own": "x"}})
    assert "filter%5Btenant%5D=x" in deep.request({"filter": {"tenant": "x"}}).target


def test_object_keys_in_a_path_that_an_api_would_read_as_a_constant_are_refused():
    style = {"in": "path", "required": True, "style": "matrix", "explode": True}
    parameters = [
        {"name": "tenant", "schema": {"type": "string"}, **style},
        {"name": "filter", "schema": OBJECT, **style},
    ]
    content = described("/q{tenant}{filter}", "get", {"parameters": parameters})
    found = plan({"operation": "do", **TENANT}, content)

    with pytest.raises(InvalidArguments, match="a key of filter is read as the value tenant"):
        found.request({"filter": {"tenant": "other"}})
    assert found.request({"filter": {"a": "b"}}).target == "/q;tenant=mine;a=b"


@each_row("media", ["application/x-www-form-urlencoded", "multipart/form-data"])
def test_object_keys_in_a_form_that_an_api_would_read_as_a_constant_are_refused(media: str):
    schema = {"type": "object", "properties": {"tenant": {"type": "string"}, "filter": OBJECT}}
    encoding = {"filter": {"style": "form", "explode": True}}
    body = {"content": {media: {"schema": schema, "encoding": encoding}}}
    content = described("/f", "post", {"requestBody": body})
    found = plan({"operation": "do", **TENANT}, content)

    with pytest.raises(InvalidArguments, match="a key of filter is read as the value tenant"):
        found.request({"filter": {"tenant": "other"}})
    assert b"mine" in (found.request({"filter": {"a": "b"}}).body or b"")
