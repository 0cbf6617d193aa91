"""The end of a login on this machine: a page on loopback that the browser is sent to.

Rules:

1. It takes one request with its own host and the path and `state` of the login, and nothing
   else: what a page of somebody else sends to this port is refused, and does not end the wait.
2. What it reads is bounded in bytes and in time, and nothing of it is shown in the page.
3. A browser is only given addresses of the web, as one argument and through no shell.

RFC 8252 (native apps).
"""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from urllib.parse import parse_qsl, urlsplit

from interlock.aio import in_thread
from interlock.errors import AuthError, ConfigError
from interlock.oauth.authorization import AuthorizationRequest, check_browsable, is_same

PATH = "/callback"
PORT = 21_897  # if it is free: a registration is for one address, and serves again at that one
PATIENCE = 300.0  # seconds for a person to log in
MAX_REQUEST = 16_384  # bytes of a request's line and headers
REQUEST_PATIENCE = 10.0  # seconds for the browser to send them
MAX_CONNECTIONS = 16  # at once

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>interlock</title>
<p>{}</p>
"""


@asynccontextmanager
async def callback_server(port: int = 0) -> AsyncIterator[Callback]:
    """Listen for the browser that comes back from a login.

    Args:
        port: On 127.0.0.1; 0 takes `PORT`, or a free one if that is taken.

    Raises:
        ConfigError: The port cannot be had.
    """
    callback = Callback()
    listen = partial(asyncio.start_server, callback._connected, "127.0.0.1", limit=MAX_REQUEST)
    try:
        server = await listen(port=port or PORT)
    except OSError as error:
        if port:
            why = error.strerror or type(error).__name__
            raise ConfigError(f"port {port} of 127.0.0.1 cannot be had: {why}") from None
        server = await listen(port=0)
    callback.port = server.sockets[0].getsockname()[1]
    try:
        yield callback
    finally:
        server.close()
        await callback._hang_up()
        await server.wait_closed()


class Callback:
    """Where a browser is sent in the end, and what it brings. Made by `callback_server`."""

    def __init__(self) -> None:
        self.port = 0
        self._waiting: dict[asyncio.Future[dict[str, str]], AuthorizationRequest] = {}
        self._connections: dict[asyncio.Future[None], asyncio.StreamWriter] = {}

    @property
    def redirect_uri(self) -> str:
        """The address for clients that the operator has registered with it."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    def redirect_uri_of(self, issuer: str) -> str:
        """Give an address of its own to each issuer, for `OAuth(redirect_uri=...)`."""
        return f"{self.redirect_uri}/{sha256(issuer.encode()).hexdigest()[:16]}"

    async def answer(self, request: AuthorizationRequest) -> dict[str, str]:
        """Wait for the browser that answers a request; give all parameters of its query.

        Raises:
            AuthError: It did not come within `PATIENCE`.
        """
        answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._waiting[answer] = request
        try:
            async with asyncio.timeout(PATIENCE):
                return await answer
        except TimeoutError:
            raise AuthError(f"nobody logged in within {PATIENCE / 60:.0f} minutes") from None
        finally:
            del self._waiting[answer]

    async def _hang_up(self) -> None:
        for writer in self._connections.values():
            writer.close()  # what was written is on its way; a task that reads ends with that
        await asyncio.gather(*self._connections)

    # Browsers

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended = asyncio.get_running_loop().create_future()
        self._connections[ended] = writer
        try:
            if len(self._connections) <= MAX_CONNECTIONS:
                await self._converse(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it has gone, or is no browser
        finally:
            writer.close()
            del self._connections[ended]
            ended.set_result(None)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(REQUEST_PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
        status, text = self._judge(head)
        body = _PAGE.format(text).encode()
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
            "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n".encode()
            + body
        )

    def _judge(self, head: bytes) -> tuple[str, str]:
        """Take the query that answers a request; say what the browser is answered."""
        line, *rest = head.decode("latin-1").split("\r\n")
        method, _, target = line.partition(" ")
        path, _, query = target.rpartition(" ")[0].partition("?")
        headers = [each.partition(":") for each in rest]
        hosts = [value.strip() for name, _, value in headers if name.lower() == "host"]
        if hosts not in ([f"127.0.0.1:{self.port}"], [f"localhost:{self.port}"]):
            return "421 Misdirected Request", "This is another host."
        waiting = [
            (answer, each.state)
            for answer, each in self._waiting.items()
            if path == urlsplit(each.redirect_uri).path and not answer.done()
        ]
        if not waiting:
            return "404 Not Found", "No login ends here, or not any more. You can close this page."
        if method != "GET":
            return "405 Method Not Allowed", "This is no way to log in."
        try:
            pairs = parse_qsl(query, keep_blank_values=True, errors="strict")
        except ValueError:
            pairs = []
        found = dict(pairs)
        for answer, state in waiting:
            if len(found) == len(pairs) and is_same(found.get("state", ""), state):
                answer.set_result(found)
                return "200 OK", "You can close this page: interlock goes on where you started it."
        return "400 Bad Request", "This is no answer to the login that is under way."


async def open_browser(url: str) -> bool:
    """Show a URL in the user's browser; say whether there is one.

    Raises:
        AuthError: It is no URL for a browser.
    """
    check_browsable(url)
    return await in_thread(lambda: webbrowser.open(url))
