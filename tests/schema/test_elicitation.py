"""Elicitation forms in each revision."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import CapabilityError
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


def test_each_url_elicitation_has_its_own_id() -> None:
    page = ElicitParams(message="m", mode="url", url="https://example.com/")

    one, other = (elicitation.for_legacy(page, "2025-11-25").elicitation_id for _ in range(2))

    assert one
    assert other
    assert one != other
