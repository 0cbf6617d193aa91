"""What an operator is told about a document."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.openapi import document, operations, review
from interlock.openapi.document import Document
from tests.support.rows import each_row


def read(paths: dict[str, Any], **more: Any) -> Document:
    root = {"openapi": "3.1.0", "info": {"title": "T"}, "paths": paths, **more}
    return document.read(msgspec.json.encode(root))


@each_row(
    ("method", "path", "more", "word"),
    [
        ("get", "/admin/users", {}, "admin"),
        ("get", "/api-keys", {}, "api-keys"),
        ("get", "/v1/billing/usage", {}, "billing"),
        ("delete", "/users/{id}", {}, "the deletion of users"),
        ("get", "/things", {"tags": ["Internal"]}, "Internal"),
        ("get", "/things", {"security": [{"oauth": ["admin:read"]}]}, "admin"),
        ("get", "/files/{file_key}", {}, ""),
        ("get", "/users/{id}", {}, ""),
        ("get", "/monkeys", {}, ""),
    ],
)
def test_operations_that_a_model_should_seldom_have_are_recognised(
    method: str, path: str, more: dict[str, Any], word: str
) -> None:
    found = read({path: {method: more}})
    operation = operations.read(found, f"{method.upper()} {path}")

    assert review.delicate(operation) == word


def query(name: str, **schema: Any) -> dict[str, Any]:
    required = schema.pop("required", False)
    return {"name": name, "in": "query", "required": required, "schema": schema}


@each_row(
    ("old", "new", "is_breaking", "text"),
    [
        ([query("a")], [], True, "argument a is gone"),
        ([], [query("a")], False, "argument a is new"),
        ([], [query("a", required=True)], True, "argument a is new and required"),
        ([query("a")], [query("a", required=True)], True, "argument a is now required"),
        ([query("a", required=True)], [query("a")], False, "argument a is now optional"),
        ([query("a", type="string")], [query("a", type="integer")], True, "a has other rules"),
        ([query("a")], [{**query("a"), "in": "header"}], True, "a is sent in another place"),
    ],
)
def test_changes_of_arguments_are_breaking_if_right_calls_may_be_refused(
    old: list[Any], new: list[Any], is_breaking: bool, text: str
) -> None:
    before, after = (read({"/x": {"get": {"parameters": each}}}) for each in (old, new))
    (change,) = review.changes(before, after)

    assert (change.is_breaking, change.subject) == (is_breaking, "GET /x")
    assert text in change.text


def test_definition_of_another_kind_of_server_is_not_compared() -> None:
    definition = {"name": "a", "inputSchema": {"type": "object"}}

    assert review.pinned_state(definition) is None
    assert review.pinned_state({**definition, "operation": {"operation": "GET /a"}}) is None


def test_changed_descriptions_are_not_reported_as_changes() -> None:
    before = read({"/x": {"get": {"parameters": [query("a", description="One")]}}})
    after = read({"/x": {"get": {"parameters": [query("a", description="Two")]}}})

    assert review.changes(before, after) == []


def test_removed_operations_come_before_added_ones() -> None:
    before, after = read({"/a": {"get": {}}}), read({"/b": {"get": {}}})

    assert [(each.subject, each.is_breaking) for each in review.changes(before, after)] == [
        ("GET /a", True),
        ("GET /b", False),
    ]


@each_row(
    ("servers", "place", "url"),
    [
        ([{"url": "https://{h}.example/v1/", "variables": {"h": {"default": "a"}}}], "x.yaml", 0),
        ([{"url": "/v1"}], "https://a.example/openapi.json", 0),
        ([{"url": "/v1"}], "x.yaml", 1),
        ([], "x.yaml", 1),
    ],
)
def test_a_proposed_base_url_is_absolute(servers: list[Any], place: str, url: int) -> None:
    expected = ("https://a.example/v1", "https://CHANGE-ME.example")[url]

    assert review.base_url(read({}, servers=servers), place) == expected


@each_row(
    ("title", "name"),
    [
        ("My Shop", "my_shop"),
        ("Swagger Petstore - OpenAPI 3.0", "petstore"),
        ("The API Reference (v2)", "shop"),
        ("", "shop"),
    ],
)
def test_proposed_server_is_named_after_the_title_or_else_the_host(title: str, name: str) -> None:
    found = read({}, info={"title": title}, servers=[{"url": "https://api.shop.example/v1"}])

    assert review.entry(found, "x.json").server == name


@each_row(("scheme", "variable"), [("ApiKey", "${T_API_KEY}"), ("OAuth2", "${T_OAUTH_2}")])
def test_proposed_credential_is_a_variable_named_after_its_scheme(
    scheme: str, variable: str
) -> None:
    paths = {"/a": {"get": {"operationId": "a", "security": [{scheme: []}]}}}
    entry = review.entry(read(paths), "x.json").entry

    assert entry["openapi"]["auth"] == {scheme: variable}


def test_names_of_proposed_tools_are_valid_and_unique() -> None:
    paths = {
        "/a/{id}": {"get": {"operationId": "listHTTPThings"}},
        "/b": {"get": {"operationId": "list_http_things"}},
        "/c.d/{x}": {"get": {}},
        "/ü": {"get": {}},
    }
    entry = review.entry(read(paths), "x.json").entry

    assert list(entry["openapi"]["tools"].items()) == [
        ("list_http_things", "listHTTPThings"),
        ("list_http_things_2", "list_http_things"),
        ("get_c_d_x", "GET /c.d/{x}"),
        ("get", "GET /ü"),
    ]
