"""Listeners of a gateway."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from interlock import Server
from interlock.config import Config
from interlock.errors import StoreLocked
from interlock.gateway import ForwardingServer
from interlock.gateway.serving.stdio import serve_stdio
from interlock.policy import Policy
from interlock.store.database.serving_lock import only_gateway
from tests.server.conftest import modern_meta
from tests.support.scripted_server import MODERN


def test_only_one_gateway_uses_a_sqlite_file(tmp_path):
    file = str(tmp_path / "gateway.db")
    with (
        only_gateway(file),
        pytest.raises(StoreLocked, match="another gateway"),
        only_gateway(file),
    ):
        pass
    with only_gateway(file), only_gateway(str(tmp_path / "other.db")):
        pass


async def test_handshake_over_stdio_is_answered_while_servers_start_and_lists_wait():
    """Otherwise clients that wait 5 s for it take the gateway for a server of an old revision."""
    starts = asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        await starts.wait()
        yield

    server = Server("s", lifespan=lifespan)

    @server.tool
    def late() -> str:
        return ""

    gateway = ForwardingServer({"s": server}, Policy.from_config(Config()), environ={})
    theirs, to_gateway = os.pipe()
    from_gateway, ours = os.pipe()
    serving = asyncio.create_task(serve_stdio(gateway, theirs, ours))
    reader = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_gateway, "rb")
    )

    def ask(id: int, method: str) -> None:
        params = {"_meta": modern_meta()}
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        os.write(to_gateway, msgspec.json.encode(message) + b"\n")

    ask(1, "tools/list")
    ask(2, "server/discover")
    discovered = await reader.readline()
    assert b'"id":2' in discovered
    assert MODERN.encode() in discovered
    starts.set()
    assert b'"s__late"' in await reader.readline()
    os.close(to_gateway)
    await serving
    pipe.close()
