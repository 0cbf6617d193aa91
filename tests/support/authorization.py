"""Our protected server, a real authorization server, and a user with a browser."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit

import aiohttp

from tests.support.node import node_folder
from tests.support.served import serving

SERVERS = Path(__file__).parents[1] / "servers"
PACKAGES = Path(__file__).parents[2] / "build" / "interop" / "node_modules"

CALLBACK = "http://127.0.0.1:1/callback"
NATIVE_CLIENT: dict[str, Any] = {
    "client_name": "a client of the tests",
    "application_type": "native",
    "redirect_uris": [CALLBACK],
    "grant_types": ["authorization_code", "refresh_token"],
    "response_types": ["code"],
    "token_endpoint_auth_method": "none",
}
MACHINE: dict[str, Any] = {  # a client without a user
    "grant_types": ["client_credentials"],
    "response_types": [],
    "redirect_uris": [],
}


class Protected:
    """A server that requires tokens, and its authorization server.

    Attributes:
        url: The MCP server's. Every request needs the scope "notes:read", the tool `write` also
            "notes:write"; `who` returns the principal, `sign_out` invalidates the token.
        issuer: The authorization server's.
        browser: Of a user who consents to everything.
    """

    def __init__(self, url: str, issuer: str) -> None:
        self.url = url
        self.issuer = issuer
        self.browser = Browser(issuer)

    async def wish(self, **wishes: Any) -> None:
        """Change what the authorization server does; `servers/authorization.cjs` has the list."""
        async with aiohttp.ClientSession() as http:
            await http.post(f"{self.issuer}/test", json=wishes)

    async def register(self, **metadata: Any) -> dict[str, Any]:
        """Register a client at the authorization server, as an operator does.

        Args:
            metadata: What differs from a native client without a secret.

        Returns:
            Its metadata: "client_id", "client_secret" and so on.
        """
        url = f"{self.issuer}/reg"
        wanted = {**NATIVE_CLIENT, **metadata}
        async with aiohttp.ClientSession() as http, http.post(url, json=wanted) as reply:
            registered: dict[str, Any] = await reply.json()
            assert reply.status == 201, registered
            return registered

    async def done(self) -> dict[str, int]:
        """Return how often the authorization server did what, by grant type, error and so on."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.issuer}/test") as reply:
            done: dict[str, int] = await reply.json()
            return done


class Browser:
    """A browser whose user logs in and consents, or refuses.

    Args:
        issuer: The authorization server; a URL elsewhere is the client's callback.

    Attributes:
        person: What the user enters into the login form.
        refuses: Whether the user cancels instead.
        visited: The pages.
    """

    def __init__(self, issuer: str) -> None:
        self.person = "ada"
        self.refuses = False
        self.visited: list[str] = []
        self._issuer = issuer
        self._cookies = aiohttp.CookieJar(unsafe=True)  # it accepts cookies of an IP address

    async def __call__(self, url: str) -> dict[str, str]:
        """Log in from a page; return the query of the callback URL."""
        return dict(parse_qsl(urlsplit(await self.callback(url)).query))

    async def callback(self, url: str) -> str:
        """Log in from a page; return the callback URL without requesting it."""
        form: dict[str, str] | None = None
        async with aiohttp.ClientSession(cookie_jar=self._cookies) as http:
            while url.startswith(f"{self._issuer}/"):
                self.visited.append(urlsplit(url).path)
                method = "GET" if form is None else "POST"
                async with http.request(method, url, data=form, allow_redirects=False) as reply:
                    page = await reply.text()
                    assert reply.status in (200, 302, 303), page
                    if reply.status == 200:
                        url, form = self._fill(page)
                    else:
                        url, form = urljoin(url, reply.headers["Location"]), None
        return url

    def _fill(self, page: str) -> tuple[str, dict[str, str] | None]:
        """Fill in a page; return the next URL, and the form if there is one."""
        read = _Page()
        read.feed(page)
        if self.refuses:
            return next(link for link in read.links if link.endswith("/abort")), None
        written = {"login": self.person, "password": "any"}
        return read.action, {name: written.get(name, value) for name, value in read.fields.items()}


class _Page(HTMLParser):
    """The links and the form of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.action = ""
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.links.append(told["href"])
        elif tag == "form":
            self.action = told["action"]
        elif tag == "input":
            self.fields[told["name"]] = told.get("value", "")


@contextmanager
def protected(logs: Path) -> Iterator[tuple[str, str]]:
    """Run both servers; yield the URL of ours, and the issuer."""
    assert PACKAGES.exists(), f"{PACKAGES} is missing: `make test-all` installs it"
    authorization = [str(node_folder() / "node"), str(SERVERS / "authorization.cjs")]
    with serving(authorization, logs / "authorization", NODE_PATH=str(PACKAGES)) as issuer:
        ours = [sys.executable, str(SERVERS / "protected.py"), issuer]
        with serving(ours, logs / "protected") as url:
            yield url, issuer
