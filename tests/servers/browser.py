"""A browser whose user consents to everything: browser.py URL

The page where it all ends is opened, too. With `BROWSER="python browser.py %s"` in its
environment, a program that opens a browser opens this one.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.authorization import Browser


async def browse(url: str) -> None:
    """Open a page, and fill in its form and those that follow."""
    page = urlsplit(url)
    end = await Browser(f"{page.scheme}://{page.netloc}").callback(url)
    async with aiohttp.ClientSession() as http, http.get(end) as reply:
        reply.raise_for_status()


if __name__ == "__main__":
    asyncio.run(browse(sys.argv[1]))
