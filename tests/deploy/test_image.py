"""The image of `make image`, in containers of runc that have no rights."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from interlock import Client
from tests.docs.page import ROOT

LAYOUT = ROOT / "build" / "image" / "oci"
MOST_PACKED = 60e6  # bytes
MOST_MEMORY = 75e6  # bytes
USER = 65532
SERVER = '''
import os
from pathlib import Path
from interlock import Server

server = Server("inside", version="1.0.0")

@server.tool
def about() -> dict[str, object]:
    """Return who this process is, and which folders it can write to."""
    folders = ("/data", "/etc", "/tmp", "/usr")
    return {"user": os.getuid(), "writable": [each for each in folders if is_writable(each)]}

def is_writable(folder: str) -> bool:
    try:
        (Path(folder) / "probe").write_text("")
    except OSError:
        return False
    return True
'''
CONFIGURATION = {
    "mcpServers": {"inside": {"command": "interlock", "args": ["run", "/etc/interlock/inside.py"]}},
    "gateway": {"listen": "127.0.0.1:0", "admin": {"listen": "127.0.0.1:0"}},
}


class Image:
    """An unpacked image, and the two folders that an operator mounts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._data = folder / "data"
        self._data.mkdir()
        os.chown(self._data, USER, USER)
        self._etc = folder / "etc"
        self._etc.mkdir()
        (self._etc / "mcp.json").write_text(json.dumps(CONFIGURATION))
        (self._etc / "inside.py").write_text(SERVER)
        unpack = ["umoci", "unpack", f"--image={LAYOUT}:latest", folder / "image"]
        subprocess.run(unpack, check=True, capture_output=True)
        self.config = json.loads((folder / "image" / "config.json").read_text())

    def command(self, *arguments: str) -> list[str | Path]:
        """Return the command that runs a container with these arguments, or the image's own."""
        self._count += 1
        bundle = self._folder / f"container-{self._count}"
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(self._restricted(arguments)))
        name = f"{self._folder.name}-{self._count}"
        return ["runc", "--root", self._folder / "runc", "run", "--bundle", bundle, name]

    def _restricted(self, arguments: tuple[str, ...]) -> Any:
        config = json.loads(json.dumps(self.config))
        config["root"] = {"path": str(self._folder / "image" / "rootfs"), "readonly": True}
        process = config["process"]
        process["terminal"] = False
        process["capabilities"] = {each: [] for each in process["capabilities"]}
        process["args"] = ["interlock", *arguments] if arguments else process["args"]
        spaces = config["linux"]["namespaces"]  # the test reaches the loopback of the container
        config["linux"]["namespaces"] = [each for each in spaces if each["type"] != "network"]
        config["mounts"] = [each for each in config["mounts"] if each["destination"] != "/data"]
        for source, place, mode in (
            (self._data, "/data", "rw"),
            (self._etc, "/etc/interlock", "ro"),
        ):
            options = ["bind", mode, "nosuid", "nodev"]
            mount = {"type": "bind", "source": str(source), "destination": place}
            config["mounts"].append(mount | {"options": options})
        return config


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    folder = tmp_path_factory.mktemp("image")
    yield Image(folder)
    shutil.rmtree(folder)


@asynccontextmanager
async def serving(image: Image) -> AsyncIterator[tuple[asyncio.subprocess.Process, str, str]]:
    """Run the image as it is; yield the process of runc, the endpoint and the admin address."""
    pipe = asyncio.subprocess.PIPE
    container = await asyncio.create_subprocess_exec(*image.command(), stderr=pipe)
    assert container.stderr is not None
    text = ""
    try:
        while "1 of 1 server is up" not in text:
            line = (await container.stderr.readline()).decode()
            assert line, text
            text += line
        (url,) = re.findall(r"serving at (\S+)", text)
        (admin,) = re.findall(r"admin at (http://[^/]+)", text)
        yield container, url, admin
    finally:
        if container.returncode is None:
            container.terminate()  # runc passes the signal on
        await container.communicate()


async def output(*command: str | Path, input: bytes = b"") -> str:
    """Return what a command prints."""
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    out, err = await program.communicate(input)
    assert program.returncode == 0, err
    return out.decode().strip()


def gateway_of(container: int) -> Path:
    """Return the folder of /proc of the first process in a container."""
    threads = Path(f"/proc/{container}/task").glob("*/children")
    (child,) = [child for each in threads for child in each.read_text().split()]
    return Path(f"/proc/{child}")


async def test_image_serves_without_rights_on_a_read_only_root_and_ends_on_sigterm(image: Image):
    create = ["keys", "create", "anna", "--scope", "mcp:*", "--scope", "admin:read"]
    headers = {"Authorization": f"Bearer {await output(*image.command(*create))}"}
    async with serving(image) as (container, url, admin):
        gateway = gateway_of(container.pid)
        status = dict(
            re.findall(r"^(\w+):\s+(.*)$", (gateway / "status").read_text(), re.MULTILINE)
        )
        rollup = (gateway / "smaps_rollup").read_text()
        async with Client.http(url, headers=headers) as client:
            inside = await client.call_tool("inside__about", {})
        async with aiohttp.ClientSession() as http:
            status_of_check = 503
            while status_of_check == 503:  # the disk is busy with the image for some time
                async with http.get(f"{admin}/readyz") as reply:
                    status_of_check = reply.status
            async with http.get(f"{admin}/metrics", headers=headers) as reply:
                metrics = await reply.read()
        container.terminate()
        code = await container.wait()

    assert (status_of_check, code, status["Uid"].split()) == (200, 0, [str(USER)] * 4)
    assert (int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"]) == (
        0,
        0,
        "1",
    )
    assert inside.structured == {"user": USER, "writable": ["/data", "/tmp"]}
    (memory,) = re.findall(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    assert int(memory) * 1024 < MOST_MEMORY
    assert await output("promtool", "check", "metrics", input=metrics) == ""


def test_image_has_the_command_and_volumes_of_its_dockerfile_and_is_small(image: Image):
    process = image.config["process"]
    assert process["args"] == ["interlock", "serve", "--config", "/etc/interlock/mcp.json"]
    assert (process["user"]["uid"], process["user"]["gid"], process["cwd"]) == (USER, USER, "/data")
    assert {"/data", "/tmp"} <= {each["destination"] for each in image.config["mounts"]}
    assert sum(each.stat().st_size for each in LAYOUT.rglob("*")) < MOST_PACKED
    root = image._folder / "image" / "rootfs"
    programs = [
        each for name in ("bin", "sbin", "usr/bin", "usr/sbin") for each in (root / name).iterdir()
    ]
    assert {each.name for each in programs} == {"python3", "python3.11"}
