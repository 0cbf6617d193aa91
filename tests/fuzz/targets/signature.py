"""Python functions: their schemas are valid, and accept exactly what the decoders accept."""

from __future__ import annotations

import datetime
import enum
import uuid
from collections.abc import Callable
from dataclasses import make_dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, Optional, TypedDict, Union

import msgspec
from msgspec import Meta, Raw

from interlock import schema
from interlock.context import Context
from interlock.errors import SignatureError
from interlock.schema.docstrings import summary
from interlock.schema.signature import describe, problem
from tests.fuzz.choices import Choices
from tests.fuzz.watch import check_text

LIMIT = 0.2  # seconds; functions are written by the server's author, so they are trusted
TOKENS = [b"Args:\n    a: x\n", b":param a: x\n", b"Parameters\n----------\na : int\n    x\n"]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    S = 1
    L = 2


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Options(TypedDict, total=False):
    deep: bool
    name: str


class Node(msgspec.Struct):
    value: int
    next: Node | None = None


class Circle(msgspec.Struct, tag="circle", rename="camel"):
    half_width: float


class Square(msgspec.Struct, tag="square", forbid_unknown_fields=True):
    side: Annotated[int, Meta(ge=0, lt=100)]


PLAIN: list[Any] = [
    *(int, str, float, bool, bytes, None, Any, object, Colour, Size, Point, Options, Node, Circle),
    *(datetime.datetime, datetime.date, datetime.timedelta, uuid.UUID, Decimal, Raw, dict, list),
    *(Literal["a", 1, None], Circle | Square, Annotated[str, Meta(pattern="^a+$", max_length=9)]),
    *(Annotated[int, Meta(ge=1, le=9, description="few")], complex, type, Callable[[int], int]),
    *("int", "Nowhere", Context, Context | None, msgspec.UnsetType, set, frozenset, tuple[()]),
]
KEYS: list[Any] = [str, int, Colour, bytes]
DEFAULTS: list[Any] = [None, 0, 1.5, "x", True, [], {"a": 1}, Colour.RED, Point(1), b"x", (), set()]
NAMES = ["a", "b", "self", "class_", "__c", "_d", "ü", "context", "type"]


def target(data: bytes) -> None:
    choices = Choices(data)
    function = function_of(choices)
    strict = choices.flag()
    value = {name: value_of(choices) for name in choices.some_of(NAMES, 3)}
    function.__doc__ = choices.rest().decode(errors="replace")
    summary(function)
    try:
        signature = describe(function, Context, strict=strict)
    except SignatureError as error:
        check_text(str(error)[:900])  # the text shows the type, which may be long
        return
    written = msgspec.json.encode(signature.input_schema)
    schema.check_tool_input(written)
    validator = schema.compile(written)
    if signature.output_schema is not None:
        schema.compile(msgspec.json.encode(signature.output_schema))
    encoded = msgspec.json.encode(value)
    try:
        decoded = signature.decode(Raw(encoded))
    except (msgspec.DecodeError, TypeError) as error:
        check_text(problem(error))
        return
    assert decoded.__struct_fields__ == signature.parameters
    if strict:
        assert validator.errors(value) == []


def function_of(choices: Choices) -> Any:
    names = list(dict.fromkeys(choices.some_of(NAMES, 4)))
    hints = {name: hint_of(choices) for name in names if choices.number(16)}
    if choices.flag():
        hints["return"] = hint_of(choices)
    defaults = {name: choices.one_of(DEFAULTS) for name in names if choices.flag()}
    parameters = ", ".join(
        f"{each}=given[{each!r}]" if each in defaults else each for each in names
    )
    star = "" if not names else choices.one_of(["*, ", "*, ", "*, ", "*rest, "])
    made: dict[str, Any] = {"given": defaults}
    exec(f"def function({star}{parameters}): pass", made)
    made["function"].__annotations__ = hints
    return made["function"]


def hint_of(choices: Choices, depth: int = 3) -> Any:
    match choices.number(10 if depth else 1):
        case 0 | 1 | 2:
            return choices.one_of(PLAIN)
        case 3:
            return made(lambda: list[hint_of(choices, depth - 1)])
        case 4:
            return made(lambda: dict[choices.one_of(KEYS), hint_of(choices, depth - 1)])
        case 5:
            return made(lambda: Optional[hint_of(choices, depth - 1)])  # noqa: UP045 - "int" too
        case 6:
            inner = (hint_of(choices, depth - 1), hint_of(choices, depth - 1))
            return made(lambda: Union[inner])  # noqa: UP007 - of what is not known here
        case 7:
            return made(lambda: tuple[hint_of(choices, depth - 1), ...])
        case 8:
            limits = Meta(min_length=choices.number(3), max_length=choices.number(5))
            return made(lambda: Annotated[hint_of(choices, depth - 1), limits])
        case _:
            members = [(name, hint_of(choices, depth - 1)) for name in ("x", "y")]
            return made(lambda: make_dataclass("Made", members))


def made(hint: Callable[[], Any]) -> Any:
    """Return a hint that Python itself accepts."""
    try:
        return hint()
    except TypeError:
        return int


def value_of(choices: Choices, depth: int = 3) -> Any:
    match choices.number(8 if depth else 5):
        case 0:
            return choices.number(6)
        case 1:
            return choices.one_of(["a", "aa", "red", "x", "2020-01-01", "circle", "1", ""])
        case 2:
            return choices.flag()
        case 3:
            return None
        case 4:
            return choices.one_of([1.5, -1, 1.0, 10**20, "2020-01-01T00:00:00Z", "P1D", "YQ=="])
        case 5:
            return [value_of(choices, depth - 1) for _ in range(choices.number(4))]
        case _:
            names = choices.some_of(["x", "y", "type", "side", "halfWidth", "value", "next"], 3)
            return {name: value_of(choices, depth - 1) for name in names}
