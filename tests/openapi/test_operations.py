"""Operations of every version, in one form."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.openapi import document, operations
from interlock.openapi.operations import Operation
from tests.support.rows import each_row


def read(root: dict[str, Any], key: str) -> Operation:
    return operations.read(document.read(msgspec.json.encode(root)), key)


def modern(operation: Any, path: str = "/x", **item: Any) -> Operation:
    root = {"openapi": "3.1.0", "paths": {path: {"get": operation, **item}}}
    return read(root, f"GET {path}")


def test_parameters_of_the_operation_override_parameters_of_the_path():
    found = modern(
        {"parameters": [{"name": "a", "in": "query", "description": "new"}]},
        parameters=[
            {"name": "a", "in": "query", "description": "old"},
            {"name": "a", "in": "header"},
        ],
    )

    assert [(each.place, each.description) for each in found.parameters] == [
        ("query", "new"),
        ("header", ""),
    ]


def test_path_variables_are_required_and_declared_where_the_document_forgot_them():
    declared = {"name": "a", "in": "path", "required": False, "schema": {"type": "integer"}}
    extra = {"name": "b", "in": "path", "required": True}

    found = modern({"parameters": [declared, extra]}, "/{a}/{c}")

    assert [(each.name, each.required) for each in found.parameters] == [("a", True), ("c", True)]


def test_query_and_fragment_of_a_path_are_split_off_and_fixed_pairs_are_sent():
    found = modern({}, "/{v}/x?action=list items&page={page}#second")

    assert found.key == "GET /{v}/x?action=list items&page={page}#second"
    assert found.path == "/{v}/x"
    assert found.fixed_query == ["action=list%20items"]


def test_style_that_its_place_does_not_have_is_replaced_by_the_default():
    found = modern({"parameters": [{"name": "a", "in": "path", "style": "deepObject"}]}, "/{a}")

    assert found.parameters[0].style.name == "simple"


@each_row(
    ("format", "style", "explode"),
    [
        (None, "form", False),
        ("csv", "form", False),
        ("ssv", "spaceDelimited", False),
        ("tsv", "tabDelimited", False),
        ("pipes", "pipeDelimited", False),
        ("multi", "form", True),
    ],
)
def test_collection_format_of_openapi_2_0_is_converted_to_a_style(
    format: str, style: str, explode: bool
):
    parameter = {"name": "a", "in": "query", "type": "array", "items": {"type": "string"}}
    parameter |= {"collectionFormat": format}
    found = read(
        {"swagger": "2.0", "paths": {"/x": {"get": {"parameters": [parameter]}}}}, "GET /x"
    )

    assert found.parameters[0].style == operations.Style(style, explode)
    assert found.parameters[0].schema == {"type": "array", "items": {"type": "string"}}


@each_row(
    ("consumes", "type", "media_type"),
    [
        ([], "string", "application/x-www-form-urlencoded"),
        (["multipart/form-data"], "string", "multipart/form-data"),
        (["application/x-www-form-urlencoded"], "file", "multipart/form-data"),
    ],
)
def test_form_of_2_0_is_multipart_if_it_has_files(consumes: list[str], type: str, media_type: str):
    field = {"name": "a", "in": "formData", "type": type, "required": True}
    operation = {"parameters": [field], "consumes": consumes}

    found = read({"swagger": "2.0", "paths": {"/x": {"post": operation}}}, "POST /x")

    assert found.body is not None
    assert found.body.is_required
    assert [each.name for each in found.body.media_types] == [media_type]


def test_responses_of_2_0_have_the_media_types_that_the_operation_produces():
    operation = {
        "produces": ["text/csv"],
        "responses": {"200": {"description": "OK", "schema": {"type": "string"}}, "204": {}},
    }

    found = read(
        {"swagger": "2.0", "produces": ["a/b"], "paths": {"/x": {"get": operation}}}, "GET /x"
    )

    assert [(each.status, list(each.media_types)) for each in found.responses] == [
        ("200", ["text/csv"]),
        ("204", []),
    ]


def test_security_of_the_operation_replaces_security_of_the_document():
    root = {
        "openapi": "3.0.0",
        "security": [{"key": []}],
        "paths": {"/x": {"get": {}, "put": {"security": [{"oauth": ["a"]}, {}]}}},
    }

    assert read(root, "GET /x").security == [{"key": []}]
    assert read(root, "PUT /x").security == [{"oauth": ["a"]}, {}]


@each_row(
    ("media_type", "expected"),
    [
        ("application/json; charset=utf-8", True),
        ("Application/Problem+JSON", True),
        ("*/*", True),
        ("text/html", False),
        ("application/jsonp", False),
        ("application/x-ndjson", False),
    ],
)
def test_json_is_recognised_by_its_media_type(media_type: str, expected: bool):
    assert operations.is_json(media_type) is expected
