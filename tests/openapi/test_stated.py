"""What a document states about an operation, which does not depend on how tools are made of it."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from interlock.openapi import stated
from interlock.openapi.document import Document, read
from interlock.openapi.selection import read_tools
from interlock.openapi.stated import Statements
from tests.store.releases.contents import DOCUMENT
from tests.support.rows import each_row

KEY = "GET /orders/{id}"


def document(**changes: Any) -> Document:
    """Return the document with other members at paths such as "info.version"."""
    content = deepcopy(DOCUMENT)
    for path, value in changes.items():
        *steps, last = path.split("|")
        node: Any = content
        for step in steps:
            node = node[step]
        node[last] = value
    return read(json.dumps(content).encode())


def statement(found: Document, selection: Any = "getOrder") -> object:
    return Statements(found).of(KEY, read_tools({"t": selection})["t"])


@each_row(
    "path, value, is_same",
    [
        ("info|version", "2", True),
        ("components|schemas|Unused", {"type": "string"}, True),
        ("paths|/other", {"get": {"operationId": "other", "responses": {}}}, True),
        ("components|schemas|Id|format", "int64", False),  # two references away
        ("paths|/orders/{id}|get|summary", "Delete an order.", False),
        ("paths|/orders/{id}|parameters", [], False),
        ("security", [{"key": []}], False),
    ],
)
def test_statement_changes_with_what_the_operation_refers_to_and_with_nothing_else(
    path: str, value: Any, is_same: bool
):
    assert (statement(document()) == statement(document(**{path: value}))) is is_same


def test_statement_covers_the_configuration_but_not_its_defaults():
    plain = statement(document())

    assert statement(document(), {"operation": "getOrder", "title": "", "arguments": {}}) == plain
    assert statement(document(), {"operation": "getOrder", "title": "Order"}) != plain
    assert (
        statement(document(), {"operation": "getOrder", "arguments": {"id": {"hide": True}}})
        != plain
    )


def test_references_in_a_circle_end_and_a_document_that_is_too_large_states_nothing(
    monkeypatch: pytest.MonkeyPatch,
):
    circle = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Order"}}}
    assert statement(document(**{"components|schemas|Order": circle})) is not None
    broken = {"$ref": "#/nowhere"}
    assert statement(document(**{"components|schemas|Order": broken})) is not None

    monkeypatch.setattr(stated, "MAX_VALUES", 10)
    assert statement(document()) is None
