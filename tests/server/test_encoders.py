"""Results in each revision: nothing that it lacks, everything that it requires."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import Raw

from interlock import Client, Server
from interlock.revisions import ALL, LEGACY
from interlock.server.encoders import Encoder
from interlock.types import (
    Annotations,
    AudioContent,
    CallToolResult,
    Completion,
    EmbeddedResource,
    Icon,
    Implementation,
    ResourceContents,
    ResourceLink,
    TextContent,
    ToolAnnotations,
    UnknownContent,
)
from tests.support.rows import each_row

OLDEST, SECOND, THIRD, LAST_LEGACY, MODERN = ALL
INFO = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "2"}}
COMPLETE = {"resultType": "complete", "_meta": INFO}
CACHED = {"ttlMs": 0, "cacheScope": "private", **COMPLETE}
ICON = {"src": "https://example.com/a.png"}

SOUND = AudioContent(data="Ug==", mime_type="audio/wav")


@dataclass
class Hit:
    name: str
    inner: Hit | None = None


@pytest.fixture
def server() -> Server:
    return Server("s", version="2")


@pytest.fixture
def asker(connect):
    """Send a request in any revision; return the whole result."""

    async def ask(
        server: Server, revision: str, method: str, params: dict[str, Any] | None = None
    ) -> Any:
        wire = await connect(server)
        if revision == MODERN:
            answer = await wire.modern(method, params)
        else:
            await wire.initialize(revision)
            answer = await wire.call(method, params)
        return answer["result"]

    return ask


# Lists

TOOL = {
    "name": "t",
    "description": "Do it.",
    "inputSchema": {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    },
}
WRAPPED = {
    "type": "object",
    "properties": {"result": {"type": "array", "items": {"type": "integer"}}},
    "required": ["result"],
}


@each_row(
    ("revision", "more"),
    [
        (OLDEST, {}),
        (SECOND, {"annotations": {"readOnlyHint": True}}),
        (THIRD, {"annotations": {"readOnlyHint": True}, "title": "T", "_meta": {"a/b": 1}, "outputSchema": WRAPPED}),  # noqa: E501
        (LAST_LEGACY, {"annotations": {"readOnlyHint": True}, "title": "T", "_meta": {"a/b": 1}, "icons": [ICON], "outputSchema": WRAPPED}),  # noqa: E501
        (MODERN, {"annotations": {"readOnlyHint": True}, "title": "T", "_meta": {"a/b": 1}, "icons": [ICON], "outputSchema": {"type": "array", "items": {"type": "integer"}}}),  # noqa: E501
    ],
)  # fmt: skip
async def test_a_listed_tool_has_the_members_of_its_revision(asker, revision, more):
    server = Server("s", version="2")

    @server.tool(
        name="t",
        title="T",
        annotations=ToolAnnotations(read_only_hint=True),
        icons=[Icon(src=ICON["src"])],
        meta={"a/b": 1},
    )
    def function() -> list[int]:
        """Do it."""

    result = await asker(server, revision, "tools/list")

    assert result == {"tools": [{**TOOL, **more}], **(CACHED if revision == MODERN else {})}


@each_row("revision", ALL)
async def test_listed_resources_templates_and_prompts_have_the_members_of_their_revision(
    asker, revision
):
    server = Server("s", version="2")
    options: Any = {"title": "T", "icons": [Icon(src=ICON["src"])], "meta": {"a/b": 1}}

    @server.resource("notes://all", mime_type="text/plain", **options)
    def notes() -> str:
        """All notes."""
        return ""

    @server.resource("notes://{name}", **options)
    def note(name: str) -> str:
        """One note."""
        return ""

    @server.prompt(**options)
    def sum_up(length: str, style: str = "plain") -> str:
        """Sum up.

        Args:
            length: In words.
        """
        return ""

    since_third = {"title": "T", "_meta": {"a/b": 1}} if revision not in LEGACY[:2] else {}
    more = {**since_third, **({"icons": [ICON]} if revision in (LAST_LEGACY, MODERN) else {})}
    cached = CACHED if revision == MODERN else {}

    assert await asker(server, revision, "resources/list") == {
        "resources": [
            {"uri": "notes://all", "name": "notes", "description": "All notes.", "mimeType": "text/plain", **more}  # noqa: E501
        ],
        **cached,
    }  # fmt: skip
    assert await asker(server, revision, "resources/templates/list") == {
        "resourceTemplates": [
            {"uriTemplate": "notes://{name}", "name": "note", "description": "One note.", **more}
        ],
        **cached,
    }
    assert await asker(server, revision, "prompts/list") == {
        "prompts": [
            {
                "name": "sum_up",
                "description": "Sum up.",
                "arguments": [
                    {"name": "length", "description": "In words.", "required": True},
                    {"name": "style"},
                ],
                **more,
            }
        ],
        **cached,
    }


# Calls


@each_row("revision", ALL)
async def test_text_result_is_sent_in_the_form_of_each_revision(asker, revision):
    server = Server("s", version="2")
    server.tool(name="t")(lambda: "hello")

    result = await asker(server, revision, "tools/call", {"name": "t"})

    more = COMPLETE if revision == MODERN else {}
    assert result == {"content": [{"type": "text", "text": "hello"}], **more}


@each_row("revision", ALL)
async def test_a_result_without_content_has_an_empty_list(asker, revision):
    server = Server("s", version="2")
    server.tool(name="t")(lambda: None)

    result = await asker(server, revision, "tools/call", {"name": "t"})

    assert result == {"content": [], **(COMPLETE if revision == MODERN else {})}


@each_row("revision", ALL)
async def test_a_failed_call_has_is_error(asker, revision):
    server = Server("s", version="2")
    server.tool(name="t")(lambda: CallToolResult(content=[TextContent(text="no")], is_error=True))

    result = await asker(server, revision, "tools/call", {"name": "t"})

    assert result["isError"] is True


@each_row(
    ("revision", "structured"),
    [(OLDEST, None), (SECOND, None), (THIRD, {"result": [1]}), (LAST_LEGACY, {"result": [1]}), (MODERN, [1])],  # noqa: E501
)  # fmt: skip
async def test_a_structured_list_is_wrapped_for_legacy_clients(asker, revision, structured):
    server = Server("s", version="2")

    def function() -> list[int]:
        return [1]

    server.tool(name="t")(function)

    result = await asker(server, revision, "tools/call", {"name": "t"})

    assert result["content"] == [{"type": "text", "text": "[1]"}]
    assert result.get("structuredContent") == structured


@each_row("revision", ALL)
@each_row("hint", [Hit, Hit | None, list[Hit], dict[str, Hit], int | None])
async def test_output_schema_and_result_are_wrapped_alike(revision, hint):
    server = Server("s")
    values = {
        Hit: Hit("a", Hit("b")),
        Hit | None: Hit("a"),
        list[Hit]: [Hit("a", Hit("b"))],
        dict[str, Hit]: {"a": Hit("b")},
    }

    def give():
        return values.get(hint)

    give.__annotations__ = {"return": hint}
    server.tool(name="t")(give)

    async with Client.memory(server, revision=revision) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool("t")  # the client checks it against the schema

    assert not result.is_error
    assert result.text
    if revision in (THIRD, LAST_LEGACY):
        assert (tool.output_schema or {})["type"] == "object"
        assert isinstance(result.structured, dict)


@each_row("revision", ALL)
async def test_content_that_a_revision_lacks_becomes_text(asker, revision):
    server = Server("s", version="2")
    link = ResourceLink(uri="notes://a", name="a", meta={"a/b": 1})
    embedded = EmbeddedResource(resource=ResourceContents(uri="notes://a", text="t"))
    blocks = [TextContent(text="x", meta={"a/b": 1}), SOUND, link, embedded]
    server.tool(name="t")(lambda: blocks)

    text, sound, linked, resource = (await asker(server, revision, "tools/call", {"name": "t"}))[
        "content"
    ]

    new = revision not in LEGACY[:2]
    assert text == {"type": "text", "text": "x", **({"_meta": {"a/b": 1}} if new else {})}
    assert resource == {"type": "resource", "resource": {"uri": "notes://a", "text": "t"}}
    assert linked == (
        {"type": "resource_link", "uri": "notes://a", "name": "a", "_meta": {"a/b": 1}}
        if new
        else {"type": "text", "text": "a: notes://a"}
    )
    assert sound == (
        {"type": "text", "text": "[audio, audio/wav]"}
        if revision == OLDEST
        else {"type": "audio", "data": "Ug==", "mimeType": "audio/wav"}
    )


@each_row("revision", ALL)
async def test_members_of_content_that_a_revision_lacks_are_left_out(asker, revision):
    server = Server("s", version="2")
    hints = Annotations(priority=0.5, last_modified="2026-01-01T00:00:00Z")
    contents = ResourceContents(uri="notes://a", text="t", meta={"a/b": 1})
    link = ResourceLink(uri="notes://a", name="a", icons=[Icon(src=ICON["src"])])
    server.tool(name="t")(lambda: [EmbeddedResource(resource=contents, annotations=hints), link])
    server.resource("notes://a", name="a", annotations=hints)(lambda: contents)

    embedded, linked = (await asker(server, revision, "tools/call", {"name": "t"}))["content"]
    (listed,) = (await asker(server, revision, "resources/list"))["resources"]
    (read,) = (await asker(server, revision, "resources/read", {"uri": "notes://a"}))["contents"]

    new = revision not in LEGACY[:2]
    known = {"priority": 0.5, **({"lastModified": "2026-01-01T00:00:00Z"} if new else {})}
    assert embedded["annotations"] == listed["annotations"] == known
    assert embedded["resource"] == read
    assert ("_meta" in read) == new
    assert ("icons" in linked) == (revision in (LAST_LEGACY, MODERN))


@each_row("revision", ALL)
async def test_meta_of_a_result_is_sent_since_2025_06_18(asker, revision):
    server = Server("s", version="2")
    server.tool(name="t")(lambda: CallToolResult(meta={"a/b": 1}))

    result = await asker(server, revision, "tools/call", {"name": "t"})

    expected = {"_meta": {"a/b": 1}} if revision in (THIRD, LAST_LEGACY) else {}
    if revision == MODERN:
        expected = {"resultType": "complete", "_meta": {**INFO, "a/b": 1}}
    assert result == {"content": [], **expected}


# Other results


@each_row("revision", ALL)
async def test_contents_and_prompts_in_each_revision(asker, revision):
    server = Server("s", version="2")

    @server.resource("notes://{name}", ttl_ms=5000, cache_scope="public")
    def note(name: str) -> str:
        return f"note {name}"

    @server.prompt
    def empty() -> list[str]:
        return []

    @server.prompt
    def sound(name: str) -> Any:
        """Hear it."""
        return [name, SOUND]

    modern = revision == MODERN
    assert await asker(server, revision, "resources/read", {"uri": "notes://a"}) == {
        "contents": [{"uri": "notes://a", "mimeType": "text/plain", "text": "note a"}],
        **({**COMPLETE, "ttlMs": 5000, "cacheScope": "public"} if modern else {}),
    }
    assert await asker(server, revision, "prompts/get", {"name": "empty"}) == {
        "messages": [],
        **(COMPLETE if modern else {}),
    }
    heard = await asker(
        server, revision, "prompts/get", {"name": "sound", "arguments": {"name": "a"}}
    )
    assert heard["description"] == "Hear it."
    assert heard["messages"][0] == {"role": "user", "content": {"type": "text", "text": "a"}}
    kind = heard["messages"][1]["content"]["type"]
    assert kind == ("text" if revision == OLDEST else "audio")


@each_row("revision", ALL)
async def test_completion_without_values_has_an_empty_list(asker, revision):
    server = Server("s", version="2")

    @server.prompt
    def greet(name: str) -> str:
        return name

    @server.completion("greet", "name")
    def names(value: str) -> list[str]:
        return [each for each in ("Ada", "Bob") if each.startswith(value)]

    def params(value: str) -> dict[str, Any]:
        ref = {"type": "ref/prompt", "name": "greet"}
        return {"ref": ref, "argument": {"name": "name", "value": value}}

    more = COMPLETE if revision == MODERN else {}
    for value, values in (("A", ["Ada"]), ("Z", [])):
        assert await asker(server, revision, "completion/complete", params(value)) == {
            "completion": {"values": values, "total": len(values)},
            **more,
        }


@each_row("revision", LEGACY)
async def test_ping_and_set_level_have_empty_results(asker, revision):
    server = Server("s", version="2")
    assert await asker(server, revision, "ping") == {}
    assert await asker(server, revision, "logging/setLevel", {"level": "error"}) == {}


async def test_a_server_states_its_identity_in_each_revision(connect):
    server = Server("s", version="2", instructions="Be kind.", title="S", website_url="https://s")
    server.tool(name="t")(lambda: "")
    wire = await connect(server)

    found = (await wire.modern("server/discover"))["result"]
    told = {revision: await (await connect(server)).initialize(revision) for revision in LEGACY}

    full = {"name": "s", "version": "2", "title": "S", "websiteUrl": "https://s"}
    assert found == {
        "supportedVersions": [MODERN],
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
        "instructions": "Be kind.",
        "ttlMs": 0,
        "cacheScope": "private",
        "resultType": "complete",
        "_meta": {"io.modelcontextprotocol/serverInfo": full},
    }
    for revision, result in told.items():
        known = {"name": "s", "version": "2"}
        known |= {} if revision in (OLDEST, SECOND) else {"title": "S"}
        known |= {"websiteUrl": "https://s"} if revision == LAST_LEGACY else {}
        assert result["protocolVersion"] == revision
        assert result["instructions"] == "Be kind."
        assert result["capabilities"] == {"tools": {"listChanged": True}, "logging": {}}
        assert result["serverInfo"] == known


# Caching and paging


async def test_a_list_is_encoded_once_until_it_changes(server: Server, connect, monkeypatch):
    encoder = server._methods._encoder
    encoded = []
    listing = encoder.listing

    def count(*args: Any, **options: Any) -> bytes:
        encoded.append(args[2])
        return listing(*args, **options)

    monkeypatch.setattr(encoder, "listing", count)
    server.tool(name="one")(lambda: "")
    wire = await connect(server)
    for _ in range(3):
        await wire.modern("tools/list")
    server.tool(name="two")(lambda: "")
    names = [
        [tool["name"] for tool in (await wire.modern("tools/list"))["result"]["tools"]]
        for _ in range(3)
    ]
    server.remove_tool("one")
    server.remove_tool("two")
    answer = await wire.modern("tools/list")

    assert names == [["one", "two"]] * 3
    assert encoded == [MODERN] * 2
    assert answer["error"]["code"] == -32601  # without tools the method is unknown


@pytest.mark.slow("works through much data")
async def test_long_lists_come_in_pages_in_the_order_of_definition(server: Server, connect):
    for number in range(2_345):
        server.tool(name=f"tool_{number}")(lambda: "")
    wire = await connect(server)
    names: list[str] = []
    sizes = []
    cursor: dict[str, Any] = {}
    while True:
        page = (await wire.modern("tools/list", cursor))["result"]
        names += [tool["name"] for tool in page["tools"]]
        sizes.append(len(page["tools"]))
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}

    assert sizes == [1000, 1000, 345]
    assert names == [f"tool_{number}" for number in range(2_345)]
    for first in ("", None):
        page = await wire.modern("tools/list", {"cursor": first})
        assert len(page["result"]["tools"]) == 1000
    for cursor in ("x", "-1", "0", "7", "9000", 5, "1" * 50, "１"):
        answer = await wire.modern("tools/list", {"cursor": cursor})
        assert answer["error"]["code"] == -32602, cursor
    assert len(server._methods._pages) == 3  # invalid cursors are not cached


async def test_completion_has_at_most_a_hundred_values(server: Server, connect):
    server.prompt(greet)

    @server.completion("greet", "name")
    async def names(value: str, arguments: dict[str, str]) -> list[str]:
        return [f"{value}{arguments.get('before', '')}{number}" for number in range(150)]

    wire = await connect(server)
    params = {
        "ref": {"type": "ref/prompt", "name": "greet"},
        "argument": {"name": "name", "value": "a"},
        "context": {"arguments": {"before": "-"}},
    }
    completion = (await wire.modern("completion/complete", params))["result"]["completion"]

    assert len(completion["values"]) == 100
    assert completion["values"][0] == "a-0"
    assert (completion["total"], completion["hasMore"]) == (150, True)


async def test_a_function_may_return_a_completion(server: Server, connect):
    server.prompt(greet)
    server.completion("greet", "name")(lambda value: Completion(values=["x"], total=7))
    wire = await connect(server)
    ref = {"type": "ref/prompt", "name": "greet"}
    params = {"ref": ref, "argument": {"name": "name", "value": ""}}

    result = (await wire.modern("completion/complete", params))["result"]

    assert json.dumps(result["completion"]["values"]) == '["x"]'
    assert result["completion"]["total"] == 7


@pytest.mark.parametrize(
    "ref", [{"type": "ref/prompt", "name": "x"}, {"type": "ref/resource", "uri": "x://{y}"}]
)
async def test_completing_an_unknown_prompt_or_template_is_refused(server: Server, connect, ref):
    server.prompt(greet)
    server.completion("greet", "name")(lambda value: [])
    wire = await connect(server)

    answer = await wire.modern(
        "completion/complete", {"ref": ref, "argument": {"name": "a", "value": ""}}
    )

    assert answer["error"]["code"] == -32602


def greet(name: str) -> str:
    return name


@pytest.mark.parametrize("revision", [THIRD, LAST_LEGACY, MODERN])
async def test_content_of_an_unknown_type_is_sent_unchanged(server, asker, revision):
    fields = {"type": "hologram", "data": "x", "depth": 3}

    @server.tool
    async def show() -> CallToolResult:
        """Return content of an unknown type."""
        block = UnknownContent(fields=fields)
        return CallToolResult(content=[TextContent(text="look"), block])

    result = await asker(server, revision, "tools/call", {"name": "show"})

    assert result["content"] == [{"type": "text", "text": "look"}, fields]


@each_row(
    "result",
    [
        '{"content":[],"resultType":"complete"}',
        '{"resultType":"complete","content":[]}',
        '{"content":[],"resultType":"complete" }',
        '{"content":[{"type":"text","text":"\\",\\"resultType\\":\\"complete\\"}"}]}',
        '{"content":[],"structuredContent":{"a":1,"resultType":"complete"}}',
        '{"content":[],"structuredContent":{"resultType":"x"},"resultType":"complete"}',
        '{"resultType":"task","content":[],"resultType":"complete"}',
        '{"_meta":{"mine":1},"content":[],"resultType":"complete"}',
        '{"isError":true,"resultType":"complete"}',
    ],
)
@each_row("revision", [LAST_LEGACY, MODERN])
def test_a_result_of_another_server_is_passed_on_with_one_type_and_our_identity(result, revision):
    whole = Encoder(Implementation(name="s", version="2")).call(Raw(result.encode()), revision, {})

    members = json.loads(result)
    meta, _ = members.pop("_meta", {}), members.pop("resultType", None)
    expected = {"content": [], **members}
    if revision == MODERN:
        expected |= {"resultType": "complete", "_meta": {**INFO, **meta}}
    elif meta:
        expected["_meta"] = meta
    keys = {}  # of one object after the other, the outermost one last

    def members_of(pairs):
        keys["last"] = sorted(key for key, _ in pairs)
        return dict(pairs)

    assert json.loads(whole, object_pairs_hook=members_of) == expected
    assert keys["last"] == sorted(expected)
