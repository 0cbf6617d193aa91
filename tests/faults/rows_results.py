"""Faults while a large result is kept for its user."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
from pathlib import Path
from unittest import mock

from interlock import Server, durable
from interlock.config.gateway import Results
from interlock.store import kept_results
from interlock.store.kept_results import KeptResultStore
from tests.faults.gateways import Gateway, gateway_of
from tests.faults.ground import Ground
from tests.faults.matrix import GATEWAY, SQLITE, row
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
    config = {
        "mcpServers": {"log": {"type": "python", "object": f"{__name__}:LOG"}},
        "gateway": {"database": str(ground.folder / "gateway.db")},
    }
    async with gateway_of(config, Gateway) as gateway:
        http, headers = (
            gateway.http,
            {"x-api-key": gateway.assembly.services.callers.key_for_this_run() or ""},
        )
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


@row(
    "kill -9 of us mid-write: while large results are kept, ten times",
    "acknowledged results are whole; the next start deletes the files that have no row",
    SQLITE,
    within=5.0,
)
async def is_killed(ground: Ground) -> None:
    path = ground.folder / "killed.db"
    command = [sys.executable, "-m", "tests.store.many_processes", "kill-results", path, "10", "7"]
    root = Path(__file__).parents[2]
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
            await store.reconcile(ground.folder / "results")
            files = [*(ground.folder / "results").iterdir()]
            await store.sweep()
            assert len(files) * 256 * 1_024 == store.bytes
