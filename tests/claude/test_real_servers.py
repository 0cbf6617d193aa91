"""Servers of the real program: with odd names, odd results and questions."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable

from interlock import Server
from interlock.claude import ClaudeCode
from interlock.context import Context
from interlock.types import CallToolResult, ElicitParams, ElicitResult, ImageContent, TextContent
from tests.claude.messages_api import MessagesApi, call, say, script

Make = Callable[..., ClaudeCode]
FORM = {"type": "object", "properties": {"time": {"type": "string"}}}


async def test_server_asks_the_user_through_elicitation(claude: Make, api: MessagesApi):
    server = Server("s")

    @server.tool
    async def book(context: Context) -> str:
        """Book a table."""
        answer = await context.elicit("When?", FORM)
        return f"booked at {answer.content}"

    async def person(question: ElicitParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"time": f"noon ({question.message})"})

    async with claude({"s": server}, elicitation=person) as opened:
        await opened.ask(script(call(("mcp__s__book", {})), say("ok")))

    assert "noon (When?)" in api.result_text()


async def test_model_reads_resources_of_servers_in_this_program(
    claude: Make, claude_program: str, api: MessagesApi
):
    if claude_program in ("2.1.59", "2.0.0"):
        return  # their models cannot read resources
    server = Server("s")

    @server.resource("notes://today")
    def today() -> str:
        return "buy milk"

    calls = (
        call(("ListMcpResourcesTool", {"server": "s"})),
        call(("ReadMcpResourceTool", {"server": "s", "uri": "notes://today"})),
    )
    async with claude({"s": server}) as opened:
        await opened.ask(script(*calls, say("ok")))

    assert "notes://today" in api.result_text(0)
    assert "buy milk" in api.result_text(1)


def odd_results() -> Server:
    server = Server("s")

    @server.tool
    async def whole() -> str:
        """Return 20 KB."""
        return "x" * 20_000

    @server.tool
    async def long() -> str:
        """Return 200 KB."""
        return "\n".join(f"line {n}" for n in range(20_000))

    @server.tool
    async def huge() -> str:
        """Return 5 MB."""
        return "y" * 5_000_000

    @server.tool
    async def half() -> str:
        """Return half of a surrogate pair."""
        return "half \ud83d pair"

    @server.tool
    async def numbers() -> dict[str, float]:
        """Return numbers that JSON lacks."""
        return {"nan": float("nan"), "inf": float("inf")}

    @server.tool
    async def both() -> CallToolResult:
        """Return text beside structured content."""
        return CallToolResult(content=[TextContent(text="the text")], structured_content={"n": 1})

    @server.tool
    async def picture() -> CallToolResult:
        """Return an image."""
        data = b64encode(PNG).decode()
        return CallToolResult(content=[ImageContent(data=data, mime_type="image/png")])

    @server.tool
    async def broken() -> str:
        """Raise."""
        raise ValueError("s3cr3t")

    return server


PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000a49444154789c6360000002000154a24f5f0000000049454e44ae426082"
)


async def test_results_reach_the_model_whole_or_with_a_way_to_the_rest(
    claude: Make, api: MessagesApi
):
    names = ("whole", "long", "huge", "half", "numbers", "both", "broken", "picture")
    calls = [call((f"mcp__s__{name}", {})) for name in names]
    async with claude({"s": odd_results()}) as opened:
        answer = await opened.ask(script(*calls, say("ok")))
        text = dict(zip(names, map(api.result_text, range(len(names))), strict=True))
        arguments = text["long"].rpartition("interlock__read_result ")[2].partition("}")[0] + "}"
        read = call(("mcp__interlock__read_result", json.loads(arguments)))
        await opened.ask(script(read, say("ok")))

    assert answer.text == "ok"
    assert text["whole"] == "x" * 20_000
    assert text["long"].startswith("line 0\nline 1\n")
    assert len(text["huge"]) < 50_000
    assert text["half"] == "half \N{REPLACEMENT CHARACTER} pair"
    assert "null" in text["numbers"]
    assert text["both"] == "the text"
    assert "s3cr3t" not in text["broken"]
    assert "[image]" in text["picture"]
    assert "line 5" in api.result_text()
    assert "line 0\n" not in api.result_text()


async def test_odd_names_stay_different_within_64_characters_and_call_their_own_tools(
    claude: Make, api: MessagesApi
):
    server = Server("s")
    names = ("a.b", "a/b", "a_b", "n" * 127, "n" * 128)

    def add(name: str) -> None:
        async def answer(text: str) -> str:
            """Answer."""
            return f"{name}: {text}"

        server.tool(name=name)(answer)

    for name in names:
        add(name)
    async with claude({"web search": server}) as opened:
        await opened.ask(script(say("ok")))
        ours = [name for name in api.offered if name.startswith("mcp__web")]
        assert all(len(name) <= 64 for name in ours)
        await opened.ask(script(call(*((name, {"text": "\ud83d"}) for name in ours)), say("ok")))

    said = [api.result_text(at) for at in range(len(names))]
    assert sorted(said) == sorted(f"{name}: \N{REPLACEMENT CHARACTER}" for name in names)
