"""Clients that are not ours find and call tools through a gateway whose clients search."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fastmcp
import mcp
import pytest
from fastmcp.client.transports import StdioTransport
from mcp.client.stdio import StdioServerParameters, stdio_client

GATEWAY = """
from interlock import Server
from interlock.gateway import Gateway
from interlock.config.gateway import ViewSearch
from interlock.config.servers import ToolRisk
from interlock.policy import Policy

crm = Server("crm")

@crm.tool
def find_contact(name: str) -> str:
    "Find a contact by name."
    return f"found {name}"

@crm.tool
def delete_contact(name: str) -> str:
    "Delete a contact."
    return f"deleted {name}"

risks = {"crm": ToolRisk(read=("find_*",))}
Gateway({"crm": crm}, policy=Policy.compile(None, risks=risks, search=ViewSearch(is_on=True))).run()
"""
Call = Callable[[str, dict[str, Any]], Awaitable[Any]]


@asynccontextmanager
async def by_mcp(script: str) -> AsyncIterator[tuple[list[str], Call]]:
    parameters = StdioServerParameters(command=sys.executable, args=[script])
    async with stdio_client(parameters) as streams, mcp.ClientSession(*streams) as session:
        await session.initialize()
        names = [each.name for each in (await session.list_tools()).tools]
        yield names, session.call_tool


@asynccontextmanager
async def by_fastmcp(script: str) -> AsyncIterator[tuple[list[str], Call]]:
    async with fastmcp.Client(StdioTransport(sys.executable, [script])) as client:
        names = [each.name for each in await client.list_tools()]
        yield names, client.call_tool


@pytest.mark.parametrize("peer", [by_mcp, by_fastmcp])
async def test_a_client_finds_a_tool_and_calls_it_both_ways(peer: Any, tmp_path: Path) -> None:
    script = tmp_path / "gateway.py"
    script.write_text(GATEWAY)
    async with peer(str(script)) as (names, call):
        found = await call("interlock__search_tools", {"query": "find a contact"})
        asked = {"name": "crm__find_contact", "arguments": {"name": "Ada"}}
        aliased = await call("interlock__call_read_tool", asked)
        direct = await call("crm__find_contact", {"name": "Ada"})

    assert len(names) <= 6
    assert all(each.startswith("interlock__") for each in names)
    assert "crm__find_contact (reads)" in found.content[0].text
    assert aliased.content[0].text == direct.content[0].text == "found Ada"
