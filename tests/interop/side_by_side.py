"""Runs both halves of `docs/migrate/fastmcp*.md` and `mcp-sdk.md` against each other.

    python -m tests.interop.side_by_side [SECTION]

Both servers of a section are served over HTTP. The client of interlock calls FastMCP's half, and
the client of FastMCP calls interlock's half. Comments of the page name the requests:

| request | compared |
|---|---|
| `["list"]` | names and descriptions of tools |
| `["schema", TOOL]` | the properties of a tool's input schema |
| `["annotations", TOOL]` | a tool's annotations |
| `["call", TOOL, ARGUMENTS]` | the content and the structured result, which must be no error |
| `["fails", TOOL, ARGUMENTS]` | that the call is an error |
| `["read", URI]`, `["missing", URI]` | the text; that there is no such resource |
| `["prompt", NAME, ARGUMENTS]` | the roles and texts of the messages |
| `["complete", PROMPT, ARGUMENT, TEXT]` | the values |
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import ModuleType
from typing import Any, NamedTuple

import fastmcp
import fastmcp.exceptions
import mcp_types
import uvicorn
from fastmcp.client.elicitation import ElicitResult as TheirResult
from fastmcp.client.transports import StreamableHttpTransport
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError

import interlock
from interlock.errors import InterlockError
from interlock.types import ElicitResult, PromptReference
from tests.docs.page import ROOT, Block, blocks

PAGES = [
    *sorted((ROOT / "docs/migrate").glob("fastmcp*.md"), key=lambda page: page.stem),
    ROOT / "docs/migrate/mcp-sdk.md",
]
LANGUAGE = {"x-language": "nb"}  # a header for the section about headers
OLD = "2025-11-25"  # FastMCP can ask clients of this revision only


class Pair(NamedTuple):
    """A section with both halves.

    Attributes:
        theirs, ours: The halves' blocks.
        requests: What is compared.
        answer: The answer to the server's question.
        token: The bearer token of the client.
    """

    section: str
    theirs: Block
    ours: Block
    requests: list[list[Any]]
    answer: dict[str, Any]
    token: str


def pairs() -> list[Pair]:
    """Return the sections of the page that have requests."""
    found = []
    every = [
        each for page in PAGES for each in blocks(page.read_text()) if each.title.endswith(".py")
    ]
    by_title = {each.title: each for each in every}
    for theirs in every:
        notes = dict(each.split(": ", 1) for each in theirs.comments)
        if "same" in notes:
            ours = by_title[re.sub(r"_(?:fastmcp|sdk)\.py$", ".py", theirs.title)]
            answer, token = notes.get("answer", "{}"), notes.get("token", '""')
            requests, *rest = map(json.loads, (notes["same"], answer, token))
            found.append(Pair(theirs.section, theirs, ours, requests, *rest))
    return found


async def compare(pair: Pair) -> list[str]:
    """Serve both halves and return a line for each request that is answered differently."""
    theirs, ours = _executed(pair.theirs), _executed(pair.ours)
    their_app: Any = getattr(theirs, "host", None)
    if their_app is None and isinstance(theirs.mcp, MCPServer):
        their_app = theirs.mcp.streamable_http_app()
    their_app = their_app or theirs.mcp.http_app(path="/mcp")
    our_app: Any = getattr(ours, "host", None) or getattr(ours, "app", None) or ours.server.asgi()
    async with AsyncExitStack() as stack:
        their_url = await stack.enter_async_context(_served(their_app, hasattr(theirs, "host")))
        our_url = await stack.enter_async_context(_served(our_app, hasattr(ours, "host")))
        our_client = await stack.enter_async_context(_our_client(their_url, pair))
        their_client = await stack.enter_async_context(_their_client(our_url, pair))
        lines = []
        for request in pair.requests:
            left = await OurClient(our_client).send(*request)
            right = await TheirClient(their_client).send(*request)
            if left != right:
                lines.append(
                    f"{pair.section}: {request}\n  FastMCP:   {left}\n  interlock: {right}"
                )
    return lines


def _executed(block: Block) -> ModuleType:
    """Run a block as a module of its own, whose name no import of another test means."""
    module = ModuleType(f"side by side: {block.title}")
    code = "\n" * (block.line - 1) + block.text
    sys.modules[module.__name__] = module  # its hints are looked up there
    exec(compile(code, block.title, "exec", dont_inherit=True), vars(module))
    return module


@asynccontextmanager
async def _served(app: Any, is_host: bool) -> AsyncIterator[str]:
    """Serve an application, or a host that has mounted it at `/shop`; give its URL."""
    path = "/shop/mcp" if is_host else "/mcp"
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}{path}"
        finally:
            server.should_exit = True
            await serving


def _our_client(url: str, pair: Pair) -> interlock.Client:
    async def answer(_: object) -> ElicitResult:
        return ElicitResult(action="accept", content=pair.answer)

    headers = LANGUAGE | ({"authorization": f"Bearer {pair.token}"} if pair.token else {})
    return interlock.Client.http(
        url,
        headers=headers,
        revision=OLD if pair.answer else "auto",
        elicitation=answer if pair.answer else None,
    )


def _their_client(url: str, pair: Pair) -> fastmcp.Client[Any]:
    async def answer(*_: object) -> TheirResult[Any]:
        return TheirResult(action="accept", content=pair.answer)

    transport = StreamableHttpTransport(url, headers=LANGUAGE, auth=pair.token or None)
    return fastmcp.Client(transport, elicitation_handler=answer if pair.answer else None)


# What both clients make of an answer


class OurClient:
    """Sends requests with the client of interlock."""

    def __init__(self, client: interlock.Client) -> None:
        self._client = client

    async def send(self, kind: str, name: str = "", *more: Any) -> Any:
        match kind:
            case "list" | "schema" | "annotations":
                return _of_tools(kind, name, json.loads(_json(await self._client.list_tools())))
            case "call" | "fails":
                try:
                    result = await self._client.call_tool(name, *more)
                except InterlockError:
                    return "error"
                return _of_result(kind, json.loads(_json(result)), is_error=result.is_error)
            case "read" | "missing":
                try:
                    return (await self._client.read_resource(name)).text
                except InterlockError:
                    return "missing"
            case "prompt":
                found = await self._client.get_prompt(name, *more)
                return [
                    (each.role, _text(json.loads(_json(each.content)))) for each in found.messages
                ]
            case _:
                ref = PromptReference(name=name)
                return (await self._client.complete(ref, *more)).values


class TheirClient:
    """Sends requests with the client of FastMCP."""

    def __init__(self, client: fastmcp.Client[Any]) -> None:
        self._client = client

    async def send(self, kind: str, name: str = "", *more: Any) -> Any:
        match kind:
            case "list" | "schema" | "annotations":
                return _of_tools(kind, name, [_dumped(t) for t in await self._client.list_tools()])
            case "call" | "fails":
                try:
                    result = await self._client.call_tool_mcp(name, *more)
                except MCPError:
                    return "error"
                return _of_result(kind, _dumped(result), is_error=bool(result.is_error))
            case "read" | "missing":
                try:
                    (contents,) = await self._client.read_resource(name)
                except (fastmcp.exceptions.FastMCPError, MCPError):
                    return "missing"
                return _dumped(contents)["text"]
            case "prompt":
                found = await self._client.get_prompt(name, *more)
                return [(each.role, _text(_dumped(each.content))) for each in found.messages]
            case _:
                ref = mcp_types.PromptReference(name=name)
                argument, text = more
                answer = await self._client.complete(ref, {"name": argument, "value": text})
                return answer.values


def _json(value: object) -> bytes:
    import msgspec

    return msgspec.json.encode(value)


def _dumped(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


def _text(content: Any) -> str:
    return str(content["text"])


def _of_tools(kind: str, name: str, tools: list[Any]) -> Any:
    if kind == "list":
        return sorted((each["name"], each.get("description", "")) for each in tools)
    (tool,) = [each for each in tools if each["name"] == name]
    if kind == "annotations":
        return {key: value for key, value in tool["annotations"].items() if value is not None}
    return {
        key: {word: each for word, each in about.items() if word != "title"}
        for key, about in tool["inputSchema"]["properties"].items()
    }


def _of_result(kind: str, result: Any, *, is_error: bool) -> Any:
    """Return the content and the structured result, which old servers wrap in `result`."""
    assert is_error == (kind == "fails"), result
    if kind == "fails":
        return "error"
    content = [
        (each["type"], each["data"] if "data" in each else _loaded(each.get("text")))
        for each in result["content"]
    ]
    structured = result.get("structuredContent")
    if isinstance(structured, dict) and [*structured] == ["result"]:
        structured = structured["result"]
    # FastMCP repeats a text as structured content, and interlock does not.
    return content, None if isinstance(structured, str) else structured


def _loaded(text: str) -> Any:
    """Return JSON text as a value, because its spaces differ."""
    try:
        return json.loads(text)
    except ValueError:
        return text


async def main(wanted: str = "") -> int:
    """Print what is different, and return the number of such sections."""
    different = 0
    for pair in pairs():
        if wanted.lower() not in pair.section.lower():
            continue
        lines = await compare(pair)
        different += bool(lines)
        print(
            *lines or [f"{pair.section}: {len(pair.requests)} requests are answered alike"],
            sep="\n",
        )
    return different


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
