"""Types as forms: the fields that clients show, and the values that answers become."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from msgspec import Meta, Struct
from pydantic import BaseModel, Field

from interlock.errors import MalformedAnswer, SignatureError
from interlock.schema.forms import check_form, form_of
from tests.support.rows import each_row


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Size:
    width: Annotated[int, Meta(gt=0, le=9, description="in cm")]
    when: date | None
    color: Color = Color.RED
    level: Level = Level.LOW
    colors: list[Color] = field(default_factory=list)
    note: str | None = None


class Person(Struct):
    name: Annotated[str, Meta(min_length=1)]
    ratio: int | float = 0.5
    sure: bool = False


class Options(TypedDict):
    kind: Literal["a", 1]
    at: NotRequired[date]


class Order(BaseModel):
    count: int = Field(ge=1, description="How many")
    color: Color = Color.RED
    mail: str | None = None


CHOICES = {"type": "string", "enum": ["red", "blue"]}


@each_row(
    ("hint", "fields", "required", "content", "value"),
    [
        (
            Size,
            {
                "width": {"type": "integer", "description": "in cm", "minimum": 1, "maximum": 9},
                "when": {"type": "string", "format": "date"},
                "color": {**CHOICES, "title": "Color", "default": "red"},
                "level": {"type": "string", "title": "Level", "enum": ["1", "2"], "default": "1"},
                "colors": {"type": "array", "items": CHOICES},
                "note": {"type": "string"},
            },
            ["width"],
            {"width": 3, "level": "2", "colors": ["blue"], "when": "2026-11-27"},
            Size(3, date(2026, 11, 27), Color.RED, Level.HIGH, [Color.BLUE]),
        ),
        (
            Person,
            {
                "name": {"type": "string", "minLength": 1},
                "ratio": {"type": "number", "default": 0.5},
                "sure": {"type": "boolean", "default": False},
            },
            ["name"],
            {"name": "Ada", "ratio": 2, "sure": True},
            Person("Ada", 2, True),
        ),
        (
            Options,
            {
                "kind": {"type": "string", "enum": ["a", "1"]},
                "at": {"type": "string", "format": "date"},
            },
            ["kind"],
            {"kind": "1"},
            {"kind": 1},
        ),
        (
            Order,
            {
                "count": {
                    "type": "integer",
                    "title": "Count",
                    "description": "How many",
                    "minimum": 1,
                },
                "color": {
                    "type": "string",
                    "title": "Color",
                    "enum": ["red", "blue"],
                    "default": "red",
                },
                "mail": {"type": "string", "title": "Mail"},
            },
            ["count"],
            {"count": 2},
            Order(count=2),
        ),
        (int, {"value": {"type": "integer"}}, ["value"], {"value": 5}, 5),
        (str, {"value": {"type": "string"}}, ["value"], {"value": "5"}, "5"),
        (bool, {"value": {"type": "boolean"}}, ["value"], {"value": False}, False),
        (Decimal, {"value": {"type": "string"}}, ["value"], {"value": "1.5"}, Decimal("1.5")),
        (Color, {"value": {**CHOICES, "title": "Color"}}, ["value"], {"value": "red"}, Color.RED),
        (
            list[Color],
            {"value": {"type": "array", "items": CHOICES}},
            ["value"],
            {"value": ["red"]},
            [Color.RED],
        ),
        (int | None, {"value": {"type": "integer"}}, [], {}, None),
        (None, {}, [], {}, None),
    ],
)
def test_form_shows_the_type_and_returns_its_values(hint, fields, required, content, value):
    form = form_of(hint)
    assert form.requested_schema == {"type": "object", "properties": fields, "required": required}
    assert form.decode(content) == value
    assert type(form.decode(content)) is type(value)


@dataclass
class Nested:
    name: str
    size: Size


@dataclass
class Many:
    numbers: list[int]


@each_row(
    ("hint", "says"),
    [
        (Nested, "field 'size' of the form Nested is an object"),
        (Many, "field 'numbers' of the form Many is a list of values that are not choices"),
        (list[Size], "the form list is a list"),
        (dict[str, int], "the form dict is an object"),
        (int | str, "is a union"),
        (Any, "of no single type"),
        (tuple[int, int], "a list"),
        (complex, "no JSON Schema"),
        (["a", "b"], r"is not a type; write Literal\['a', 'b'\]"),
    ],
)
def test_type_that_is_not_flat_is_refused(hint, says):
    with pytest.raises(SignatureError, match=says) as raised:
        form_of(hint)

    assert "a form has text, numbers, booleans, dates, choices and lists" in str(raised.value)


def test_a_dict_of_choices_is_not_the_schema_of_a_form():
    for form in ({}, {"type": "object"}, {"properties": {"a": {"type": "string"}}}):
        check_form(form)
    with pytest.raises(SignatureError, match="for choices, write Literal or an Enum"):
        check_form({"low": {"title": "Low"}, "high": {"title": "High"}})


@each_row(
    ("hint", "content", "says"),
    [
        (Size, {"width": 0, "when": None}, "the form Size: width: expected `int` >= 1"),
        (Order, {"count": 0}, "the form Order: count"),
        (int, {}, "the form int: expected `int`"),
        (Color, {"value": "secret"}, "not one of the values allowed"),
    ],
)
def test_answer_that_does_not_fit_is_malformed(hint, content, says):
    with pytest.raises(MalformedAnswer, match=says) as raised:
        form_of(hint).decode(content)

    assert "secret" not in str(raised.value)
