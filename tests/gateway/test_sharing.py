"""Who shares the state of a server behind a gateway."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from interlock.auth.principal import Principal
from interlock.client import Client
from interlock.config import Pool, StdioServer
from interlock.config.servers import Sharing
from interlock.gateway import ForwardingServer
from interlock.policy import Policy
from interlock.revisions import LEGACY, MODERN
from tests.gateway.support import as_principal

COUNTER = """
from interlock import Server
server = Server("s")
count = 0

@server.tool
def increment() -> int:
    global count
    count += 1
    return count

server.run()
"""
ANNA, BERT = (Principal(f"user:{each}", frozenset({"mcp:*"})) for each in ("anna", "bert"))


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize(
    ("sharing", "revision", "counts"),
    [
        ("shared", MODERN[-1], [1, 2, 3, 4, 5, 6]),
        ("per_user", MODERN[-1], [1, 1, 2, 3, 2, 4]),
        ("per_session", MODERN[-1], [1, 1, 1, 2, 2, 2]),
        ("per_session", LEGACY[-1], [1, 1, 1, 2, 2, 2]),
        ("per_call", MODERN[-1], [1, 1, 1, 1, 1, 1]),
    ],
)
async def test_callers_share_a_count_as_configured(
    sharing: Sharing, revision: str, counts: list[int], tmp_path: Path
):
    """Anna has two sessions, Bert one; each of the three calls twice, in turn."""
    script = tmp_path / "counter.py"
    script.write_text(COUNTER)
    server = StdioServer(
        command=sys.executable, args=(str(script),), sharing=sharing, pool=Pool(max=8)
    )
    gateway = ForwardingServer({"s": server}, Policy.compile(None))
    named = [{"interlock/session": each} for each in ("one", "one", "two")]
    async with (
        Client.memory(as_principal(gateway, ANNA), revision=revision) as anna,
        Client.memory(as_principal(gateway, BERT), revision=revision) as bert,
        Client.memory(as_principal(gateway, ANNA), revision=revision) as again,
    ):
        seen = [
            int((await client.call_tool("s__increment", meta=meta)).text)
            for _ in range(2)
            for client, meta in zip((anna, bert, again), named, strict=True)
        ]

    assert seen == counts
