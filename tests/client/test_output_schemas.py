"""What the results of tools must look like."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import RemoteProtocolError
from tests.client.scripted import client_of
from tests.support.rows import each_row
from tests.support.scripted_server import Answer, Json, ScriptedServer, text, tool

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def call_checked(schema: Json, result: Json, **options: Any) -> Any:
    answers: dict[str, Answer] = {
        "tools/list": {"tools": [tool("x", outputSchema=schema)]},
        "tools/call": result,
    }
    async with client_of(ScriptedServer(answers=answers), **options) as client:
        await client.list_tools()
        return await client.call_tool("x")


async def test_structured_content_that_matches_the_output_schema_is_returned():
    result = await call_checked(NUMBER, text("", structuredContent={"n": 1, "more": True}))

    assert result.structured == {"n": 1, "more": True}


@each_row(
    ("result", "problem"),
    [
        (text("1"), "has no structuredContent, which its outputSchema demands"),
        (text("1", structuredContent={"n": "1"}), "does not fit its outputSchema: n: '1' is not"),
        (text("1", structuredContent=None), "does not fit its outputSchema: null is not an object"),
    ],
)
async def test_a_result_that_breaks_its_schema_is_kept_with_a_warning_or_raised_if_strict(
    result: Json, problem: str
):
    found = await call_checked(NUMBER, result)
    with pytest.raises(RemoteProtocolError, match=f"the result of tool 'x' {problem}"):
        await call_checked(NUMBER, result, strict_output=True)

    assert (found.text, found.is_error) == ("1", False)
    assert found.warning.startswith(f"the tool ran, but its result {problem}")


async def test_output_is_validated_against_the_latest_listed_schema():
    schemas = [NUMBER, {"type": "object"}]
    server = ScriptedServer(
        answers={
            "tools/list": lambda _: {"tools": [tool("x", outputSchema=schemas.pop(0))]},
            "tools/call": text("", structuredContent={"n": "1"}),
        }
    )
    async with client_of(server) as client:
        await client.list_tools()
        assert "does not fit" in (await client.call_tool("x")).warning
        await client.list_tools()
        assert (await client.call_tool("x")).warning == ""


async def test_failed_call_needs_no_structured_content():
    assert (await call_checked(NUMBER, text("no", isError=True))).is_error


@each_row("schema", [{"$ref": "http://127.0.0.1:9/x"}, {"type": "nonsense"}, {"minimum": "x"}])
async def test_result_is_returned_unchecked_if_the_output_schema_is_unusable(schema: Json):
    assert (await call_checked(schema, text("fine"))).text == "fine"
