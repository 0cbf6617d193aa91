"""Functions as resources, prompts and completions: text arguments, queries and choices."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from interlock import Client, Context, Depends, Server
from interlock.errors import RemoteError, SignatureError, UnknownResource
from interlock.types import (
    GetPromptResult,
    PromptReference,
    ReadResourceResult,
    ResourceContents,
    ResourceTemplateReference,
)
from tests.support.rows import each_row

BOTH = pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])


@each_row(("revision", "code"), [("2026-07-28", -32602), ("2025-11-25", -32002)])
async def test_a_function_that_raises_unknown_resource_answers_not_found(
    revision: str, code: int
) -> None:
    server = Server("notes")

    @server.resource("notes://{name}")
    async def note(name: str) -> str:
        raise UnknownResource(f"notes://{name}")

    async with Client.memory(server, revision=revision) as client:
        with pytest.raises(RemoteError) as caught:
            await client.read_resource("notes://nothing")

    assert caught.value.code == code
    assert caught.value.data == {"uri": "notes://nothing"}


@each_row(
    ("uri", "read"),
    [
        ("docs://a/../b", None),
        ("docs://%2e%2e/x", None),
        ("docs:///x", None),
        ("docs://x%00", None),
        ("docs://a/b..c", "a/b..c"),
    ],
)
async def test_a_value_that_would_leave_its_folder_is_an_unknown_resource(
    uri: str, read: str | None
):
    server = Server("docs")
    received = []

    @server.resource("docs://{+path}")
    async def doc(path: str) -> str:
        received.append(path)
        return path

    async with Client.memory(server) as client:
        if read is None:
            with pytest.raises(RemoteError) as caught:
                await client.read_resource(uri)
            assert caught.value.code == -32602
        else:
            assert (await client.read_resource(uri)).text == read

    assert received == [read] * (read is not None)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Model:
    size: int


server = Server("s")


@server.resource("x://{k}{?n,color}")
async def found(k: str, n: int = 1, color: Color = Color.RED) -> str:
    return f"{k} {n} {color.name}"


@server.prompt
async def ask(
    tags: list[str],
    when: date,
    m: Annotated[Model, Meta(description="The model.")],
    level: Literal["low", "high"] = "low",
    color: Color | None = None,
    sure: bool = False,
    count: int | None = None,
    anything: Any = None,
    mixed: str | list[str] = "",
    number: Literal[1, 2] = 1,
) -> list[str]:
    """Ask.

    Args:
        tags: The tags.
    """
    return [
        repr(each) for each in (tags, when, m, level, color, sure, count, anything, mixed, number)
    ]


@BOTH
@each_row(
    ("uri", "text"),
    [
        ("x://a", "a 1 RED"),
        ("x://a?n=2", "a 2 RED"),
        ("x://a?color=blue&n=2", "a 2 BLUE"),
        ("x://a?n=2&color=blue", "a 2 BLUE"),
    ],
)
async def test_a_query_fills_parameters_that_have_defaults(revision, uri, text):
    async with Client.memory(server, revision=revision) as client:
        templates = await client.list_resource_templates()
        assert [each.uri_template for each in templates] == ["x://{k}{?n,color}"]
        assert (await client.read_resource(uri)).text == text


@each_row(
    ("uri", "says"),
    [("x://a?n=many", "n: expected `int`"), ("x://a?size=1", "x://a.size=1")],
)
async def test_a_query_that_does_not_fit_is_refused(uri, says):
    async with Client.memory(server) as client:
        with pytest.raises(RemoteError, match=says):
            await client.read_resource(uri)


def test_a_query_variable_without_default_is_refused():
    with pytest.raises(
        SignatureError, match="query variable 'n' may be absent; give its parameter"
    ):
        Server("s").resource("x://{k}{?n}")(lambda_of(k=str, n=int))


async def test_a_parameter_with_a_default_may_be_missing_from_the_uri():
    server = Server("s")

    def user(name: str = "", email: str = "") -> ReadResourceResult:
        text = f"{name} {email}"
        return ReadResourceResult(contents=[ResourceContents(uri="users://", text=text)])

    server.resource("users://name/{name}")(user)
    server.resource("users://email/{email}")(user)
    server.resource("users://all")(user)
    async with Client.memory(server) as client:
        for uri, text in (
            ("users://name/Bo", "Bo "),
            ("users://email/a@b.c", " a@b.c"),
            ("users://all", " "),
            ("users://name/Bo?email=a@b.c", "Bo?email=a@b.c "),  # the URI cannot set the email
        ):
            assert (await client.read_resource(uri)).text == text


async def test_a_prompt_may_return_its_whole_result():
    server = Server("s")

    @server.prompt
    def review() -> GetPromptResult:
        return GetPromptResult(messages=[], description="whole")

    async with Client.memory(server) as client:
        assert (await client.get_prompt("review")).description == "whole"


def lambda_of(**hints: Any) -> Any:
    def function(k, n): ...

    function.__annotations__ = hints
    return function


@BOTH
async def test_prompt_arguments_are_text_or_json_text(revision):
    async with Client.memory(server, revision=revision) as client:
        prompt = (await client.list_prompts())[0]
        given = {"tags": '["a"]', "when": "2026-11-27", "m": '{"size": 3}', "color": "blue"}
        more = {"sure": "true", "count": "5", "anything": "[plain text", "number": "2"}
        texts = [
            (await client.get_prompt("ask", {**given, "mixed": text})).messages[8].content.text
            for text in ("a", "1", '["a"]')
        ]
        answer = await client.get_prompt("ask", {**given, **more})

    described = {each.name: each.description for each in prompt.arguments or []}
    array = '{"type":"array","items":{"type":"string"}}'
    assert described["tags"] == f"The tags. JSON text that fits {array}"
    assert (described["m"] or "").startswith('The model. JSON text that fits {"')
    assert {described[name] for name in ("when", "level", "sure", "count", "anything")} == {None}
    assert [each.content.text for each in answer.messages] == [
        "['a']",
        "datetime.date(2026, 11, 27)",
        "Model(size=3)",
        "'low'",
        "<Color.BLUE: 'blue'>",
        "True",
        "5",
        "'[plain text'",
        "''",
        "2",
    ]
    assert texts == ["'a'", "'1'", "['a']"]


@each_row(
    ("changed", "says"),
    [
        ({"tags": "secret"}, "tags: not valid JSON; send JSON text that fits"),
        ({"tags": '{"secret": 1}'}, "tags: expected `array`, got `object`"),
        ({"m": "{}"}, "missing required member 'size'"),
        ({"when": "soon"}, "when: "),
        ({"level": "secret"}, "level: not one of the values allowed"),
    ],
)
async def test_a_prompt_argument_that_does_not_fit_is_named_without_its_value(changed, says):
    given = {"tags": "[]", "when": "2026-11-27", "m": '{"size": 3}', **changed}
    async with Client.memory(server) as client:
        with pytest.raises(RemoteError, match="prompt 'ask': ") as raised:
            await client.get_prompt("ask", given)

    assert says.lower() in str(raised.value).lower()
    assert "secret" not in str(raised.value)


@BOTH
@each_row(
    ("ref", "argument", "typed", "values"),
    [
        ("ask", "level", "", ["high", "low"]),
        ("ask", "level", "L", ["low"]),
        ("ask", "color", "b", ["blue"]),
        ("ask", "sure", "t", ["true"]),
        ("ask", "tags", "", []),
        ("ask", "when", "", []),
        ("x://{k}{?n,color}", "color", "r", ["red"]),
        ("x://{k}{?n,color}", "k", "", []),
    ],
)
async def test_choices_complete_themselves(revision, ref, argument, typed, values):
    reference = ResourceTemplateReference(uri=ref) if "://" in ref else PromptReference(name=ref)
    async with Client.memory(server, revision=revision) as client:
        found = await client.complete(reference, argument, typed)

    assert sorted(found.values) == values


async def test_a_function_for_completion_replaces_the_choices():
    other = Server("s")

    @other.prompt
    async def ask(level: Literal["low", "high"]) -> str:
        return level

    @other.completion("ask", "level")
    async def levels(typed: str) -> list[str]:
        return [f"{typed}!"]

    async with Client.memory(other) as client:
        found = await client.complete(PromptReference(name="ask"), "level", "l")

    assert found.values == ["l!"]


async def value_of(typed: str) -> str:
    return typed


@each_row("hints", [{"typed": str, "other": Annotated[str, Depends(value_of)]}, {"other": Context}])
def test_a_completion_with_dependencies_or_a_context_is_refused(hints):
    def suggest(typed, other): ...

    suggest.__annotations__ = hints
    with pytest.raises(SignatureError, match="suggest can have neither dependencies nor a context"):
        Server("s").completion("ask", "level")(suggest)
