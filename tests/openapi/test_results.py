"""Answers as results: text for the model, and structured content that fits the shape."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import jsonschema_rs
import pytest

from interlock import Client
from interlock.openapi.server import OpenApiServer
from interlock.types import AudioContent, CallToolResult, EmbeddedResource, ImageContent, JsonObject
from tests.openapi.scripted_api import ScriptedApi, http, scripted_api
from tests.support.rows import each_row

SHAPE = {
    "type": "object",
    "required": ["id", "tags"],
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as api:
        yield api


def server(api: ScriptedApi, schema: Any = SHAPE, **tool: Any) -> OpenApiServer:
    content = {"application/json": {"schema": schema}}
    operation = {
        "operationId": "get",
        "parameters": [{"name": "page", "in": "query", "schema": {"type": "integer"}}],
        "responses": {"200": {"description": "It", "content": content}},
    }
    document: JsonObject = {
        "openapi": "3.1.0",
        "info": {"title": "T", "version": "1"},
        "paths": {"/things": {"get": operation, "delete": {"operationId": "delete"}}},
    }
    tools = {"get": {"operation": "get", **tool}, "delete": "delete"}
    return OpenApiServer(document=document, base_url=api.url, tools=tools)


async def get(
    api: ScriptedApi, answer: bytes, schema: Any = SHAPE, name: str = "get", **tool: Any
) -> CallToolResult:
    api.answers = [answer]
    async with Client.memory(server(api, schema, **tool)) as client:
        await client.list_tools()  # so that the structured content is checked
        return await client.call_tool(name)


# JSON


async def test_json_answer_becomes_unchanged_text_and_structured_content(api: ScriptedApi) -> None:
    body = b'{"id": 1, "tags": [], "price": 1.10}'

    result = await get(api, http(200, body, Content_Type="application/json"))

    assert result.text == body.decode()
    assert result.structured == {"id": 1, "tags": [], "price": 1.1}


async def test_indented_json_is_compact_for_the_model(api: ScriptedApi) -> None:
    body = json.dumps({"id": 1, "tags": []}, indent=2).encode()

    result = await get(api, http(200, body, Content_Type="application/hal+json"))

    assert result.text == '{"id":1,"tags":[]}'


@each_row("half", [rb"\ud83d", b"\xed\xa0\xbd"])
async def test_half_of_a_character_costs_no_answer(api: ScriptedApi, half: bytes) -> None:
    body = b'{"id":1,"tags":["a %b"]}' % half

    result = await get(api, http(200, body, Content_Type="application/json"))

    assert result.structured == {"id": 1, "tags": ["a \ufffd"]}


async def test_a_byte_order_mark_before_json_is_ignored(api: ScriptedApi) -> None:
    body = b'\xef\xbb\xbf{"id":1}'

    assert (await get(api, http(200, body, Content_Type="application/json"))).structured == {
        "id": 1
    }


@each_row(
    ("body", "structured"),
    [
        ('{"id":"x","tags":["a"]}', {"tags": ["a"]}),
        ('{"id":1,"tags":["a",5]}', {"id": 1, "tags": ["a"]}),
        ('{"id":null,"name":null,"tags":null}', {"id": None, "name": None, "tags": None}),
        ('{"other":true}', {"other": True}),
        ("[1,2]", {}),
        ('"text"', {}),
        ("null", {}),
    ],
)
async def test_an_answer_that_breaks_its_schema_is_a_success_with_the_parts_that_fit(
    api: ScriptedApi, body: str, structured: Any
) -> None:
    api.answers = [http(200, body.encode(), Content_Type="application/json")]
    async with Client.memory(server(api)) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        result = await client.call_tool("get")

    assert not result.is_error
    assert result.text == body
    assert result.structured == structured
    # A strict client refuses a result that does not fit.
    assert jsonschema_rs.is_valid(tools["get"].output_schema, result.structured)


async def test_response_that_violates_its_schema_is_counted_and_its_value_is_not_logged(
    api: ScriptedApi,
) -> None:
    api.answers = [http(200, b'{"id":"canary"}', Content_Type="application/json")]
    served = server(api)
    async with Client.memory(served) as client:
        await client.call_tool("get")
        await client.call_tool("get")

    assert served.flagged == ("tool 'get': id is a string (2 times)",)


async def test_invalid_json_is_text_and_counted(api: ScriptedApi) -> None:
    result = await get(api, http(200, b'{"id":', Content_Type="application/json"))

    assert (result.text, result.structured, result.is_error) == ('{"id":', {}, False)


async def test_result_is_text_only_if_output_is_none(api: ScriptedApi) -> None:
    answer = http(200, b'{"id":1}', Content_Type="application/json")

    result = await get(api, answer, output="none")

    assert result.structured is None


async def test_a_list_as_the_whole_answer_is_structured_for_every_revision(
    api: ScriptedApi,
) -> None:
    answer = http(200, b"[1,2]", Content_Type="application/json")
    api.answers = [answer]
    served = server(api, {"type": "array", "items": {"type": "integer"}})
    async with Client.memory(served, revision="legacy") as client:
        await client.list_tools()
        legacy = await client.call_tool("get")
    modern = await get(api, answer, {"type": "array", "items": {"type": "integer"}})

    assert legacy.structured == {"result": [1, 2]}
    assert modern.structured == [1, 2]


# Other bodies


@each_row(
    ("content_type", "body"),
    [
        ("text/plain; charset=iso-8859-1", "é".encode("latin-1")),
        ("text/plain; charset=unknown", "é".encode()),
        ("text/csv", b"\xe9"),
        ("application/xml", "é".encode()),
        ("application/x-ndjson", "é".encode()),
        ("text/plain; charset=utf-16", "é".encode("utf-16")),
    ],
)
async def test_text_is_decoded_by_its_charset_else_as_utf_8_else_as_latin_1(
    api: ScriptedApi, content_type: str, body: bytes
) -> None:
    assert (await get(api, http(200, body, Content_Type=content_type))).text == "é"


@each_row(
    ("content_type", "kind"),
    [
        ("image/png", ImageContent),
        ("audio/wav", AudioContent),
        ("application/pdf", EmbeddedResource),
        ("application/json", EmbeddedResource),  # which it is not
        ("", EmbeddedResource),
    ],
)
async def test_bytes_are_content_of_their_kind_and_never_text(
    api: ScriptedApi, content_type: str, kind: type
) -> None:
    answer = http(200, b"\x89PNG\x00\xff", Content_Type=content_type)

    (content,) = (await get(api, answer)).content

    assert isinstance(content, kind)


async def test_a_file_has_the_name_of_its_content_disposition(api: ScriptedApi) -> None:
    answer = http(
        200,
        b"\x00",
        Content_Type="application/zip",
        Content_Disposition='attachment; filename="../../a b.zip"',
    )

    (content,) = (await get(api, answer)).content

    assert isinstance(content, EmbeddedResource)
    assert content.resource.uri == "file:///a b.zip"
    assert content.resource.mime_type == "application/zip"


@each_row("status", [204, 205, 200])
async def test_an_empty_answer_is_done_with_an_empty_structure(
    api: ScriptedApi, status: int
) -> None:
    result = await get(api, http(status))

    assert (result.text, result.structured) == (f"Done ({status}).", {})


async def test_a_stream_of_events_is_text_up_to_the_end(api: ScriptedApi) -> None:
    answer = (
        b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: 1\n\n"
    )

    assert (await get(api, answer)).text == "data: 1\n\n"


async def test_body_over_the_limit_is_cut_off_with_a_notice(api: ScriptedApi) -> None:
    answer = http(200, b"a" * 5_000, Content_Type="text/plain")

    result = await get(api, answer, maxAnswerBytes=1_000)

    assert "The answer is cut off after 1,000 bytes." in result.text
    assert len(result.text) < 1_100


@pytest.mark.slow("works through much data")
async def test_limit_of_a_compressed_body_applies_to_the_decompressed_size(
    api: ScriptedApi,
) -> None:
    bomb = gzip.compress(b"a" * 50_000_000)
    answer = http(200, bomb, Content_Type="text/plain", Content_Encoding="gzip")

    result = await get(api, answer, maxAnswerBytes=100_000)

    assert "cut off" in result.text
    assert len(result.text) < 110_000


# Notes


@each_row(
    ("status", "headers", "line"),
    [
        (201, {"Location": "http://x.example/things/7?a=1"}, "Created: /things/7?a=1"),
        (202, {"Location": "/jobs/1"}, "Accepted: /jobs/1"),
        (202, {"Retry_After": "3"}, "Accepted; call again after 3 s."),
        (200, {"Link": '</things?page=2>; rel="next", </x>; rel="last"'}, "page=2"),
        (200, {"X_Next_Page": "9"}, "More: call again with page=9"),
    ],
)
async def test_relevant_response_headers_are_the_last_line_of_the_result(
    api: ScriptedApi, status: int, headers: dict[str, str], line: str
) -> None:
    result = await get(api, http(status, b"x", Content_Type="text/plain", **headers))

    assert result.text.splitlines()[-1].endswith(line)


async def test_a_next_page_on_another_path_is_not_proposed(api: ScriptedApi) -> None:
    answer = http(200, b"x", Content_Type="text/plain", Link='</other?page=2>; rel="next"')

    assert (await get(api, answer)).text == "x"


@each_row(
    "headers",
    [
        {"Link": "<http://[>; rel=next"},
        {"Link": "<a" * 2_000},
        {"Content_Type": "text/plain; charset=punycode"},
        {"Content_Type": "text/plain; charset=undefined"},
        {"Content_Type": "text/plain; charset=idna"},
    ],
    ids=["invalid URL", "half a link", "punycode", "undefined", "idna"],
)
async def test_a_header_that_cannot_be_read_fails_no_call(
    api: ScriptedApi, headers: dict[str, str]
) -> None:
    body = b"a-" + b"zz9" * 100_000  # its punycode would take minutes
    result = await get(api, http(200, body, **{"Content_Type": "text/plain"} | headers))

    assert not result.is_error
    assert result.text == body.decode()


async def test_invalid_location_header_is_shown_unchanged(api: ScriptedApi) -> None:
    result = await get(api, http(201, b"{}", Content_Type="application/json", Location="http://["))

    assert result.text == "{}\nCreated: http://["


@each_row("location", ["javascript:alert(1)", "http://[::1", "file:///etc/passwd"])
async def test_redirect_to_a_url_that_is_not_http_is_an_error_without_a_link(
    api: ScriptedApi, location: str
) -> None:
    result = await get(api, http(302, Location=location))

    assert result.is_error
    assert result.text == "302 Found: GET /things is redirected to an invalid URL"
