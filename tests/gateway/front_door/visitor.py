"""A person with a browser and a client, in front of a gateway's OAuth front door."""

from __future__ import annotations

import json
import secrets
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from interlock.config.gateway import Address
from tests.gateway.conftest import RESOURCE, RunningGateway, bearer
from tests.server.http.conftest import Http, Reply

ORIGIN = "http://127.0.0.1:8000"
REDIRECT = "https://client.example.com/callback"
FORM = {"content-type": "application/x-www-form-urlencoded"}
JSON = {"content-type": "application/json"}


class Visitor:
    """A client that has registered itself, and the person who uses it.

    Attributes:
        client: The id of the client.
        verifier: The PKCE verifier of its requests.
        redirect: Where its answers go.
        session: The headers of the person's session; empty until the person has signed in.
    """

    def __init__(self, gateway: RunningGateway, redirect: str = REDIRECT) -> None:
        self.gateway = gateway
        self.client = ""
        self.verifier = secrets.token_urlsafe(48)
        self.redirect = redirect
        self.session: dict[str, str] = {}

    async def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Reply:
        sent = {**JSON, **(headers or {})}
        request = self.gateway.http.request
        return await request("POST", path, json.dumps(body).encode(), sent)

    async def register(self, **metadata: Any) -> Reply:
        told = {
            "client_name": "Client",
            "redirect_uris": [self.redirect],
            "token_endpoint_auth_method": "none",
        }
        reply = await self.post("/register", told | metadata)
        if reply.code == 201:
            self.client = reply.json["client_id"]
        return reply

    async def sign_in(self, key: str) -> None:
        """Sign in with an API key, as the page does."""
        reply = await self.post("/api/login", {"key": key}, {"origin": ORIGIN})
        assert reply.code == 200, reply.body
        cookie = (reply.header("set-cookie") or "").partition(";")[0]
        page_key = reply.json["pageKey"]
        self.session = {"cookie": cookie, "x-interlock-key": page_key, "origin": ORIGIN}

    def query(self, **more: str | None) -> str:
        """Return the query of an authorization request; None leaves a parameter out."""
        challenge = urlsafe_b64encode(sha256(self.verifier.encode()).digest()).decode()
        asked: dict[str, str | None] = {
            "response_type": "code",
            "client_id": self.client,
            "redirect_uri": self.redirect,
            "state": "state-1",
            "code_challenge": challenge.rstrip("="),
            "code_challenge_method": "S256",
            "resource": RESOURCE,
        }
        told = {name: value for name, value in (asked | more).items() if value is not None}
        return urlencode(told)

    async def authorize(self, query: str) -> Reply:
        return await self.gateway.http.request("GET", "/authorize", b"", {}, query=query)

    async def shown(self, query: str) -> Reply:
        return await self.post("/api/authorize", {"query": query}, self.session)

    async def decide(self, query: str, *, allow: bool = True, **more: Any) -> Reply:
        """Decide about what is shown, as the page does; return the answer of the gateway."""
        shown = await self.shown(query)
        if shown.code != 200:
            return shown
        told = {"query": query, "seen": shown.json["seen"], "allow": allow}
        return await self.post("/api/authorize/decide", told | more, self.session)

    async def answer(self, query: str = "", **decision: Any) -> dict[str, str]:
        """Return the parameters with which the browser comes back to the client."""
        reply = await self.decide(query or self.query(), **decision)
        assert reply.code == 200, reply.body
        return dict(parse_qsl(urlsplit(reply.json["location"]).query))

    async def token(self, **form: str) -> Reply:
        own = {"client_id": self.client} if self.client else {}
        body = urlencode({**own, **form}).encode()
        return await self.gateway.http.request("POST", "/token", body, FORM)

    async def redeem(self, code: str, **more: str) -> Reply:
        asked = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect,
            "code_verifier": self.verifier,
        }
        return await self.token(**(asked | more))

    async def refresh(self, token: str, **more: str) -> Reply:
        return await self.token(grant_type="refresh_token", refresh_token=token, **more)

    async def log_in(self, query: str = "") -> dict[str, Any]:
        """Log in, and return the tokens."""
        if not self.client:
            await self.register()
        reply = await self.redeem((await self.answer(query))["code"])
        assert reply.code == 200, reply.body
        return dict(reply.json)

    async def operate(self, action: str, client: str) -> Reply:
        """Block or allow a client, as an operator does."""
        boss = await self.gateway.key("boss", "admin:write", "admin:read")
        operators = Http(self.gateway.endpoint.admin_app(Address("127.0.0.1", 9000)))
        body = json.dumps({"client": client}).encode()
        path = f"/admin/api/v1/clients/{action}"
        return await operators.request("POST", path, body, JSON | bearer(boss))

    async def call(self, token: str, path: str = "/mcp") -> Reply:
        """Call the tool of the tests with an access token."""
        return await self.gateway.http.call("crm__x", {}, path=path, headers=bearer(token))
