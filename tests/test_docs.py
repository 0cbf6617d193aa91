"""The links of the documentation lead somewhere, and the examples run."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock import Client
from interlock.cli import troubleshooting
from tests.support.rows import each_row

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md"))]
OVER_HTTP = ROOT / "examples" / "protected_server.py"
SERVERS = sorted(set((ROOT / "examples").glob("*_server.py")) - {OVER_HTTP})
CLAUDE = {*(ROOT / "examples").glob("claude_*.py")}  # run by tests/claude/test_example.py
EXAMPLES = sorted({*(ROOT / "examples").glob("*.py")} - {*SERVERS, OVER_HTTP, *CLAUDE})
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return what links can name in a page: its headings, as GitHub writes them in a URL."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    plain = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", each) for each in _HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in plain}


@each_row("page", PAGES)
def test_links_on_a_page_lead_to_files_and_headings(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text()):
        file = page.parent / target if target else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{page.name} links to {target}#{anchor}"


def test_doctor_prints_the_remedies_of_the_page() -> None:
    page = " ".join((ROOT / "docs/troubleshooting.md").read_text().split())

    assert [each for each in troubleshooting.REMEDIES.values() if each not in page] == []


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
