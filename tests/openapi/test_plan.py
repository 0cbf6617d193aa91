"""Listed operations as tools, and the requests that calls become."""

from __future__ import annotations

import msgspec
import pytest

from interlock.errors import InvalidArguments
from interlock.openapi import document
from interlock.openapi.plan import Plan, compile_tools
from interlock.openapi.selection import read_tools

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


def test_plan_of_a_flat_body_offers_its_properties_without_those_that_are_read_only():
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


def test_missing_operation_costs_only_its_tool_and_names_the_nearest():
    plans, missing = compiled(SHOP, {"good": "getOrder", "bad": "getOrders"})

    assert set(plans) == {"good"}
    assert "'getOrders'; did you mean getOrder" in missing["bad"]


def test_argument_that_does_not_fit_is_refused_without_its_value():
    with pytest.raises(InvalidArguments) as caught:
        plan("listOrders").request({"page_size": "secret"})

    assert "page_size" in str(caught.value)
    assert "secret" not in str(caught.value)
