"""The arguments of a tool: names, what is not offered, and the operator's changes."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from interlock.errors import InvalidArguments
from interlock.openapi import arguments, document
from interlock.openapi.arguments import RequestValue, name_all
from interlock.openapi.plan import Plan, compile_tools
from interlock.openapi.selection import read_tools
from tests.support.rows import each_row


def parameter(name: str, place: str = "query", **members: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": {"type": "string"}, **members}


def compiled(
    parameters: list[Any], tool: dict[str, Any] | None = None, path: str = "/x", **options: Any
) -> Plan | str:
    schemes = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    root = {
        "openapi": "3.1.0",
        "paths": {path: {"get": {"parameters": parameters}}},
        "components": {"securitySchemes": schemes},
    }
    plans, missing = compile_tools(
        document.read(msgspec.json.encode(root)),
        read_tools({"tool": {"operation": f"GET {path}", **(tool or {})}}),
        **options,
    )
    return plans["tool"] if plans else missing["tool"]


def plan(parameters: list[Any], tool: dict[str, Any] | None = None, **options: Any) -> Plan:
    found = compiled(parameters, tool, **options)
    assert isinstance(found, Plan), found
    return found


# Names


@each_row(
    ("target", "name"),
    [
        ("limit", "limit"),
        ("X-Trace.id", "X-Trace.id"),
        ("page[size]", "page_size"),
        ("$top", "top"),
        ("größe", "gr_e"),
        ("[]", "argument"),
    ],
)
def test_name_is_kept_where_models_accept_it_and_cleaned_elsewhere(target: str, name: str):
    assert list(plan([parameter(target)]).arguments) == [name]


def test_long_name_is_cut_and_stays_unique():
    first, second = list(plan([parameter("a" * 70), parameter("a" * 71)]).arguments)

    assert first != second
    assert len(first) == len(second) == 64


def test_name_in_several_places_keeps_the_path_and_names_the_place_of_others():
    names = [
        RequestValue("header", "id", True, {}),
        RequestValue("query", "id", True, {}),
        RequestValue("body", "id", True, {}),
        RequestValue("path", "id", True, {}),
        RequestValue("query", "id_query", True, {}),
        RequestValue("query", "$top", True, {}),
        RequestValue("query", "top", True, {}),
    ]

    found = name_all(names)
    assert found == ["id_header", "id_query_2", "id_body", "id", "id_query", "top_query", "top"]


_targets = st.tuples(st.sampled_from(["path", "query", "body"]), st.text(max_size=70))


@pytest.mark.slow("tries many examples")
@settings(max_examples=100, deadline=None)
@given(st.lists(_targets, max_size=12, unique=True))
def test_every_name_is_unique_and_accepted_by_models(targets: list[tuple[str, str]]):
    names = name_all([RequestValue(place, target, True, {}) for place, target in targets])

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in names)


# What is not offered


@each_row(
    "name",
    [
        *("Accept", "Content-Type", "Authorization", "Host", "content-length", "Cookie"),
        *("Connection", "Transfer-Encoding", "Proxy-Authorization", "Forwarded", "X-Forwarded-For"),
    ],
)
def test_header_of_the_connection_or_of_identity_is_neither_offered_nor_sent(name: str):
    tool = plan([parameter(name, "header", required=True)])

    assert tool.arguments == {}
    assert [key for key, _ in tool.request({}).headers] == ["Accept"]


def test_parameter_that_a_configured_scheme_fills_is_not_offered():
    parameters = [parameter("x-key", "header"), parameter("q")]

    assert list(plan(parameters).arguments) == ["x-key", "q"]
    assert list(plan(parameters, schemes=["key"]).arguments) == ["q"]


def test_deprecated_parameter_is_offered_only_if_required_or_named():
    parameters = [parameter("old", deprecated=True)]

    assert plan(parameters).arguments == {}
    shown = plan(parameters, {"arguments": {"old": {}}}).definition["inputSchema"]
    assert shown["properties"]["old"]["description"] == "Deprecated."


def test_fixed_accept_header_is_obeyed():
    accept = parameter("Accept", "header", schema={"type": "string", "enum": ["text/csv"]})

    assert plan([accept]).request({}).headers == [("Accept", "text/csv")]
    chosen = plan([accept], {"accept": "text/html"})
    assert chosen.request({}).headers == [("Accept", "text/html")]


# The operator's changes


def test_operator_renames_describes_and_bounds_an_argument():
    size = parameter("page[size]", schema={"type": "integer", "maximum": 100})
    change = {"name": "limit", "description": "How many.", "maximum": 50}
    tool = plan([size], {"arguments": {"page[size]": change}})

    shown = tool.definition["inputSchema"]["properties"]
    assert shown == {"limit": {"type": "integer", "maximum": 50, "description": "How many."}}
    assert tool.request({"limit": 50}).target == "/x?page%5Bsize%5D=50"
    with pytest.raises(InvalidArguments, match="limit"):
        tool.request({"limit": 51})


def test_hidden_argument_is_neither_offered_nor_sent():
    tool = plan([parameter("q")], {"arguments": {"q": {"hide": True}}})

    assert tool.arguments == {}
    assert tool.request({}).target == "/x"


def test_constant_in_the_path_is_always_sent():
    tool = plan(
        [parameter("tenant", "path", required=True)],
        {"arguments": {"tenant": {"value": "a b"}}},
        path="/t/{tenant}",
    )

    assert tool.request({}).target == "/t/a%20b"


def test_argument_with_slashes_spans_segments():
    tool = plan(
        [parameter("path", "path")], {"arguments": {"path": {"slashes": True}}}, path="/c/{path}"
    )

    assert tool.request({"path": "a/b c.txt"}).target == "/c/a/b%20c.txt"
    with pytest.raises(InvalidArguments):
        tool.request({"path": "a/../b"})


@each_row(
    ("changes", "reason"),
    [
        ({"limt": {}}, r"no argument 'limt' \(did you mean 'limit'\?\)"),
        (
            {"limit": {"value": "many"}},
            "the value of argument 'limit' is not valid for the document's schema: .*integer",
        ),
        (
            {"limit": {"default": 0}},
            "the default of argument 'limit' is not valid for the document's schema",
        ),
        ({"q": {"hide": True}}, "argument 'q' is required but hidden; set its value"),
        ({"q": {"slashes": True}}, "argument 'q' is not in the path"),
        ({"q": {"name": "limit"}}, "two arguments have the name 'limit'"),
    ],
)
def test_invalid_change_removes_only_its_tool_and_the_reason_is_shown(
    changes: dict[str, Any], reason: str
):
    limit = parameter("limit", schema={"type": "integer", "minimum": 1})
    found = compiled([limit, parameter("q", required=True)], {"arguments": changes})

    assert isinstance(found, str)
    assert re.search(reason, found)


# Empty values


def test_empty_path_text_and_required_empty_lists_are_refused():
    names = {"type": "array", "items": {"type": "string"}}
    parameters = [
        parameter("id", "path"),
        parameter("must", schema=names, required=True),
        parameter("may", schema=names),
    ]
    tool = plan(parameters, path="/x/{id}")

    assert tool.request({"id": "1", "must": ["a"], "may": []}).target == "/x/1?must=a"
    for wrong in ({"id": "", "must": ["a"]}, {"id": "1", "must": []}):
        with pytest.raises(InvalidArguments):
            tool.request(wrong)


def test_null_of_a_parameter_is_not_sent():
    tool = plan([parameter("q"), parameter("r")])

    assert tool.request({"q": None, "r": ""}).target == "/x?r="


def test_reserved_headers_are_recognised_in_any_case():
    assert arguments.is_reserved_header("pRoXy-Connection")
    assert not arguments.is_reserved_header("X-Request-Id")
