"""The tools of a toolbox as functions."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import threading
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from interlock import schema as json_schema
from interlock.callables import MAX_PARAMETERS, Parameters, callables
from interlock.calls import Caller
from interlock.context import Context
from interlock.errors import InvalidArguments, ToolFailed, WrongLoop
from interlock.schema.signature import describe
from interlock.toolbox import Toolbox
from interlock.types import CallToolResult
from tests.support.rows import each_row
from tests.support.scripted_server import Json
from tests.support.toolboxes import box, described, kb


def fail(params: Json) -> Json:
    return {"content": [{"type": "text", "text": "disk\nfull"}], "isError": True}


def object_of(required: list[str] | None = None, **members: Any) -> Json:
    return {"type": "object", "properties": members, "required": required or []}


def signature(schema: Json) -> str:
    """Return a signature, in the words of Python 3.14."""
    return re.sub(r"Optional\[(\w+)\]", r"\1 | None", str(Parameters(schema).signature))


# Calling


async def test_a_tool_is_called_by_address_or_wire_name() -> None:
    async with box(kb([described("search", object_of(["q"], q={"type": "string"}))])) as toolbox:
        functions = callables(toolbox)

        assert json.loads(await functions["kb:search"]("quota")) == {"q": "quota"}
        assert json.loads(await functions["kb__search"](q="quota")) == {"q": "quota"}
        addresses = [each.tool.address for each in functions]
        assert addresses == ["kb:search", "interlock:read_result"]
        assert len(functions) == 2
        assert "kb:find" not in functions


async def test_a_failed_tool_raises_an_error_with_its_result() -> None:
    async with box(kb([described("save")], fail)) as toolbox:
        with pytest.raises(ToolFailed, match="kb:save failed: disk full") as raised:
            await callables(toolbox)["kb:save"]()
        assert raised.value.result.text == "disk\nfull"

        result = await callables(toolbox, returns="result")["kb:save"]()
        assert isinstance(result, CallToolResult)
        assert result.is_error


async def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    server = kb([described("search", object_of(["q"], q={"type": "string"}))])
    async with box(server) as toolbox:
        with pytest.raises(InvalidArguments, match="q"):
            await callables(toolbox)["kb:search"](3)
        with pytest.raises(TypeError, match="missing a required argument"):
            await callables(toolbox)["kb:search"]()

    assert "tools/call" not in [each.get("method") for each in server.received]


async def test_the_caller_is_passed_to_the_stack() -> None:
    seen: list[Caller] = []

    def watch(handle: Any) -> Any:
        async def watched(call: Any) -> Any:
            seen.append(call.caller)
            return await handle(call)

        return watched

    me = Caller(session="mine")
    async with box(kb([described("search")]), around=[watch]) as toolbox:
        await callables(toolbox, caller=me)["kb:search"]()

    assert seen == [replace(me, surface="agent")]


async def test_another_event_loop_may_call() -> None:
    async with box(kb([described("search")])) as toolbox:
        function = callables(toolbox)["kb:search"]

        assert await asyncio.to_thread(lambda: asyncio.run(function(x=1))) == '{"x": 1}'


def test_a_call_after_the_end_of_the_event_loop_raises() -> None:
    async def opened() -> Toolbox:
        toolbox = box(kb([described("search")]))
        await toolbox.open()
        await toolbox.close()
        return toolbox

    threads = threading.active_count()
    toolbox = asyncio.run(opened())

    with pytest.raises(WrongLoop, match="has ended"):
        asyncio.run(_call_anything(toolbox))
    assert threading.active_count() == threads


async def _call_anything(toolbox: Toolbox) -> None:
    from interlock import aio

    await aio.run_in(toolbox.loop, toolbox.refresh)


# Parameters


def test_required_arguments_come_first_and_optional_ones_default_to_none() -> None:
    schema = object_of(
        ["b"], a={"type": "string"}, b={"type": "integer"}, c={"type": "integer", "default": 3}
    )

    assert signature(schema) == "(b: int, a: str | None = None, c: int = 3)"


async def test_argument_with_a_default_is_not_filled_in() -> None:
    schema = object_of(n={"type": "integer", "default": 3})
    async with box(kb([described("count", schema)])) as toolbox:
        assert await callables(toolbox)["kb:count"]() == "{}"


async def test_none_is_sent_only_where_the_schema_accepts_null() -> None:
    members = {"a": {"type": "string"}, "b": {"type": ["string", "null"]}}
    async with box(kb([described("save", object_of(**members))])) as toolbox:
        assert await callables(toolbox)["kb:save"](a=None, b=None) == '{"b": null}'


NASTY = ["x-y", "class", "1st", "", "__x", "self", "ﬁ", "x_y", "x y", "config", "naïve", "ª", "a"]


async def test_parameter_names_that_are_no_identifiers_are_replaced_in_python_only() -> None:
    schema = object_of(**{name: {"type": "integer"} for name in NASTY})
    async with box(kb([described("save", schema)])) as toolbox:
        function = callables(toolbox)["kb:save"]
        names = list(inspect.signature(function).parameters)

        assert names[:7] == ["x_y", "class_", "_1st", "_", "x", "self_", "fi"]
        assert names[7:] == ["x_y_2", "x_y_3", "config_", "naïve", "a", "a_2"]
        sent = json.loads(await function(**{name: at for at, name in enumerate(names)}))
        assert sent == {name: at for at, name in enumerate(NASTY)}


@each_row(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "patternProperties": {"^x": {"type": "integer"}}},
    ],
)
async def test_an_open_schema_gets_a_parameter_for_further_arguments(schema: Json) -> None:
    async with box(kb([described("save", schema)])) as toolbox:
        assert await callables(toolbox)["kb:save"](arguments={"x": 1}) == '{"x": 1}'


def test_a_parameter_whose_schema_is_false_is_left_out() -> None:
    assert signature(object_of(a=False, b=True)) == "(b: Any = None)"


def test_arguments_of_alternatives_are_parameters() -> None:
    schema = {"type": "object", "anyOf": [object_of(a={"type": "string"}), object_of(b={})]}

    assert signature(schema | {"properties": {}}) == "(a: str | None = None, b: Any = None)"


async def test_too_many_parameters_become_keyword_arguments_explained_in_the_docstring() -> None:
    schema = object_of(**{f"a{number}": {} for number in range(MAX_PARAMETERS + 1)})
    async with box(kb([described("save", schema)])) as toolbox:
        function = callables(toolbox)["kb:save"]

        assert await function(a1=1, a64=2) == '{"a1": 1, "a64": 2}'
        assert await function(arguments={"a1": 1}) == '{"a1": 1}'
        assert f"65 arguments, too many for a parameter each (limit {MAX_PARAMETERS})" in str(
            function.__doc__
        )


async def test_a_tool_with_an_argument_called_arguments_gets_it_unchanged() -> None:
    schema = object_of(arguments={}, **{f"a{number}": {} for number in range(MAX_PARAMETERS)})
    async with box(kb([described("save", schema)])) as toolbox:
        function = callables(toolbox)["kb:save"]

        assert await function(arguments={"a1": 1}) == '{"arguments": {"a1": 1}}'


async def test_langchain_binds_and_calls_a_function_with_too_many_arguments() -> None:
    from langchain_core.tools import StructuredTool
    from langchain_core.utils.function_calling import convert_to_openai_tool

    schema = object_of(**{f"a{number}": {} for number in range(120)})
    async with box(kb([described("save", schema)])) as toolbox:
        function: Any = callables(toolbox)["kb:save"]

        offered = convert_to_openai_tool(function)["function"]["parameters"]["properties"]
        tool = StructuredTool.from_function(coroutine=function, parse_docstring=True)
        assert "a119" in offered["arguments"]["description"]
        assert await tool.ainvoke({"arguments": {"a1": 1}}) == '{"a1": 1}'
        assert await tool.ainvoke({}) == "{}"


async def test_descriptions_are_in_the_docstring_and_in_the_hints() -> None:
    member = {"type": "string", "description": "What to\n find\x07" + "x" * 2_000}
    odd = {"enum": [1.5, 2.5], "description": "How."}
    schema = object_of(q=member, odd=odd)
    async with box(kb([described("search", schema, description="Search.")])) as toolbox:
        function = callables(toolbox)["kb:search"]

    text = "What to find" + "x" * 1_012
    doc = f"Search.\n\nArgs:\n    q: {text}\n    odd: How. One of [1.5,2.5].\n"
    assert function.__doc__ == doc
    assert function.__name__ == "kb__search"
    assert get_type_hints(function, include_extras=True)["q"] == Annotated[str | None, text]


async def test_a_function_is_an_ordinary_coroutine_function() -> None:
    async with box(kb([described("search")])) as toolbox:
        function = callables(toolbox)["kb:search"]

    assert inspect.iscoroutinefunction(function)
    assert inspect.isfunction(function)


# Every schema

SCALARS = st.sampled_from(["string", "integer", "number", "boolean", "null"])
NAMES = st.text(alphabet="ab-_1 éﬁ", max_size=3)


def schemas() -> st.SearchStrategy[Any]:
    values = st.one_of(
        st.none(), st.integers(-5, 5), st.text(max_size=2), st.floats(-2, 2), st.just({"a": 1})
    )
    leaves = st.one_of(
        st.builds(lambda kind: {"type": kind}, SCALARS),
        st.builds(lambda types: {"type": types}, st.lists(SCALARS, min_size=1, unique=True)),
        st.builds(lambda values: {"enum": values}, st.lists(values, min_size=1, max_size=4)),
        st.just({}),
        st.just({"$ref": "#/$defs/node"}),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda items: {"type": "array", "items": items}, inner),
            st.builds(_object, st.dictionaries(NAMES, inner, max_size=3), st.booleans()),
            st.builds(lambda extra: {"type": "object", "additionalProperties": extra}, inner),
            st.builds(
                lambda key, members: {key: members},
                st.sampled_from(["anyOf", "oneOf", "allOf"]),
                st.lists(inner, min_size=1, max_size=3),
            ),
        ),
        max_leaves=6,
    )


def _object(members: Json, is_required: bool) -> Json:
    found: Json = {"type": "object", "properties": members}
    return found | {"required": list(members)} if is_required else found


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(NAMES, inner, max_size=2)),
    max_leaves=4,
)
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}


@pytest.mark.slow("tries many examples")
@given(st.dictionaries(NAMES, schemas(), max_size=4), st.booleans(), st.data())
def test_signature_binds_exactly_the_arguments_that_the_schema_accepts(
    members: Json, is_required: bool, data: st.DataObject
) -> None:
    schema = _object(members, is_required) | {"$defs": {"node": NODE}}
    validator = json_schema.compile(json.dumps(schema).encode())
    parameters = Parameters(schema)
    values = {name: data.draw(JSON) for name in members if is_required or data.draw(st.booleans())}
    by_key = {named.key: name for name, named in parameters._named.items()}

    async def function(*args: Any, **kwargs: Any) -> None: ...

    function.__signature__ = parameters.signature  # type: ignore[attr-defined]
    function.__annotations__ = parameters.annotations
    get_type_hints(function, include_extras=True)
    bound = parameters.signature.bind(**{by_key[name]: each for name, each in values.items()})
    if not validator.is_valid(values):
        return
    assert parameters.arguments_of(bound.arguments) == values
    if not any(_has_bool_literal(each) for each in parameters.annotations.values()):
        described = describe(function, Context).input_schema
        # Without a default for null, None is no value of an optional argument.
        renamed = {by_key[name]: each for name, each in values.items()}
        assert json_schema.compile(json.dumps(described).encode()).errors(renamed) == []


def _has_bool_literal(hint: Any) -> bool:
    """Whether msgspec, which describes functions, does not support a hint."""
    if get_origin(hint) is Literal:
        return any(isinstance(each, bool) for each in get_args(hint))
    return any(_has_bool_literal(each) for each in get_args(hint))
