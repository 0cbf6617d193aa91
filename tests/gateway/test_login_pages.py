"""Login of an organisation's people to the pages of a gateway."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
import pytest

from tests.gateway.conftest import RunningGateway, offering
from tests.server.http.conftest import Reply
from tests.support.oidc import CLIENT, SECRET, OidcIssuer

pytestmark = pytest.mark.slow("fills a database")


@pytest.fixture
async def issuer() -> AsyncIterator[OidcIssuer]:
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


async def test_groups_of_an_id_token_decide_what_a_person_may_do(running, issuer: OidcIssuer):
    issuer.claims["groups"] = ["support"]
    rule = {"id": "r", "effect": "allow", "who": ["group:support"], "tools": ["crm:x"]}
    settings = {"auth": {"issuers": [issuer.entry()]}, "policy": {"rules": [rule]}}
    async with running(settings, crm=offering("x", "y")) as gateway:
        person = Person(gateway, issuer)
        ways = (await person.get("/api/login")).json
        page = await person.log_in("/c/abc?x=1")
        me = await person.me(page)

    assert ways == {"issuers": [{"issuer": issuer.url, "name": urlsplit(issuer.url).netloc}]}
    assert (page.code, data_of(page)["to"]) == (200, "/c/abc?x=1")
    assert (me["user"], me["role"], me["scopes"]) == (f"{issuer.url}#4711", "user", ["mcp:*"])
    assert me["groups"] == ["support"]
    assert person.cookies["interlock-8000"] not in page.body.decode()


async def test_example_of_the_documentation_signs_people_in(running, issuer: OidcIssuer):
    page = Path(__file__).parents[2] / "docs" / "web.md"
    _, _, rest = page.read_text().partition("<!-- an issuer with a login -->\n```json\n")
    text = rest.partition("```")[0].replace("https://id.example.com", issuer.url)
    settings = json.loads(text.replace("${ISSUER_SECRET}", SECRET))["gateway"]
    issuer.claims["groups"] = ["ops"]
    async with running(settings) as gateway:
        person = Person(gateway, issuer, "tools.example.com")
        page_key = data_of(await person.log_in())["key"]

    assert "__Host-interlock" in person.cookies
    assert len(page_key) == 43


async def test_groups_may_come_from_the_userinfo_endpoint(running, issuer: OidcIssuer):
    issuer.user_info = {"sub": "4711", "groups": ["ops"]}
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        person = Person(gateway, issuer)
        me = await person.me(await person.log_in())
        issuer.user_info = {"sub": "another", "groups": ["ops"]}
        other = await Person(gateway, issuer).log_in()

    assert (me["role"], me["scopes"]) == ("auditor", ["admin:read", "mcp:*"])
    assert other.code >= 400


async def test_request_to_the_issuer_has_pkce_a_nonce_and_no_secret(running, issuer: OidcIssuer):
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        person = Person(gateway, issuer)
        first, second = [dict(parse_qsl(urlsplit(await person.begin()).query)) for _ in "12"]

    assert first["redirect_uri"] == "http://127.0.0.1:8000/login/callback"
    assert (first["client_id"], first["code_challenge_method"]) == (CLIENT, "S256")
    assert first["scope"] == "openid"
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name]) > 30
        assert first[name] != second[name]
    assert SECRET not in str(first) + str(person.cookies)
    assert first["nonce"] not in str(person.cookies)


def _unsigned(issuer: OidcIssuer, key: str | None, algorithm: str) -> str:
    now = int(time.time())
    claims = {"iss": issuer.url, "sub": "1", "aud": CLIENT, "iat": now, "exp": now + 60}
    return jwt.encode({**claims, "nonce": "n", "groups": ["ops"]}, key, algorithm)


FORGERIES: dict[str, Callable[[OidcIssuer], dict[str, Any]]] = {
    "another nonce": lambda _: {"nonce": "of another login"},
    "another audience": lambda _: {"aud": "another-client"},
    "several audiences": lambda _: {"aud": [CLIENT, "another"], "azp": "another"},
    "another issuer": lambda _: {"iss": "https://other.example"},
    "expired": lambda _: {"exp": int(time.time()) - 120},
    "no nonce": lambda issuer: {"signed": issuer.signed(groups=["ops"])},
    "unsigned": lambda issuer: {"signed": _unsigned(issuer, None, "none")},
    "shared secret": lambda issuer: {"signed": _unsigned(issuer, SECRET * 2, "HS256")},
    "not a token": lambda _: {"signed": "x"},
}


async def test_id_token_that_is_not_for_this_login_opens_no_session(running, issuer: OidcIssuer):
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        for name, forge in FORGERIES.items():
            issuer.claims = {"groups": ["ops"], **forge(issuer)}
            person = Person(gateway, issuer)
            page = await person.log_in()

            assert page.code >= 400, name
            assert "interlock-8000" not in person.cookies, name
            assert b"Sign in again" in page.body, name


async def test_login_ends_once_and_only_in_the_browser_that_began_it(running, issuer: OidcIssuer):
    issuer.claims["groups"] = ["ops"]
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        person, other = Person(gateway, issuer), Person(gateway, issuer)
        answer = issuer.consented(await person.begin())
        stolen = await other.get("/login/callback", **answer)
        changed = await person.get("/login/callback", **{**answer, "state": "another"})
        kept = dict(person.cookies)
        first = await person.get("/login/callback", **answer)
        person.cookies.update(kept)
        issuer.consented(f"{issuer.url}/authorize?{urlencode(answer)}")  # the code is good again
        again = await person.get("/login/callback", **answer)

    assert [each.code for each in (stolen, changed, first, again)] == [400, 400, 200, 400]
    assert "interlock-8000" not in other.cookies


async def test_login_that_fails_says_why_and_how_to_go_on(running, issuer: OidcIssuer):
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        person = Person(gateway, issuer)
        issuer.claims["groups"] = ["<b>nobody</b>"]
        no_rights = await person.log_in()
        state = issuer.consented(await person.begin())["state"]
        denied = await person.get("/login/callback", state=state, error="access_denied")
        elsewhere = await person.get("/login/begin", issuer="https://other.example")

    assert [each.code for each in (no_rights, denied, elsewhere)] == [403, 403, 404]
    assert b"&lt;b&gt;nobody&lt;/b&gt;" in no_rights.body
    assert b"access_denied" in denied.body
    assert "interlock-8000" not in person.cookies


async def test_issuer_that_is_down_is_named(running, issuer: OidcIssuer):
    issuer.is_down = True
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        page = await Person(gateway, issuer).get("/login/begin", issuer=issuer.url)

    assert page.code == 502
    assert b"answers 503" in page.body


async def test_login_never_leads_to_another_site(running, issuer: OidcIssuer):
    issuer.claims["groups"] = ["ops"]
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        for to in ("//evil.example", "/\\evil.example", "https://evil.example", "x", "/\tx"):
            assert data_of(await Person(gateway, issuer).log_in(to))["to"] == "/", to


async def test_session_ends_when_its_issuer_leaves_the_configuration(running, issuer: OidcIssuer):
    issuer.claims["groups"] = ["ops"]
    async with running({"auth": {"issuers": [issuer.entry()]}}) as gateway:
        person = Person(gateway, issuer)
        page = await person.log_in()
        before = await person.me(page)
        await gateway.reload({})
        after = await person.me(page)

    assert before["user"] == f"{issuer.url}#4711"
    assert after["status"] == 401
