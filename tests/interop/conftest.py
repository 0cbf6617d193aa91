"""Servers of ours and of others, offered in every way, and the programs of peers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.node import node_folder

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, str(ROOT / "examples" / "demo_server.py")]


@pytest.fixture
def target(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Where the demo server is: its command for "stdio", or a URL for "http" and for "sse"."""
    if request.param == "stdio":
        yield DEMO
        return
    with subprocess.Popen([*DEMO, "0"], stdin=-3, stdout=-3, stderr=-1, text=True) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert said.startswith("serving at "), said + process.stderr.read()
            url = said.removeprefix("serving at ").strip()
            yield [url if request.param == "http" else url.removesuffix("/mcp") + "/sse"]
        finally:
            process.terminate()
            rest = process.stderr.read()
    assert rest == ""


@pytest.fixture(scope="session")
def installed() -> Callable[[str], str]:
    """Find what `make test-all` has installed into the folder `build`."""

    def find(path: str) -> str:
        assert (ROOT / path).exists(), f"{path} is missing: `make test-all` installs it"
        return str(ROOT / path)

    return find


@pytest.fixture(scope="session")
def node() -> str:
    """The program that runs JavaScript."""
    return str(node_folder() / "node")
