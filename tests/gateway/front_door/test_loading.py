"""What a gateway loads with and without its front door."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CODE = """
import asyncio, sys
from interlock.config import loads
from interlock.config.gateway import Address
from interlock.gateway.assembly import Assembly
from interlock.gateway.serving.endpoint import Endpoint

async def main():
    config = loads(sys.argv[1].encode())
    async with Assembly.open(config, environ={}) as assembly, assembly.server.running():
        url, address = "http://127.0.0.1:8000/mcp", Address("127.0.0.1", 8000)
        await Endpoint(assembly, url, address=address).close()

asyncio.run(main())
print(*sys.modules)
"""


def modules_of(folder: Path, auth: dict[str, Any]) -> set[str]:
    """Return the modules that a gateway has loaded once it serves."""
    gateway = {"database": str(folder / "gateway.db"), "auth": auth}
    config = json.dumps({"mcpServers": {}, "gateway": gateway})
    done = subprocess.run([sys.executable, "-c", CODE, config], capture_output=True, check=True)
    return set(done.stdout.decode().split())


@pytest.mark.slow("starts two programs")
def test_front_door_is_loaded_only_when_on_and_loads_no_http_client_by_itself(tmp_path: Path):
    without, beside = modules_of(tmp_path, {}), modules_of(tmp_path, {"oauth": {}})
    parts = ("front_door", "authorization", "oauth_client", "signed_in", "access_token")
    loaded = {each for each in without if any(part in each for part in parts)}
    assert loaded == {"interlock.gateway.admin.oauth_clients"}  # the admin API has its routes
    assert "interlock.gateway.front_door.door" in beside
    assert not {"aiohttp", "jwt", "interlock.oauth"} & beside
