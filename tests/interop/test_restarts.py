"""Servers of others that are started anew while a client of ours uses them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import Client
from tests.servers.ports import reserved
from tests.support.served import serving

PEERS = Path(__file__).with_name("peers")
EVERYTHING = "build/interop/node_modules/@modelcontextprotocol/server-everything/dist/index.js"


@pytest.fixture
def command(peer: str, node: str, installed: Callable[[str], str]) -> list[str]:
    if peer == "everything":
        loopback = str(PEERS / "loopback.cjs")
        return [node, "--require", loopback, installed(EVERYTHING), "streamableHttp"]
    return [sys.executable, "-W", "ignore", str(PEERS / f"{peer}_server.py"), "http"]


# They say in different ways that they do not know a session: with 400, and with 404.
@pytest.mark.parametrize(
    ("peer", "tool", "arguments"),
    [("everything", "get-sum", {"a": 1, "b": 2}), ("mcp2", "add", {"a": 1, "b": 2})],
    ids=["everything", "mcp2"],
)
async def test_the_next_call_begins_a_new_session(
    command: list[str],
    nothing_is_left: list[Any],
    tmp_path: Path,
    tool: str,
    arguments: dict[str, int],
) -> None:
    with reserved() as reserving:
        port = str(reserving.getsockname()[1])
        with serving(command, tmp_path / "first", AT_PORT=port) as address:
            url = f"{address.removesuffix('/mcp')}/mcp"
            client = Client.http(url, revision="legacy")
            await client.open()
            before = await client.call_tool(tool, arguments)
        # The loop has had no turn since, so the connection of the first server looks alive.
        with serving(command, tmp_path / "second", AT_PORT=port):
            try:
                after = await client.call_tool(tool, arguments)
            finally:
                await client.close()

    assert before == after
