"""Faults while a large result is kept for its user."""

from __future__ import annotations

import asyncio
import errno
import json
import subprocess
import sys
from unittest import mock

from interlock import Server, durable
from interlock.config import loads
from interlock.config.gateway import Address, Results
from interlock.gateway.assembly import Assembly
from interlock.gateway.endpoint import Endpoint
from interlock.store import kept_results
from interlock.store.kept_results import KeptResultStore
from tests.faults.ground import Ground
from tests.faults.matrix import row
from tests.faults.rows_gateway import GATEWAY
from tests.faults.rows_store import PROGRAM, SQLITE
from tests.server.http.conftest import Http
from tests.store.many_processes import OWNER, SECRET

LOG = Server("log")


@LOG.tool
async def entries() -> str:
    """Return entries of a log."""
    return "all is well\n" * 9_000


@row(
    "Disk full: while a large result is kept",
    "an excerpt, which says that the rest is not kept; once there is room, results are kept again",
    GATEWAY,
    within=1.0,
)
async def is_full(ground: Ground) -> None:
    text = {
        "mcpServers": {"log": {"type": "python", "object": f"{__name__}:LOG"}},
        "gateway": {"database": str(ground.folder / "gateway.db")},
    }
    address = Address("127.0.0.1", 8000)
    config = loads(json.dumps(text).encode())
    async with Assembly.open(config, environ={}) as assembly, assembly.gateway.running():
        app = Endpoint(assembly, f"http://{address}/mcp", address=address).app
        http, headers = Http(app), {"x-api-key": assembly.key_for_this_run() or ""}
        full = OSError(errno.ENOSPC, "No space left on device")
        with (
            mock.patch.object(durable, "replace", side_effect=full),
            ground.promise(outcome="an excerpt, and why the rest is not there"),
        ):
            cut = await http.call("log__entries", {}, headers=headers)
            assert "all is well" in cut.text
            assert "the rest is not kept (No space left on device)" in cut.body.decode()
        whole = await http.call("log__entries", {}, headers=headers)
        assert "interlock://results/r_" in whole.body.decode()
        await app.close()


@row(
    "kill -9 of us mid-write: while large results are kept, ten times",
    "acknowledged results are whole; the next start deletes the files that have no row",
    SQLITE,
    within=5.0,
)
async def is_killed(ground: Ground) -> None:
    path = ground.folder / "killed.db"
    command = [sys.executable, "-m", "tests.store.many_processes", "kill-results", path, "10", "7"]
    root = PROGRAM.parents[2]
    ran = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, check=True, cwd=root
    )
    acknowledged = ran.stdout.decode().split()
    assert acknowledged
    settings = Results(per_user=2**40)
    with (
        mock.patch.object(kept_results, "ORPHAN_AGE", -1.0),
        ground.promise(outcome=f"{len(acknowledged)} results acknowledged, none lost"),
    ):
        async with KeptResultStore.beside(path, SECRET, lambda: settings) as store:
            for id in acknowledged:
                content = await store.load(OWNER, id)
                assert content == bytes(range(256)) * 1_024
            await store.reconcile()
            files = [*(ground.folder / "results").iterdir()]
            await store.sweep()
            assert len(files) * 256 * 1_024 == store.bytes
