"""The idioms in which authors of servers write parameters: the schema, good values and bad ones."""

from __future__ import annotations

import enum
import functools
import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import annotated_types
import attrs
import pydantic
import pytest
import typing_extensions
from annotated_types import Ge, Len, MultipleOf
from msgspec import Meta, Struct
from pydantic import AfterValidator, Field, HttpUrl, PositiveInt, SecretStr, StringConstraints
from typing_extensions import Doc, TypeAliasType

from interlock import Client, Server
from interlock.errors import SignatureError
from interlock.types import Tool
from tests.support.rows import each_row

CANARY = "canary-3f8e"


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Cat(pydantic.BaseModel):
    kind: Literal["cat"]


class Dog(pydantic.BaseModel):
    kind: Literal["dog"]


class Inner(pydantic.BaseModel):
    z: int


class Outer(pydantic.BaseModel):
    inner: Inner
    level: int = Field(default=1, alias="lvl")


@dataclass
class Limited:
    n: Annotated[int, Field(ge=1)]


@dataclass
class Late:
    n: int = Field(3, ge=1)


class Pair(NamedTuple):
    n: Annotated[int, Field(ge=1)]


class Keys(typing_extensions.TypedDict):
    n: Annotated[int, Field(ge=1)]
    m: NotRequired[int]


@pydantic.dataclasses.dataclass
class Checked:
    n: int = Field(ge=1)


class Own(annotated_types.BaseMetadata):
    """Metadata that only the author's program understands."""


class Month(annotated_types.GroupedMetadata):
    def __iter__(self):
        return iter((Ge(1), annotated_types.Le(12)))


Small = TypeAliasType("Small", Annotated[int, Field(le=3)])
Rating = NewType("Rating", Annotated[int, Field(le=3)])
OUTER = Outer(inner=Inner(z=1))


