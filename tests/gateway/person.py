"""A person with a browser, in front of the pages of a gateway."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.gateway.conftest import RunningGateway
from tests.server.http.conftest import Reply
from tests.support.oidc import OidcIssuer


@pytest.fixture
async def issuer() -> AsyncIterator[OidcIssuer]:
    """Return an issuer that is running."""
    found = OidcIssuer()
    await found.open()
    yield found
    await found.close()


class Person:
    """A person with a browser.

    Attributes:
        cookies: What the browser keeps.
    """

    def __init__(
        self, gateway: RunningGateway, issuer: OidcIssuer, host: str = "127.0.0.1:8000"
    ) -> None:
        self.cookies: dict[str, str] = {}
        self._host = host
        self._gateway = gateway
        self._issuer = issuer

    async def get(self, path: str, **query: str) -> Reply:
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {"cookie": cookies, "host": self._host}
        request = self._gateway.http.request
        reply = await request("GET", path, b"", headers, query=urlencode(query))
        for each in reply.headers("set-cookie"):
            name, _, rest = each.partition("=")
            self.cookies[name] = rest.partition(";")[0]
        return reply

    async def begin(self, to: str = "/") -> str:
        """Return where the browser is sent to."""
        reply = await self.get("/login/begin", issuer=self._issuer.url, to=to)
        assert reply.code == 302, reply.body
        return reply.header("location") or ""

    async def log_in(self, to: str = "/") -> Reply:
        """Log in, and return the last page."""
        answer = self._issuer.consented(await self.begin(to))
        return await self.get("/login/callback", **answer)

    async def me(self, page: Reply) -> Any:
        """Return what the gateway knows of the person on a page."""
        cookie = f"interlock-8000={self.cookies['interlock-8000']}"
        headers = {"cookie": cookie, "x-interlock-key": data_of(page)["key"]}
        reply = await self._gateway.http.request("GET", "/me", b"", headers)
        return json.loads(reply.body)


def data_of(page: Reply) -> dict[str, str]:
    (data,) = re.findall(r'id="data">(.*?)</script>', page.body.decode())
    return json.loads(data)  # type: ignore[no-any-return]
