"""Functions -> schemas and decoders: every kind of hint, and what is refused."""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, make_dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict
from uuid import UUID

import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Raw, Struct
from typing_extensions import Doc

from interlock import Context
from interlock.errors import SignatureError
from interlock.schema.docstrings import summary
from interlock.schema.signature import describe, find_context, is_async, problem
from interlock.types import CallToolResult, ImageContent, TextContent
from tests.support.rows import each_row

CANARY = "canary-5c1d"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Hit(Struct):
    name: str
    score: float = 1.0


@dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    deep: bool


class Leaf(Struct):
    value: int
    children: list[Leaf] = []


class Cat(Struct, tag=True):
    lives: int


class Dog(Struct, tag=True):
    tricks: list[str]


class Inner(pydantic.BaseModel):
    z: int


class Outer(pydantic.BaseModel):
    inner: Inner
    level: int = pydantic.Field(default=1, ge=0, alias="lvl")


class Tree(pydantic.BaseModel):
    branches: list[Tree] = []


class Arguments(Struct):
    """A type with the name of the struct that holds all arguments."""

    a: int


UserId = NewType("UserId", int)


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the input schema of a function, which must be valid in its draft."""
    schema = describe(function, Context).input_schema
    jsonschema_rs.meta.validate(schema)
    return schema


def decode(function: Callable[..., Any], arguments: Any) -> Any:
    return describe(function, Context).decode(Raw(msgspec.json.encode(arguments)))


def refusal(function: Callable[..., Any], arguments: Any) -> str:
    with pytest.raises(msgspec.DecodeError) as raised:
        decode(function, arguments)
    return problem(raised.value)


def taking(hint: Any, default: Any = ...) -> Callable[..., Any]:
    """Return a function of one argument `x`."""

    def function(x):
        """Do something."""

    function.__annotations__ = {"x": hint}
    if default is not ...:
        function.__defaults__ = (default,)
    return function


# Hints

KINDS = [
    (int, {"type": "integer"}, 1),
    (float, {"type": "number"}, 1.5),
    (bool, {"type": "boolean"}, True),
    (str, {"type": "string"}, "a"),
    (Any, {}, {"anything": [1]}),
    (UserId, {"type": "integer"}, 1),
    (datetime, {"type": "string", "format": "date-time"}, "2026-07-28T10:00:00"),
    (UUID, {"type": "string", "format": "uuid"}, "00000000-0000-4000-8000-000000000000"),
    (Decimal, {"type": "string", "format": "decimal"}, "1.50"),
    (Literal["a", "b"], {"enum": ["a", "b"]}, "a"),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),  # noqa: UP045
    (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "a"),
    (list[dict[str, int]], {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}}, [{"a": 1}]),  # noqa: E501
    (tuple[int, str], {"type": "array", "minItems": 2, "maxItems": 2, "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}, [1, "a"]),  # noqa: E501
    (Annotated[int, Meta(ge=1, le=50)], {"type": "integer", "minimum": 1, "maximum": 50}, 50),
    (Annotated[str, Meta(max_length=2, pattern="^a")], {"type": "string", "maxLength": 2, "pattern": "^a"}, "ab"),  # noqa: E501
]  # fmt: skip


@each_row(("hint", "schema", "value"), KINDS)
def test_a_hint_becomes_a_schema_and_a_decoder(hint, schema, value):
    function = taking(hint)

    assert schema_of(function) == {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert decode(function, {"x": value}) is not None


@each_row(
    ("hint", "value", "decoded"),
    [
        (Hit, {"name": "a"}, Hit("a")),
        (Point, {"x": 1}, Point(1)),
        (Options, {"deep": True}, {"deep": True}),
        (Colour, "red", Colour.RED),
        (Leaf, {"value": 1, "children": [{"value": 2}]}, Leaf(1, [Leaf(2)])),
        (Cat | Dog, {"type": "Dog", "tricks": []}, Dog([])),
        (list[list[Point]], [[{"x": 1}]], [[Point(1)]]),
        (Outer, {"inner": {"z": 1}, "lvl": 2}, Outer(inner=Inner(z=1), lvl=2)),
        (list[Outer], [{"inner": {"z": 1}}], [Outer(inner=Inner(z=1))]),
        (Outer | None, None, None),
        (Arguments, {"a": 1}, Arguments(1)),
    ],
)
def test_definitions_of_types_are_at_the_root_of_the_schema(hint, value, decoded):
    function = taking(hint)
    validator = jsonschema_rs.validator_for(schema_of(function))

    assert validator.is_valid({"x": value})
    assert not validator.is_valid({"x": 3.5})
    assert decode(function, {"x": value}).x == decoded


def test_models_and_structs_are_described_in_one_schema():
    def function(one: Outer, more: dict[str, list[Outer]], hit: Hit) -> None: ...

    schema = schema_of(function)

    validator = jsonschema_rs.validator_for(schema)
    outer = {"inner": {"z": 1}}
    assert sorted(schema["$defs"]) == ["Hit", "Outer.Inner"]
    assert validator.is_valid({"one": outer, "more": {"a": [outer]}, "hit": {"name": "a"}})
    assert not validator.is_valid({"one": {"inner": {}}, "more": {}, "hit": {"name": "a"}})


def test_two_models_that_would_share_a_definition_are_refused():
    def make(kind: type) -> type[pydantic.BaseModel]:
        part = pydantic.create_model("Part", value=(kind, ...))
        return pydantic.create_model("Whole", part=(part, ...))

    def function(a, b): ...

    function.__annotations__ = {"a": make(int), "b": make(str)}
    with pytest.raises(SignatureError, match=r"the parameters of function.*Whole\.Part"):
        describe(function, Context)


def test_a_model_that_refers_to_itself_is_described():
    function = taking(Tree)
    validator = jsonschema_rs.validator_for(schema_of(function))

    assert validator.is_valid({"x": {"branches": [{"branches": []}]}})
    assert not validator.is_valid({"x": {"branches": [1]}})


# Defaults


@each_row(
    ("default", "shown"),
    [
        (None, None),
        (3, 3),
        ([], []),
        ([1], [1]),
        ({"a": [1]}, {"a": [1]}),
        (Colour.RED, "red"),
        (Hit("a"), {"name": "a", "score": 1.0}),
        (Point(1), {"x": 1, "y": 0}),
        (Outer(inner=Inner(z=1)), {"inner": {"z": 1}, "lvl": 1}),
    ],
)
def test_a_default_is_shown_and_used(default, shown):
    function = taking(Any if isinstance(default, int) else type(default) | None, default)

    assert schema_of(function)["properties"]["x"]["default"] == shown
    assert "x" not in schema_of(function)["required"]
    assert decode(function, {}).x == default


@each_row(
    "hint, default",
    [
        (float, 1),
        (Annotated[int, Meta(ge=0)], -1),
        (list[int], ()),
        (Decimal, 0),
        (Path, "."),
        (Colour, "red"),
        (int | str, "a"),
    ],
)
def test_a_default_outside_of_the_limits_or_of_a_similar_type_is_accepted(hint, default):
    assert decode(taking(hint, default), {}).x == default


@each_row(
    "hint, schema",
    [
        (str, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (str | None, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (
            Annotated[int, Meta(ge=1)],
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        ),
        (Any, {}),
    ],
)
def test_a_parameter_with_the_default_none_takes_null(hint, schema):
    function = taking(hint, None)

    assert schema_of(function)["properties"]["x"] == {**schema, "default": None}
    assert decode(function, {"x": None}).x is None


@each_row("default", [[[1]], {"a": []}, Hit("a"), Point(1)])
def test_each_call_gets_its_own_copy_of_a_default(default):
    signature = describe(taking(type(default), default), Context)

    one, other = signature.decode(Raw(b"{}")).x, signature.decode(Raw(b"{}")).x

    assert one == other == default
    assert one is not other
    assert one is not default


def test_a_default_without_json_is_not_shown():
    assert "default" not in schema_of(taking(Any, object()))["properties"]["x"]


# Descriptions

GOOGLE = """Search the notes.

    All of them.

    Args:
        x: What to look for,
            in any language.
        y (int): How many
    """
REST = """Search the notes.

    All of them.

    :param x: What to look for,
        in any language.
    :param int y: How many
    :returns: the notes
    """
NUMPY = """Search the notes.

    All of them.

    Parameters
    ----------
    x : str
        What to look for,
        in any language.
    y : int, optional
        How many

    Returns
    -------
    list
        the notes
    """


@each_row("doc", [GOOGLE, REST, NUMPY], ids=["google", "rest", "numpy"])
def test_docstrings_of_all_styles_describe_function_and_parameters(doc):
    def function(x: str, y: int = 1): ...

    function.__doc__ = doc
    properties = schema_of(function)["properties"]

    assert summary(function) == "Search the notes.\n\nAll of them."
    assert properties["x"]["description"] == "What to look for, in any language."
    assert properties["y"]["description"] == "How many"


def test_numpy_parameters_may_share_a_description():
    def function(a: int, b: int): ...

    function.__doc__ = "Add.\n\nParameters\n----------\na, b : int\n    A summand.\n"
    properties = schema_of(function)["properties"]

    assert properties["a"]["description"] == properties["b"]["description"] == "A summand."


@each_row(
    "note",
    [
        Meta(description="The true one"),
        pydantic.Field(description="The true one"),
        "The true one",
        Doc("The true one"),
    ],
)
def test_a_description_in_a_hint_overrides_the_docstring(note):
    def function(x):
        """Do it.

        Args:
            x: The other one
        """

    function.__annotations__ = {"x": Annotated[int, note]}
    assert schema_of(function)["properties"]["x"]["description"] == "The true one"


def test_a_function_without_docstring_has_no_description():
    def function(x: int): ...

    assert summary(function) == ""
    assert "description" not in schema_of(function)["properties"]["x"]


# Kinds of functions


class Desk:
    """A place to ask."""

    def ask(self, x: int, context: Context = None) -> str:
        """Ask one."""
        return ""

    async def __call__(self, y: int) -> str:
        return ""


def test_a_bound_method_has_no_self():
    signature = describe(Desk().ask, Context)

    assert signature.parameters == ("x",)
    assert signature.context == "context"
    assert not signature.is_async


def test_a_callable_object_is_described_by_its_class():
    signature = describe(Desk(), Context)

    assert signature.parameters == ("y",)
    assert signature.is_async
    assert summary(Desk()) == "A place to ask."


def test_a_partial_is_described_by_its_function():
    async def function(a: int, b: int = 2):
        """Add."""

    given_first = describe(functools.partial(function, 1), Context)
    given_by_name = describe(functools.partial(function, b=5), Context)

    assert given_first.parameters == ("b",)
    assert given_by_name.parameters == ("a",)
    assert given_first.is_async
    assert summary(functools.partial(function, 1)) == "Add."


@each_row(
    "hint",
    [
        Context,
        Context | None,
        Optional[Context],  # noqa: UP045
        Annotated[Context, "here"],
        "Context",
        "Context | None",
    ],
)
def test_the_context_is_found_by_its_hint_and_is_not_an_argument(hint):
    async def function(x: int, ctx): ...

    function.__annotations__["ctx"] = hint

    signature = describe(function, Context)

    assert signature.context == "ctx"
    assert signature.parameters == ("x",)
    assert find_context(function, Context) == "ctx"
    assert is_async(function)


def test_the_context_is_found_beside_hints_that_cannot_be_resolved():
    def function(x: Nowhere, ctx: Context): ...  # noqa: F821

    assert find_context(function, Context) == "ctx"
    assert find_context(lambda x: x, Context) is None


# Refused


class Plain:
    """A class that has no JSON Schema."""


def variadic(*x: int): ...
def by_keyword(**x: int): ...
def positional(x: int, /): ...
def unhinted(x): ...
def hidden(__x: int): ...
def undefined(ok: int, x: Nowhere): ...  # noqa: F821


@each_row(
    ("function", "says"),
    [
        (variadic, "parameter 'x' of variadic: * and ** parameters"),
        (by_keyword, "parameter 'x' of by_keyword: * and ** parameters"),
        (positional, "parameter 'x' of positional is positional only"),
        (unhinted, "parameter 'x' of unhinted has no type hint; give it one, or Any"),
        (hidden, "parameter '__x' of hidden"),
        (undefined, "parameter 'x' of undefined cannot be resolved: name 'Nowhere' is not def"),
        (taking(complex), "parameter 'x' of function has type complex, which has no JSON Schema"),
        (taking(list[Plain]), "parameter 'x' of function has type list["),
        (taking(Callable[[int], int]), "parameter 'x' of function has type "),
        (taking(Hit | Point), "parameter 'x' of function has type "),
        (
            taking(int, "a"),
            "parameter 'x' of function has the default 'a', which is not a valid int",
        ),
        (taking(Literal["a", "b"], "c"), "default 'c', which is not one of ['a', 'b']; change the"),
    ],
)
def test_a_parameter_that_cannot_be_described_is_refused_by_name(function, says):
    with pytest.raises(SignatureError) as raised:
        describe(function, Context)

    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


class Ranked(Struct):
    place: Annotated[int, Meta(ge=1)] | tuple[int, int]


class Lost(Struct):
    name: Nowhere  # noqa: F821


@each_row(
    ("hint", "says"),
    [
        (Annotated[int, Meta(ge=1)] | tuple[int, int], "fixed length"),
        (Annotated[float, Meta(lt=1)] | tuple[()] | None, "fixed length"),
        (Annotated[str, Meta(pattern="^a")] | list[int], "with a pattern"),
        (list[Annotated[str, Meta(pattern="^a")] | dict[str, int] | None], "with a pattern"),
        (Annotated[str, Meta(pattern="^a")] | Sequence[int], "with a pattern"),
        (dict[str, NewType("Place", Ranked)], "fixed length"),
        (Lost, "cannot be resolved: name 'Nowhere' is not defined"),
    ],
)
def test_a_type_that_would_crash_the_decoder_is_refused(hint, says):
    """The first ones crashed the interpreter."""
    with pytest.raises(SignatureError, match=f": parameter 'x' of function.* {says}"):
        describe(taking(hint), Context)


@each_row(
    "hint",
    [
        int | tuple[int, int],
        Annotated[int, Meta(ge=1)] | tuple[int, ...] | None,
        Annotated[int, Meta(description="few")] | tuple[int, int],
        Annotated[str, Meta(max_length=9)] | list[int],
        Annotated[str, Meta(pattern="^a")] | int | Hit,
    ],
)
def test_types_similar_to_the_crashing_ones_are_described(hint):
    assert describe(taking(hint), Context).parameters == ("x",)


def test_two_types_of_one_name_are_refused():
    def made(kind: type) -> type:
        return make_dataclass("Made", [("a", kind)])

    def function(a, b): ...

    function.__annotations__ = {"a": made(int), "b": made(str)}
    with pytest.raises(SignatureError, match=r"two types have the same name: .*Made"):
        describe(function, Context)


def test_a_local_type_in_a_string_hint_is_refused_with_advice():
    class Local(Struct):
        a: int

    def function(ok: int, x: Local): ...

    with pytest.raises(SignatureError) as raised:
        describe(function, Context)

    line = function.__code__.co_firstlineno
    assert str(raised.value) == (
        f"{__file__}:{line}: the type hint of parameter 'x' of function cannot be resolved: name "
        "'Local' is not defined; types in hints must be defined at the top of a module"
    )


def test_a_result_that_cannot_be_described_is_refused():
    def function() -> Plain: ...

    with pytest.raises(SignatureError, match=r": function returns type Plain, which has no JSON"):
        describe(function, Context)


# Results


@each_row(
    "hint",
    [None, str, bytes, Any, object, TextContent, list[ImageContent], CallToolResult,
     list[TextContent | ImageContent]],
)  # fmt: skip
def test_text_content_and_unknown_results_have_no_schema(hint):
    def function(): ...

    function.__annotations__ = {"return": hint}
    assert describe(function, Context).output_schema is None


@each_row(
    ("hint", "value"),
    [
        (int, 1),
        (list[int], [1]),
        (Hit, {"name": "a"}),
        (Hit | None, None),
        (Leaf, {"value": 1, "children": [{"value": 2}]}),
        (Annotated[Hit, Meta(description="The best")], {"name": "a"}),
        (Outer, {"inner": {"z": 1}, "lvl": 1}),
        (dict[str, list[Outer]], {"a": [{"inner": {"z": 1}, "lvl": 1}]}),
    ],
)
def test_structured_results_have_a_schema_that_they_fit(hint, value):
    def function(): ...

    function.__annotations__ = {"return": hint}
    schema = describe(function, Context).output_schema
    assert schema is not None
    jsonschema_rs.meta.validate(schema)
    validator = jsonschema_rs.validator_for(schema)

    assert validator.is_valid(value)
    assert not validator.is_valid("wrong")


def test_the_schema_of_a_recursive_result_has_type_object():
    def function() -> Leaf: ...

    assert (describe(function, Context).output_schema or {})["type"] == "object"


# Problems with values


@each_row(
    ("hint", "arguments", "says"),
    [
        (int, {"x": CANARY}, "x: expected `int`, got `str`"),
        (int, {"x": True}, "x: expected `int`, got `bool`"),
        (int, {"x": 1.5}, "x: expected `int`, got `float`"),
        (str, {}, "missing required argument 'x'"),
        (str, {"x": "a", "y": CANARY}, "unknown argument 'y'"),
        (Hit, {"x": {}}, "x: missing required member 'name'"),
        (list[list[int]], {"x": [[1], [CANARY]]}, "x[1][0]: expected `int`, got `str`"),
        (dict[str, int], {"x": {CANARY: CANARY}}, "x[...]: expected `int`, got `str`"),
        (Colour, {"x": CANARY}, "x: not one of the values allowed"),
        (Literal["a", "b"], {"x": CANARY}, "x: not one of the values allowed"),
        (Literal[1, 2], {"x": 3}, "x: not one of the values allowed"),
        (Cat | Dog, {"x": {"type": CANARY}}, "x.type: not one of the values allowed"),
        (Annotated[int, Meta(le=50)], {"x": 51}, "x: expected `int` <= 50"),
        (Annotated[str, Meta(pattern="^a$")], {"x": CANARY}, "x: expected `str` matching"),
        (datetime, {"x": CANARY}, "x: invalid RFC3339 encoded datetime"),
        (UUID, {"x": CANARY}, "x: invalid UUID"),
        (Outer, {"x": {"inner": {"z": CANARY}}}, "x: inner.z: input should be a valid integer"),
        (list[Outer], {"x": [{"inner": {"z": 1}, "lvl": -1}]}, "x[0]: lvl: input should be"),
    ],
)
def test_a_problem_names_the_argument_and_never_shows_the_value(hint, arguments, says):
    told = refusal(taking(hint), arguments)

    assert told.startswith(says)
    assert CANARY not in told


def test_the_tag_of_a_model_is_not_shown():
    class A(pydantic.BaseModel):
        kind: Literal["a"]

    class B(pydantic.BaseModel):
        kind: Literal["b"]

    class Either(pydantic.BaseModel):
        part: A | B = pydantic.Field(discriminator="kind")

    told = refusal(taking(Either), {"x": {"part": {"kind": CANARY}}})

    assert told == "x: part.kind: not one of the values allowed"


def test_the_message_of_a_models_own_validator_is_shown():
    class Even(pydantic.BaseModel):
        number: int

        @pydantic.field_validator("number")
        @classmethod
        def is_even(cls, value: int) -> int:
            if value % 2:
                raise ValueError("must be even")
            return value

    assert refusal(taking(Even), {"x": {"number": 1}}) == "x: number: must be even"


def test_a_problem_with_a_long_name_is_short():
    assert len(refusal(taking(int), {"y" * 100_000: 1})) <= 300


def test_arguments_must_be_an_object():
    assert refusal(taking(int), [1]) == "expected `object`, got `array`"


def test_strings_are_read_as_numbers_only_where_all_values_are_strings():
    raw = Raw(b'{"x":"5"}')

    assert describe(taking(int), Context, strict=False).decode(raw).x == 5
    with pytest.raises(msgspec.ValidationError):
        describe(taking(int), Context).decode(raw)


# Schema and decoder agree

PROPERTY_HINTS: list[Any] = [
    int, str, bool, float, list[int], dict[str, bool], Hit, Point, Colour, Cat | Dog,
    Literal["a", 1], int | None, list[Hit | None], tuple[int, str], Annotated[int, Meta(ge=0)],
    Annotated[str, Meta(min_length=1)], Leaf,
]  # fmt: skip
SIGNATURES = {str(hint): describe(taking(hint), Context) for hint in PROPERTY_HINTS}
VALIDATORS = {
    hint: jsonschema_rs.validator_for(each.input_schema) for hint, each in SIGNATURES.items()
}
_scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "red", "Cat"])
_names = st.sampled_from(
    ["x", "y", "name", "score", "type", "lives", "tricks", "value", "children"]
)
_values = st.recursive(
    _scalars | st.floats(-2, 2).filter(lambda number: not number.is_integer()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)


@given(hint=st.sampled_from(sorted(SIGNATURES)), value=_values)
def test_value_is_decoded_if_and_only_if_it_is_valid_for_the_schema(hint, value):
    arguments = {"x": value}
    try:
        SIGNATURES[hint].decode(Raw(json.dumps(arguments).encode()))
        decoded = True
    except msgspec.ValidationError:
        decoded = False

    assert decoded == VALIDATORS[hint].is_valid(arguments)
