"""Asking the user to log in: show a URL, and wait for the redirect that ends the login."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from interlock.cli.terminal import is_terminal, say
from interlock.oauth import AuthorizationRequest
from interlock.oauth.callback import Callback, open_browser


class LoginPrompt:
    """Asks the user to log in, with a browser on this machine or on another one."""

    def __init__(self, name: str, callback: Callback, *, opens_browser: bool) -> None:
        self._name = name
        self._callback = callback
        self._opens_browser = opens_browser

    async def authorize(self, request: AuthorizationRequest) -> Mapping[str, str]:
        """Show the URL and open it; return the query of the redirect that ends the login."""
        scopes = f", for {' '.join(request.scopes)}" if request.scopes else ""
        say(f"log in to {self._name!r} at {request.host}{scopes}:")
        say(request.url)
        queries = {
            asyncio.create_task(self._callback.query(request)),
            asyncio.create_task(self._open(request.url)),
        }
        try:
            done, _ = await asyncio.wait(queries, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in queries:
                task.cancel()
            await asyncio.wait(queries)

    async def _open(self, url: str) -> dict[str, str]:
        """Open the URL; without a browser, wait for the user to paste the URL where it ended."""
        if self._opens_browser:
            if await open_browser(url):  # some browsers block this until they are closed
                return await _never()
            say("no browser could be opened: open the URL yourself")
        return await (_pasted() if is_terminal(sys.stdin) else _never())


async def _never() -> dict[str, str]:
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return] # never set


async def _pasted() -> dict[str, str]:
    """Wait for a URL that the user pastes; return its query."""
    say("if the browser ends at a page that it cannot show, paste the URL of that page:")
    while True:
        line = await _line()
        if (query := _query(line)) is not None:
            return query
        say("that is not the URL: it starts with http and contains ?…state=…")


def _query(url: str) -> dict[str, str] | None:
    try:
        pairs = parse_qsl(urlsplit(url.strip()).query, keep_blank_values=True)
    except ValueError:
        return None
    query = dict(pairs)
    return query if "state" in query and len(query) == len(pairs) else None


async def _line() -> str:
    """Wait for a line on the terminal; forever if it is closed."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    keys = sys.stdin.fileno()

    def read() -> None:
        data = os.read(keys, 65_536)  # a terminal returns whole lines
        if not data:
            loop.remove_reader(keys)
        elif not line.done():
            line.set_result(data.decode(errors="replace"))

    loop.add_reader(keys, read)
    try:
        return await line
    finally:
        loop.remove_reader(keys)