def even(value: int) -> int:
    if value % 2:
        raise ValueError("odd")
    return value * 2


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of `n`."""
    found: dict[str, Any] = schema["properties"]["n"]
    if "$ref" in found:
        found = schema["$defs"][found["$ref"].removeprefix("#/$defs/")]
        found.pop("title")
    return found


async def seen(
    hint: Any, *calls: dict[str, Any], default: Any = ..., strict: bool = True
) -> tuple[Tool, list[Any]]:
    """Offer a function of `n` with this hint; return the tool, and what each call brought.

    That is the value which the function received, or an error text.
    """
    server = Server("idioms", strict=strict)
    received: list[Any] = []

    def function(n):
        received.append(n)

    function.__annotations__ = {"n": hint}
    if default is not ...:
        function.__defaults__ = (default,)
    server.tool(function)
    brought: list[Any] = []
    async with Client.memory(server) as client:
        for call in calls:
            result = await client.call_tool("function", call)
            brought.append(f"refused: {result.text}" if result.is_error else received.pop())
        (tool,) = await client.list_tools()
    assert received == []
    return tool, brought


D = {"description": "D"}
INT, TEXT = {"type": "integer"}, {"type": "string"}
ONE = {"type": "integer", "minimum": 1}

# A hint, its schema, values with what the function receives, and values with the error about them.
IDIOMS: list[tuple[Any, Any, list[tuple[Any, Any]], list[tuple[Any, str]]]] = [
    (Annotated[int, Field(ge=1, le=5, description="D")], {**ONE, "maximum": 5, **D}, [(5, 5)],
     [(0, "n: expected `int` >= 1")]),
    (Annotated[int | None, Field(ge=1)], {"anyOf": [ONE, {"type": "null"}]}, [(None, None)],
     [(0, "n: expected `int` >= 1")]),
    (list[Annotated[int, Field(ge=1)]], {"type": "array", "items": ONE}, [([1], [1])],
     [([0], "n[0]: expected `int` >= 1")]),
    (dict[str, Annotated[int, Field(ge=1)] | None], ..., [({"a": 1}, {"a": 1})],
     [({"a": 0}, "n[...]: expected `int` >= 1")]),
    (Annotated[str, Field(pattern="^a", examples=["ab"])],
     {**TEXT, "pattern": "^a", "examples": ["ab"]}, [("ab", "ab")], [("b", "n: expected `str`")]),
    (Annotated[str, Field(pattern="^a$")], {**TEXT, "pattern": "^a$"}, [("a", "a")],
     [("a\n", "n: string should match")]),
    (Annotated[str, StringConstraints(to_lower=True, min_length=3)], {**TEXT, "minLength": 3},
     [("ABC", "abc")], [("x", "n: string should have at least 3 characters")]),
    (Annotated[str, StringConstraints(min_length=3)], {**TEXT, "minLength": 3}, [("ABC", "ABC")],
     [("x", "n: expected `str` of length >= 3")]),
    (PositiveInt, {"type": "integer", "exclusiveMinimum": 0}, [(1, 1)], [(0, "n: expected `int`")]),
    (Annotated[PositiveInt, Field(ge=5)], {**INT, "minimum": 5}, [(5, 5)], [(4, "n: expected")]),
    (pydantic.conint(ge=1), ONE, [(1, 1)], [(0, "n: expected")]),
    (Annotated[int, Ge(1)], ONE, [(1, 1)], [(0, "n: expected")]),
    (Annotated[int, MultipleOf(5)], {**INT, "multipleOf": 5}, [(5, 5)], [(3, "n: expected")]),
    (Annotated[str, Len(2, 3)], {**TEXT, "minLength": 2, "maxLength": 3}, [("ab", "ab")],
     [("x", "n: expected")]),
    (Annotated[float, Field(multiple_of=0.1)], {"type": "number", "multipleOf": 0.1}, [(0.3, 0.3)],
     [(0.35, "n: input should be a multiple of 0.1")]),
    (Annotated[int, Month()], {**ONE, "maximum": 12}, [(12, 12)], [(13, "n: expected")]),
    (Annotated[Decimal, Field(gt=0)], ..., [("1.5", Decimal("1.5"))],
     [("0", "n: input should be")]),
    (Annotated[int | str, Field(ge=1)], {"anyOf": [ONE, TEXT]}, [("a", "a")], [(0, "n: expected")]),
    (Annotated[int, "D"], {**INT, **D}, [(1, 1)], []),
    (Annotated[int, Doc("D")], {**INT, **D}, [(1, 1)], []),
    (Annotated[int, Meta(ge=1), Field(description="D")], {**ONE, **D}, [(1, 1)], [(0, "n: expec")]),
    (Annotated[int, Field(title="T", deprecated=True, json_schema_extra={"x-a": 1})],
     {**INT, "title": "T", "deprecated": True, "x-a": 1}, [(1, 1)], []),
    (Annotated[int, AfterValidator(even)], INT, [(2, 4)], [(1, "n: odd")]),
    (Annotated[int, Meta(ge=4, description="D"), AfterValidator(even)], {**INT, "minimum": 4, **D},
     [(4, 8)], [(2, "n: input should be greater than or equal to 4")]),
    (Annotated[str, Field(min_length=3), AfterValidator(str.strip)], {**TEXT, "minLength": 3},
     [("a  ", "a")], [("a ", "n: string should have at least 3")]),
    (HttpUrl, ..., [("https://a.example/", HttpUrl("https://a.example/"))],
     [(CANARY, "n: input should be a valid URL")]),
    (Annotated[ZoneInfo, AfterValidator(lambda zone: zone)], ..., [("UTC", ZoneInfo("UTC"))],
     [(CANARY, "n: input is not valid")]),
    (pydantic.ByteSize, ..., [("1KB", 1000)],
     [("1canary", "n: input should have a known unit")]),
    (SecretStr, {**TEXT, "format": "password", "writeOnly": True}, [("s", SecretStr("s"))],
     [([CANARY], "n: input should be a valid string")]),
    (Cat | Dog, ..., [({"kind": "dog"}, Dog(kind="dog"))],
     [({"kind": CANARY}, "n: Cat.kind: input should be 'cat'")]),
    (Annotated[Cat | Dog, Field(discriminator="kind")], ..., [({"kind": "dog"}, Dog(kind="dog"))],
     [({"kind": CANARY}, "n: kind: not one of the values allowed")]),
    (list[Cat | Dog] | None, ..., [(None, None), ([{"kind": "cat"}], [Cat(kind="cat")])],
     [([{"kind": 1}], "n: 0.Cat.kind: ")]),
    (Outer, {"properties": {"inner": {"$ref": "#/$defs/Outer.Inner"},
                            "lvl": {**INT, "default": 1, "title": "Lvl"}},
             "required": ["inner"], "title": "Outer", "type": "object"},
     [({"inner": {"z": 1}, "lvl": 1}, OUTER)], [({"inner": {}}, "n: inner.z: ")]),
    (Limited, {"properties": {"n": {**ONE, "title": "N"}}, "required": ["n"], "title": "Limited",
               "type": "object"}, [({"n": 1}, Limited(1))],
     [({"n": 0}, "n: n: input should be greater")]),
    (Late, ..., [({}, Late(3))], [({"n": 0}, "n: n: input should be greater")]),
    (list[Pair], ..., [([[1]], [Pair(1)])], [([[0]], "n: 0.0: input should be greater")]),
    (Keys, {"properties": {"n": {**ONE, "title": "N"}, "m": {**INT, "title": "M"}},
            "required": ["n"], "title": "Keys", "type": "object"},
     [({"n": 1}, {"n": 1})], [({"n": 0}, "n: n: input should be greater")]),
    (Checked, ..., [({"n": 1}, Checked(1))], [({"n": 0}, "n: n: input should be greater")]),
    (Small, {**INT, "maximum": 3}, [(3, 3)], [(4, "n: expected `int` <= 3")]),
    (list[Small], {"type": "array", "items": {**INT, "maximum": 3}}, [([3], [3])], [([4], "n[0]")]),
    (Rating, {**INT, "maximum": 3}, [(3, 3)], [(4, "n: expected `int` <= 3")]),
    (Colour, {"enum": ["red"]}, [("red", Colour.RED)], [("blue", "n: not one of the values")]),
    (Size, {"enum": [1]}, [(1, Size.SMALL)], [(2, "n: not one of the values")]),
    (Literal["a", 1], {"enum": ["a", 1]}, [("a", "a")], [("b", "n: not one of the values")]),
    (date, {**TEXT, "format": "date"}, [("2026-07-28", date(2026, 7, 28))], [("x", "n: ")]),
    (datetime, {**TEXT, "format": "date-time"},
     [("2026-07-28T10:00:00", datetime(2026, 7, 28, 10))], [("x", "n: ")]),
    (time, {**TEXT, "format": "time"}, [("10:00:00", time(10))], [("x", "n: ")]),
    (timedelta, {**TEXT, "format": "duration"}, [("PT1S", timedelta(seconds=1))], [("x", "n: ")]),
    (UUID, {**TEXT, "format": "uuid"}, [(str(UUID(int=1)), UUID(int=1))], [("x", "n: ")]),
    (Decimal, {**TEXT, "format": "decimal"}, [("1.50", Decimal("1.50"))], [("x", "n: ")]),
    (Path, TEXT, [("a/b", Path("a/b"))], [(1, "n: expected `str`, got `int`")]),
    (str | Path, TEXT, [("a", "a")], [(1, "n: expected `str`, got `int`")]),
    (IPv4Address | IPv6Address, ..., [("::1", IPv6Address("::1"))], [(CANARY, "n: input is not")]),
    (Annotated[int, Own()], INT, [(1, 1)], []),
    (IPv4Address, {**TEXT, "format": "ipv4"}, [("127.0.0.1", IPv4Address("127.0.0.1"))],
     [(CANARY, "n: not a valid IPv4Address")]),
    (bytes, {**TEXT, "contentEncoding": "base64"}, [("YQ==", b"a")], [("?", "n: ")]),
    (int, INT, [(3.0, 3)], [("3", "n: expected `int`, got `str`"), (3.5, "n: expected `int`")]),
    (Iterable[int], {"type": "array", "items": INT}, [([1], [1])], [(1, "n: ")]),
    (object, {}, [([1], [1])], []),
    (Annotated[int, object()], INT, [(1, 1)], []),
    (Annotated[int, Ge(2**64)], ..., [(2**64, 2**64)], [(0, "n: input should be greater")]),
    (Annotated[str, Field(pattern=r"^\p{L}+")], ..., [("a", "a")], [("1", "n: string should")]),
    (Annotated[datetime, annotated_types.Timezone(...)], {**TEXT, "format": "date-time"},
     [("2026-07-28T10:00:00Z", datetime(2026, 7, 28, 10, tzinfo=UTC))],
     [("2026-07-28T10:00:00", "n: expected `datetime` with a timezone")]),
    (dict[str, Annotated[int, AfterValidator(even)]], ..., [({"a": 2}, {"a": 4})],
     [({CANARY: 1}, "n: odd")]),
    (Annotated[int | str, Field(union_mode="left_to_right")], ..., [("a", "a")],
     [([1], "n: input should be a valid integer")]),
]  # fmt: skip


@each_row(("hint", "schema", "good", "bad"), IDIOMS)
async def test_a_parameter_has_the_schema_and_the_limits_that_its_hint_states(
    caplog, hint, schema, good, bad
):
    caplog.set_level(logging.DEBUG)

    tool, brought = await seen(hint, *({"n": value} for value, _ in (*good, *bad)))

    assert tool.input_schema["required"] == ["n"]
    if schema is not ...:
        assert resolved(tool.input_schema) == schema
    assert brought[: len(good)] == [value for _, value in good]
    for text, (_, says) in zip(brought[len(good) :], bad, strict=True):
        assert text.startswith(f"refused: {says}")
        assert CANARY not in text
        assert "pydantic" not in text
    assert CANARY not in caplog.text


# Defaults and names

ABSENT: dict[str, Any] = {}


class Visit(Struct, rename="camel"):
    seen_at: datetime
    by: Annotated[str, "The visitor"]
    left: list[Annotated[time, Doc("When")] | None] = []


@dataclass
class Log:
    visits: dict[str, Visit]
    pair: tuple[time, int]
    days: dict[str, datetime] | None = None


class Span(NamedTuple):
    start: Annotated[datetime, "Begin"]


async def test_members_of_classes_have_their_texts_and_formats():
    log, _ = await seen(Log)
    span, _ = await seen(list[Span])

    definitions = {**log.input_schema["$defs"], **span.input_schema["$defs"]}
    when = {**TEXT, "format": "date-time"}
    of_day = {**TEXT, "format": "time"}
    nothing = {"type": "null"}
    assert definitions["Visit"]["properties"] == {
        "seenAt": when,
        "by": {**TEXT, "description": "The visitor"},
        "left": {"type": "array", "items": {"anyOf": [of_day, nothing]}, "default": []},
    }
    assert definitions["Log"]["properties"]["pair"]["prefixItems"] == [of_day, INT]
    days = definitions["Log"]["properties"]["days"]["anyOf"]
    assert days == [{"type": "object", "additionalProperties": when}, nothing]
    assert definitions["Span"]["prefixItems"] == [{**when, "description": "Begin"}]


@each_row(
    ("hint", "default", "schema", "calls", "brought"),
    [
        (Annotated[int, Field(ge=1)] | None, None, {"anyOf": [ONE, {"type": "null"}]},
         [ABSENT, {"n": 0}], [None, "refused: n: expected `int` >= 1"]),
        (int, Field(3, ge=1), ONE, [ABSENT, {"n": 0}], [3, "refused: n: expected `int` >= 1"]),
        (Annotated[int, Field(default=3, ge=1)], ..., ONE, [ABSENT], [3]),
        (Annotated[int, Field(default=3, ge=1)], Field(5), ONE, [ABSENT], [5]),
        (Annotated[list[int], Field(default_factory=list)], None, ..., [ABSENT], [None]),
        (list[int], Field(default_factory=list), {"type": "array", "items": INT}, [ABSENT], [[]]),
        (Annotated[int, AfterValidator(even)], Field(3), INT, [ABSENT, {"n": 2}], [3, 4]),
        (Outer, OUTER, ..., [ABSENT], [OUTER]),
        (SecretStr, SecretStr(CANARY), ..., [ABSENT], [SecretStr(CANARY)]),
        (float, float("inf"), {"type": "number"}, [ABSENT], [float("inf")]),
    ],
)  # fmt: skip
async def test_a_parameter_with_a_default_is_optional(hint, default, schema, calls, brought):
    tool, received = await seen(hint, *calls, default=default)

    listed = tool.input_schema["properties"]["n"]
    shown = listed.pop("default", None)
    assert "required" not in tool.input_schema or tool.input_schema["required"] == []
    assert received == brought
    assert schema is ... or listed == schema
    assert CANARY not in str(shown)
    if isinstance(default, SecretStr | float):
        assert shown is None


async def test_a_field_without_a_default_is_required():
    tool, brought = await seen(int, {}, default=Field(description="D"))

    assert tool.input_schema["properties"]["n"] == {**INT, **D}
    assert brought == ["refused: missing required argument 'n'"]


async def test_a_default_factory_makes_a_value_for_each_call():
    _, (one, other) = await seen(list[int], {}, {}, default=Field(default_factory=list))

    assert one == other == []
    assert one is not other


async def test_an_alias_is_the_name_for_clients():
    def function(n):
        """Do it.

        Args:
            n: The number.
        """
        return f"got {n}"

    function.__annotations__ = {"n": Annotated[int, Field(alias="N")]}
    server = Server("aliases")
    server.tool(function)
    async with Client.memory(server) as client:
        (tool,) = await client.list_tools()
        results = [await client.call_tool("function", {name: 1}) for name in ("N", "n")]

    assert tool.input_schema["properties"] == {"N": {**INT, "description": "The number."}}
    assert [each.text for each in results] == ["got 1", "unknown argument 'n'"]


async def test_without_strict_text_stands_for_other_json_where_nothing_is_lost():
    _, brought = await seen(
        int | None, {"n": "3"}, {"n": "3.5"}, {"n": "null"}, {"n": 3.0}, strict=False
    )
    _, kept = await seen(str | int, {"n": "3"}, strict=False)
    _, lists = await seen(
        list[Annotated[int, Field(ge=1)]], {"n": "[1]"}, {"n": "[0]"}, strict=False
    )

    assert brought == [3, "refused: n: expected `int | null`, got `str`", None, 3]
    assert kept == ["3"]
    assert lists == [[1], "refused: n: expected `array`, got `str`"]


# What a partial binds


def fetch(url: str, api_key: str, retries: int = 1) -> str:
    """Fetch it."""
    return f"{url} {api_key} {retries}"


@each_row(
    "bound",
    [
        functools.partial(fetch, api_key=CANARY),
        functools.partial(functools.partial(fetch, api_key="other"), api_key=CANARY),
        functools.partial(lambda key, url, retries: fetch(url, key, retries), CANARY),
    ],
)
@each_row("given", [None, {"type": "object", "properties": {"url": {"type": "string"}}}])
async def test_arguments_bound_by_a_partial_are_neither_listed_nor_accepted(bound, given):
    server = Server("partials")
    if given is None:
        bound.func.__annotations__.update(url=str, retries=int)
        server.tool(bound, name="get")
    else:
        server.tool(bound, name="get", input_schema=given)
    async with Client.memory(server) as client:
        (tool,) = await client.list_tools()
        got = await client.call_tool("get", {"url": "u", "retries": 2})
        refused = await client.call_tool("get", {"url": "u", "retries": 2, "api_key": "mine"})

    assert CANARY not in str(tool)
    assert got.text == f"u {CANARY} 2"
    assert refused.is_error
    assert "mine" not in refused.text
    if isinstance(bound, functools.partial) and bound.keywords:
        assert refused.text == "unknown argument 'api_key'"


# Refused at the definition


class Desk:
    def ask(self, n: int) -> None: ...

    @classmethod
    def ask_all(cls, n: int) -> None: ...


class Strict(Struct):
    n: Annotated[int, Ge(1)]


class Nested(Struct):
    inner: Checked


class Mixed(NamedTuple):
    n: Annotated[int, Field(ge=1)]
    m: Annotated[int, Meta(ge=1)]


def rows() -> list[int]:
    yield 1


async def pages() -> list[int]:
    yield 1


def taking(hint: Any, default: Any = ...) -> Callable[..., Any]:
    def function(n): ...

    function.__annotations__ = {"n": hint}
    if default is not ...:
        function.__defaults__ = (default,)
    return function


@dataclass
class Account:
    name: str
    admin: bool = field(init=False, default=False)


@attrs.define
class Seat:
    admin: bool = attrs.field(init=False, default=False)


@attrs.define
class Stripped:
    text: str = attrs.field(converter=str.strip)


@attrs.define
class Renamed:
    text: str = attrs.field(alias="Text")


@attrs.define
class Bounded:
    n: Annotated[int, Ge(1)]


class OldKeys(TypedDict):
    n: Annotated[int, Field(ge=1)]


@each_row(
    ("function", "says"),
    [
        (rows, "rows is a generator function; return a list"),
        (pages, "pages is a generator function; return a list"),
        (functools.partial(rows), "rows is a generator function"),
        (Desk.ask, "parameter 'self' of ask has no value, because the method belongs to no object"),
        (taking(Strict), "member 'n' of the Struct Strict has Ge(ge=1) in Strict, which msgspec"),
        (taking(list[Strict]), "use msgspec.Meta"),
        (taking(Nested), "member 'inner' of the Struct Nested has Checked"),
        (taking(Mixed), "Mixed has msgspec.Meta beside "),
        (taking(Annotated[int, Field(json_schema_extra=print)]), "json_schema_extra is a function"),
        (taking(list[Annotated[int, Field(alias="x")]]), "alias='x' is inside of a type"),
        (taking(int, Field(0, ge=1, validate_default=True)), "validate_default cannot be applied"),
        (taking(Annotated[str, Field(ge=1)]), "parameter 'n' of function: ge cannot be applied to"),
        (taking(Annotated[int, Field(pattern="a")]), "pattern cannot be applied to <class 'int'>"),
        (taking(Annotated[bool | None, Ge(1)]), "ge cannot be applied to"),
        (taking(Annotated[str, Field(pattern="[")]), "needs pydantic for the pattern"),
        (taking(Annotated[int, Ge(0.5)]), "needs pydantic for ge"),
        (taking(Annotated[datetime, annotated_types.Timezone("Asia/Tokyo")]), "use Timezone(...)"),
        (taking(list[int], Field(default_factory=lambda values: [])), "without parameters"),
        (taking(Struct | Cat), "needs pydantic for a union with Cat"),
        (taking(list[Account]), "member 'admin' of Account has init=False, but clients could set"),
        (taking(Seat), "member 'admin' of Seat has init=False"),
        (taking(Stripped), "member 'text' of Stripped has a converter"),
        (taking(Renamed), "member 'text' of Renamed has the alias 'Text'"),
        (taking(Bounded), "needs pydantic for Ge(ge=1) in Bounded"),
    ],
)
def test_a_parameter_whose_limits_cannot_be_applied_is_refused(function, says):
    with pytest.raises(SignatureError) as raised:
        Server("refusing").tool(function)

    assert says in str(raised.value)
    assert str(raised.value).startswith(f"{__file__}:")
    assert "\n" not in str(raised.value)


def test_a_typed_dict_that_pydantic_cannot_read_is_refused():
    server = Server("refusing")
    if sys.version_info >= (3, 12):
        server.tool(taking(OldKeys))
    else:
        with pytest.raises(SignatureError, match=r"use typing_extensions\.TypedDict"):
            server.tool(taking(OldKeys))


def test_limits_that_need_pydantic_are_refused_without_it(monkeypatch):
    monkeypatch.delitem(sys.modules, "pydantic")

    with pytest.raises(SignatureError, match="only pydantic can apply Predicate; import pyda"):
        Server("refusing").tool(taking(Annotated[str, annotated_types.Predicate(str.islower)]))
    Server("accepting").tool(taking(Annotated[int, Ge(1)]))
