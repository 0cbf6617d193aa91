"""The chat, started by the commands of the README, with the browser that the user has chosen."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import OpenPage, Watch

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("interlock")


@pytest.mark.parametrize(
    "command",
    [
        [PROGRAM, "web", "--port", "0"],
        ["make", "--old-file", ".venv/.stamp-interlock", "web", "PORT=0"],
    ],
    ids=["interlock web", "make web"],
)
async def test_started_chat_opens_in_the_users_browser_and_its_link_works_once(
    command: list[str], open_page: OpenPage, watch: Watch, tmp_path: Path
):
    watch.expected.append("401")
    link, browser, script = (tmp_path / each for each in ("link", "browser", "script.json"))
    os.mkfifo(link)
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {link}\n')
    browser.chmod(0o755)
    script.write_text(json.dumps([{"content": "Hello there."}]))
    own = {
        "BROWSER": str(browser),
        "HOME": str(tmp_path),
        "INTERLOCK_MODEL": f"scripted:{script}",
        "MAKEFLAGS": "",
        "MAKELEVEL": "0",  # as from a shell, also where `make` has started these tests
    }
    started = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**os.environ, **own},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        process_group=0,
    )
    try:
        opened = await asyncio.to_thread(link.read_text)
        assert started.stdout is not None
        assert (await started.stdout.readline()).decode() == f"{opened}\n"
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#[\w-]{22}", opened)

        page = await open_page(opened)
        await page.get_by_label("Message", exact=True).fill("Hello")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Hello there.")).to_be_visible()
        again = await open_page(opened)
        await expect(again.get_by_role("alert")).to_contain_text("This link was used before")
    finally:
        await open_page.close()
        os.killpg(started.pid, signal.SIGINT)
        await started.communicate()  # until all of its programs have ended
