"""Elicitation forms in each revision."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from interlock.errors import CapabilityError
from interlock.protocol.envelope import encode
from interlock.schema import elicitation
from interlock.types import ElicitParams
from tests.support.rows import each_row


def form(**fields: dict[str, Any]) -> ElicitParams:
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return ElicitParams(message="m", requested_schema=schema)


@each_row(
    ("field", "older"),
    [
        ({"type": "string", "default": "a"}, {"type": "string"}),
        ({"type": "number", "default": 1.5}, {"type": "number"}),
        ({"type": "boolean", "default": True}, {"type": "boolean", "default": True}),
        (
            {"type": "string", "enum": ["a"], "default": "a"},
            {"type": "string", "enum": ["a"]},
        ),
        (
            {"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]},
            {"type": "string", "enum": ["a", "b"], "enumNames": ["A", "b"]},
        ),
    ],
)
def test_an_elicitation_field_is_rewritten_for_older_revisions(
    field: dict[str, Any], older: dict[str, Any]
) -> None:
    question = form(x=field)

    told = elicitation.for_legacy(question, "2025-06-18")

    assert told == form(x=older)
    assert question == form(x=field)  # the original is unchanged, as other clients may get it
    assert elicitation.for_legacy(question, "2025-11-25") is question


def test_a_multiple_choice_is_refused_for_older_revisions() -> None:
    question = form(x={"type": "array", "items": {"type": "string", "enum": ["a"]}})

    with pytest.raises(CapabilityError, match="field 'x'"):
        elicitation.for_legacy(question, "2025-06-18")


@each_row(
    ("field", "fits"),
    [
        ({"type": "string", "default": "a"}, True),
        ({"type": "string", "default": 5}, False),
        ({"type": "string", "maxLength": 2, "default": "abc"}, False),
        ({"type": "integer", "default": 5}, True),
        ({"type": "integer", "default": "5"}, False),
        ({"type": "integer", "default": 1.5}, False),
        ({"type": "number", "maximum": 3, "default": 4}, False),
        ({"type": "boolean", "default": False}, True),
        ({"type": "boolean", "default": "false"}, False),
        ({"type": "boolean", "default": None}, False),
        ({"type": ["string", "null"], "default": None}, True),
        ({"type": "string", "enum": ["a", "b"], "default": "b"}, True),
        ({"type": "string", "enum": ["a", "b"], "default": "zzz"}, False),
        ({"type": "string", "enum": ["a"], "enumNames": ["A"], "default": "A"}, False),
        ({"oneOf": [{"const": "a", "title": "A"}], "default": "a"}, True),
        ({"oneOf": [{"const": "a", "title": "A"}], "default": "A"}, False),
        ({"type": "array", "items": {"enum": ["p", "q"]}, "default": ["q"]}, True),
        ({"type": "array", "items": {"enum": ["p", "q"]}, "default": "p"}, False),
        ({"type": "array", "items": {"enum": ["p", "q"]}, "default": ["p", "x"]}, False),
        ({"type": "array", "items": {"enum": ["p"]}, "minItems": 1, "default": []}, False),
    ],
)
def test_a_default_that_does_not_fit_its_field_is_left_out(field: dict[str, Any], fits: bool):
    whole: dict[str, Any] = {
        "type": "object",
        "properties": {"x": field, "other": {"type": "integer", "default": 1}},
        "required": ["x"],
    }
    before = encode(whole)

    found = elicitation.fitting_form(whole)

    kept = field if fits else {key: field[key] for key in field if key != "default"}
    assert found == {**whole, "properties": {**whole["properties"], "x": kept}}
    assert (found is whole) == fits
    assert encode(whole) == before


DEFINITIONS = {"Size": {"enum": ["s", "l"]}, "B": {"$ref": "#/$defs/Size"}}


@each_row(
    ("odd", "form"),
    [
        ({"properties": [], "required": None}, {"properties": {}}),  # PHP; Java
        (
            {"properties": {"a": {"title": None, "enum": ["x"], "enumNames": None}}},
            {"properties": {"a": {"enum": ["x"]}}},
        ),
        (
            {"properties": {"a": {"const": None, "description": None}}},
            {"properties": {"a": {"const": None}}},
        ),
        (
            {"properties": {"a": {"type": "string"}}, "required": ["b", "a"]},
            {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        ),
        (
            {"properties": {"a": {"type": "string", "enum": [], "enumNames": [], "oneOf": []}}},
            {"properties": {"a": {"type": "string"}}},
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/B", "title": "A"}}, "$defs": DEFINITIONS},
            {"properties": {"a": {"enum": ["s", "l"], "title": "A"}}, "$defs": DEFINITIONS},
        ),
        (
            {"properties": {"a": {"$ref": "#/$defs/B", "default": "xl"}}, "$defs": DEFINITIONS},
            {"properties": {"a": {"enum": ["s", "l"]}}, "$defs": DEFINITIONS},
        ),
    ],
)
def test_what_nobody_can_answer_in_a_form_is_left_out_or_replaced(
    odd: dict[str, Any], form: dict[str, Any]
):
    params = Raw(encode({"message": "m", "requestedSchema": odd}))

    found = elicitation.with_fitting_form("elicitation/create", params)

    assert bytes(found) == encode({"message": "m", "requestedSchema": form})


@each_row(
    "params",
    [
        b'{"message":"default"}',
        b'{"requestedSchema":{"properties":{"a":{"type":"nonsense","default":1}}}}',
        b'{"requestedSchema":{"properties":["default"]}}',
        b'{"requestedSchema":{"properties":{"default":5}}}',
        b'["default"]',
        # References to nothing, to themselves and to other documents make a form unusable.
        b'{"requestedSchema":{"properties":{"a":{"$ref":"#/$defs/B"}},"$defs":{}}}',
        b'{"requestedSchema":{"properties":{"a":{"$ref":"#/$defs/B"}},"$defs":'
        b'{"B":{"$ref":"#/$defs/B"}}}}',
        b'{"requestedSchema":{"properties":{"a":{"$ref":"https://example.com/a"}}}}',
        b'{"default":',
    ],
)
def test_params_without_a_usable_form_stay_unchanged(params: bytes):
    question = Raw(params)

    assert elicitation.with_fitting_form("elicitation/create", question) is question


def test_only_elicitation_has_forms():
    params = Raw(b'{"requestedSchema":{"properties":{"a":{"type":"string","default":1}}}}')

    assert elicitation.with_fitting_form("sampling/createMessage", params) is params
    assert b"default" not in bytes(elicitation.with_fitting_form("elicitation/create", params))


def test_each_url_elicitation_has_its_own_id() -> None:
    page = ElicitParams(message="m", mode="url", url="https://example.com/")

    one, other = (elicitation.for_legacy(page, "2025-11-25").elicitation_id for _ in range(2))

    assert one
    assert other
    assert one != other
