"""A server on loopback, to which the browser is redirected at the end of a login.

Rules:

1. Only a request with this server's host and with the login's path and `state` completes the login.
   A request that another web page sends to this port is refused.
2. Requests are limited in size and time. The page shows no text from a request.
3. A browser is started only for http and https URLs, with the URL as one argument and no shell.

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
PORT = 21_897  # a fixed default, because a stored registration allows only one redirect URI
LOGIN_TIMEOUT = 300.0  # seconds that a user may take to log in
MAX_REQUEST = 16_384  # bytes of a request line with its headers
REQUEST_TIMEOUT = 10.0  # seconds within which the browser must send them
MAX_CONNECTIONS = 16  # simultaneous connections

_PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>interlock</title>
<p>{}</p>
"""


@asynccontextmanager
async def callback_server(port: int = 0) -> AsyncIterator[Callback]:
    """Listen on loopback for the browser that a login redirects there.

    Args:
        port: The port on 127.0.0.1; 0 for `PORT`, or for any free port if `PORT` is in use.

    Raises:
        ConfigError: The port cannot be used.
    """
    callback = Callback()
    listen = partial(asyncio.start_server, callback._serve, "127.0.0.1", limit=MAX_REQUEST)
    try:
        server = await listen(port=port or PORT)
    except OSError as error:
        if port:
            why = error.strerror or type(error).__name__
            raise ConfigError(f"port {port} of 127.0.0.1 cannot be opened: {why}") from None
        server = await listen(port=0)
    callback.port = server.sockets[0].getsockname()[1]
    try:
        yield callback
    finally:
        server.close()
        await callback._close()
        await server.wait_closed()


class Callback:
    """Waits for the redirects at the end of logins. Created by `callback_server`."""

    def __init__(self) -> None:
        self.port = 0
        self._logins: dict[asyncio.Future[dict[str, str]], AuthorizationRequest] = {}
        self._connections: dict[asyncio.Future[None], asyncio.StreamWriter] = {}

    @property
    def redirect_uri(self) -> str:
        """The redirect URI for clients that the operator has registered."""
        return f"http://127.0.0.1:{self.port}{PATH}"

    def redirect_uri_of(self, issuer: str) -> str:
        """Return a redirect URI that differs for each issuer, for `OAuth(redirect_uri=...)`."""
        return f"{self.redirect_uri}/{sha256(issuer.encode()).hexdigest()[:16]}"

    async def query(self, request: AuthorizationRequest) -> dict[str, str]:
        """Wait until a login redirects the browser here; return the query of the redirect.

        Raises:
            AuthError: The browser did not arrive within `LOGIN_TIMEOUT`.
        """
        query: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._logins[query] = request
        try:
            async with asyncio.timeout(LOGIN_TIMEOUT):
                return await query
        except TimeoutError:
            minutes = f"{LOGIN_TIMEOUT / 60:.0f} minutes"
            raise AuthError(f"the login was not completed within {minutes}") from None
        finally:
            del self._logins[query]

    async def _close(self) -> None:
        for writer in self._connections.values():
            writer.close()  # sends what has been written, and ends the task that reads
        await asyncio.gather(*self._connections)

    # Browsers

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended = asyncio.get_running_loop().create_future()
        self._connections[ended] = writer
        try:
            if len(self._connections) <= MAX_CONNECTIONS:
                await self._serve_request(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client disconnected, or did not send a valid request
        finally:
            writer.close()
            del self._connections[ended]
            ended.set_result(None)

    async def _serve_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(REQUEST_TIMEOUT):
            head = await reader.readuntil(b"\r\n\r\n")
        status, text = self._accept(head)
        body = _PAGE.format(text).encode()
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\n"
            "Content-Security-Policy: default-src 'none'\r\nReferrer-Policy: no-referrer\r\n"
            "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n".encode()
            + body
        )

    def _accept(self, head: bytes) -> tuple[str, str]:
        """Complete the login to which a request belongs; return the status and text of the page."""
        line, *rest = head.decode("latin-1").split("\r\n")
        method, _, target = line.partition(" ")
        path, _, text = target.rpartition(" ")[0].partition("?")
        headers = [each.partition(":") for each in rest]
        hosts = [value.strip() for name, _, value in headers if name.lower() == "host"]
        if hosts not in ([f"127.0.0.1:{self.port}"], [f"localhost:{self.port}"]):
            return "421 Misdirected Request", "This is another host."
        logins = [
            (query, each.state)
            for query, each in self._logins.items()
            if path == urlsplit(each.redirect_uri).path and not query.done()
        ]
        if not logins:
            return "404 Not Found", "No login is waiting here. You can close this page."
        if method != "GET":
            return "405 Method Not Allowed", "The request must use GET."
        try:
            pairs = parse_qsl(text, keep_blank_values=True, errors="strict")
        except ValueError:
            pairs = []
        parameters = dict(pairs)
        for query, state in logins:
            if len(parameters) == len(pairs) and is_same(parameters.get("state", ""), state):
                query.set_result(parameters)
                return (
                    "200 OK",
                    "You can close this page: interlock continues where you started it.",
                )
        return "400 Bad Request", "This request does not belong to the login in progress."


async def open_browser(url: str) -> bool:
    """Open a URL in the user's browser; return False if no browser is available.

    Raises:
        AuthError: The URL is not safe to open in a browser.
    """
    check_browsable(url)
    return await in_thread(lambda: webbrowser.open(url))
