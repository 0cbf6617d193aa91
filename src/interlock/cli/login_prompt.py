"""Who logs in: is shown an address, and comes back with what the login gave."""

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
    """Who logs in, with a browser on this machine or on another one."""

    def __init__(self, name: str, callback: Callback, *, opens_browser: bool) -> None:
        self._name = name
        self._callback = callback
        self._opens_browser = opens_browser

    async def ask(self, request: AuthorizationRequest) -> Mapping[str, str]:
        """Show the address and open it; return what the browser brings back."""
        scopes = f", for {' '.join(request.scopes)}" if request.scopes else ""
        say(f"log in to {self._name!r} at {request.host}{scopes}:")
        say(request.url)
        answers = {
            asyncio.create_task(self._callback.answer(request)),
            asyncio.create_task(self._other_way(request.url)),
        }
        try:
            done, _ = await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in answers:
                task.cancel()
            await asyncio.wait(answers)

    async def _other_way(self, url: str) -> dict[str, str]:
        """Open the address; where that cannot be done, wait for somebody to paste another one."""
        if self._opens_browser:
            if await open_browser(url):  # for some browsers, this is when they are closed again
                return await _never()
            say("no browser could be opened: open the address yourself")
        return await (_pasted() if is_terminal(sys.stdin) else _never())


async def _never() -> dict[str, str]:
    return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return] # nothing


async def _pasted() -> dict[str, str]:
    """Wait for an address that somebody pastes; return its query."""
    say("if it ends at a page that cannot be shown, paste the address of that page:")
    while True:
        line = await _line()
        if (query := _query(line)) is not None:
            return query
        say("that is not the address: it begins with http and has ?…state=… in it")


def _query(address: str) -> dict[str, str] | None:
    try:
        pairs = parse_qsl(urlsplit(address.strip()).query, keep_blank_values=True)
    except ValueError:
        return None
    query = dict(pairs)
    return query if "state" in query and len(query) == len(pairs) else None


async def _line() -> str:
    """Wait for a line on the terminal; at its end, for ever."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    keys = sys.stdin.fileno()

    def read() -> None:
        data = os.read(keys, 65_536)  # a terminal gives whole lines
        if not data:
            loop.remove_reader(keys)
        elif not line.done():
            line.set_result(data.decode(errors="replace"))

    loop.add_reader(keys, read)
    try:
        return await line
    finally:
        loop.remove_reader(keys)
