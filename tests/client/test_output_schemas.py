"""What the results of tools must look like."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import (
    RemoteProtocolError,
)
from tests.client.scripted import client_of
from tests.support.rows import each_row
from tests.support.scripted_server import (
    Answer,
    Json,
    ScriptedServer,
    text,
    tool,
)

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def call_checked(schema: Json, result: Json) -> Any:
    answers: dict[str, Answer] = {
        "tools/list": {"tools": [tool("x", outputSchema=schema)]},
        "tools/call": result,
    }
    async with client_of(ScriptedServer(answers=answers)) as client:
        await client.list_tools()
        return await client.call_tool("x")


async def test_structured_content_that_matches_the_output_schema_is_returned():
    result = await call_checked(NUMBER, text("", structuredContent={"n": 1, "more": True}))

    assert result.structured == {"n": 1, "more": True}


@each_row(
    ("result", "problem"),
    [
        (text("1"), "has an outputSchema but returned no structuredContent"),
        (text("", structuredContent={"n": "1"}), "does not fit its outputSchema: n"),
        (text("", structuredContent=None), "does not fit its outputSchema"),
    ],
)
async def test_structured_content_that_violates_the_output_schema_is_a_protocol_error(
    result: Json, problem: str
):
    with pytest.raises(RemoteProtocolError, match=problem):
        await call_checked(NUMBER, result)


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
        with pytest.raises(RemoteProtocolError, match="does not fit"):
            await client.call_tool("x")
        await client.list_tools()
        assert (await client.call_tool("x")).structured == {"n": "1"}


async def test_failed_call_needs_no_structured_content():
    assert (await call_checked(NUMBER, text("no", isError=True))).is_error


@each_row("schema", [{"$ref": "http://127.0.0.1:9/x"}, {"type": "nonsense"}, {"minimum": "x"}])
async def test_result_is_returned_unchecked_if_the_output_schema_is_unusable(schema: Json):
    assert (await call_checked(schema, text("fine"))).text == "fine"
