"""`interlock dev`: the inspector on a file that its author edits."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from tests.browser.conftest import OpenPage, violations

pytestmark = pytest.mark.slow
SERVER = '''
from interlock import Server

server = Server("notes")

@server.tool
def divide(by: int) -> float:
    """Divide one by a number."""
    return 1 / by
'''
ADDED = '''
@server.tool
def added() -> str:
    """Was added."""
    return "new"
'''


class Running:
    """The command on a file.

    Attributes:
        file: The file.
        opened: The URL that a browser was told to open.
    """

    def __init__(self, file: Path, opened: str, process: asyncio.subprocess.Process) -> None:
        self.file = file
        self.opened = opened
        self._process = process

    async def printed(self, end: str) -> str:
        """Return what the command prints to stderr until a line that ends with `end`."""
        assert self._process.stderr is not None
        return (await self._process.stderr.readuntil(f"{end}\n".encode())).decode()


@pytest_asyncio.fixture(loop_scope="session")
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    file, pipe, browser = (tmp_path / name for name in ("notes.py", "opened", "browser"))
    file.write_text(SERVER)
    os.mkfifo(pipe)
    browser.write_text(f'#!/bin/sh\necho "$1" > {pipe}\n')
    browser.chmod(0o700)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "interlock", "dev", str(file), "--port=0"),
        env={**os.environ, "HOME": str(tmp_path), "BROWSER": str(browser)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    opened = await asyncio.to_thread(pipe.read_text)
    yield Running(file, opened.strip(), process)
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 128 + signal.SIGINT


async def test_page_follows_the_file_and_shows_exceptions_with_the_authors_line(
    running: Running, open_page: OpenPage
):
    page = await open_page(running.opened)
    await expect(page.get_by_role("link", name="divide")).to_be_visible()

    running.file.write_text(SERVER + ADDED)
    await expect(page.get_by_role("link", name="added")).to_be_visible()
    running.file.write_text(SERVER + ADDED + "def wrong(:")
    assert "invalid syntax" in await running.printed("from before the change stays up")

    await page.get_by_role("link", name="divide").click()
    await page.get_by_label("by").fill("0")
    await page.keyboard.press("Control+Enter")
    await expect(
        page.get_by_text(f"{running.file}, line 9, in divide: return 1 / by")
    ).to_be_visible()
    assert "ZeroDivisionError" in await running.printed("ZeroDivisionError: division by zero")
    assert await violations(page) == []
