"""The documentation says what is true: its examples are files, and the files run."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from interlock import Client
from tests.support.rows import each_row

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OVER_HTTP = ROOT / "examples" / "protected_server.py"
SERVERS = sorted(set((ROOT / "examples").glob("*_server.py")) - {OVER_HTTP})
CLAUDE = {*(ROOT / "examples").glob("claude_*.py")}  # run by tests/claude/test_example.py
EXAMPLES = sorted({*(ROOT / "examples").glob("*.py")} - {*SERVERS, OVER_HTTP, *CLAUDE})
_BLOCK = re.compile(r"<!-- (examples/\w+\.py) -->\n```python\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def blocks() -> list[tuple[str, str, str]]:
    found = [(page.name, *match) for page in PAGES for match in _BLOCK.findall(page.read_text())]
    assert found
    return found


@each_row(("page", "example", "code"), blocks())
def test_code_on_a_page_is_part_of_its_example(page: str, example: str, code: str) -> None:
    text = (ROOT / example).read_text()
    body = [line.strip() for line in textwrap.dedent(code).strip().splitlines()]
    lines = [line.strip() for line in text.splitlines()]

    starts = [i for i in range(len(lines)) if lines[i : i + len(body)] == body]

    assert starts, f"{page} shows code that is not in {example}"


@each_row("page", PAGES)
def test_links_on_a_page_lead_to_files(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_tests_named_on_a_page_exist() -> None:
    named = [
        found
        for page in PAGES
        for found in re.findall(r"`(tests/\S+\.py)::(\w+)`", page.read_text())
    ]

    assert named
    assert [each for each in named if f"def {each[1]}(" not in (ROOT / each[0]).read_text()] == []


@pytest.mark.program("mcp-server-time and the embedded model")
@each_row("example", EXAMPLES)
def test_an_example_runs_without_errors(example: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    ran = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout
    assert not ran.stderr


@pytest.mark.slow("starts a program")
@each_row("example", SERVERS)
async def test_an_example_server_lists_its_tools(example: Path) -> None:
    async with Client.stdio(sys.executable, "-W", "error", str(example)) as client:
        assert await client.list_tools()


async def test_the_protected_example_rejects_a_request_without_a_token() -> None:
    app = runpy.run_path(str(OVER_HTTP))["app"]
    sent: list[dict[str, Any]] = []
    headers = [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": headers}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app({**scope, "client": ("127.0.0.1", 1), "root_path": ""}, receive, send)
    await app.close()

    assert sent[0]["status"] == 401
