"""An authorization server and the server it protects, on loopback, with configurable faults.

A test changes one thing: a document (`as_.metadata["issuer"] = …`), the query of the redirect
(`as_.callback["iss"] = …`, None removes), the answer of an endpoint (`as_.answers["/token"] = …`),
or a whole reply (`as_.replies["/token"] = html`). All requests are recorded in `as_.requests`.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote_plus, urlencode

import aiohttp
from aiohttp import web

from interlock.oauth import AuthorizationRequest
from tests.servers.dpop import ProofChecker

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SERVER_METADATA = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
RESOURCE_METADATA = "/.well-known/oauth-protected-resource"


class Seen(NamedTuple):
    """A request that was received."""

    method: str
    path: str
    sent: Json  # query, form or JSON
    headers: Json  # names in lower case


class Site:
    """An HTTP server on loopback that records requests and can be made to misbehave."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.replies: dict[str, Handler] = {}  # by path, instead of the default ones
        self.documents: dict[str, Json] = {}  # by path
        self.origin = ""
        self._news = asyncio.Event()
        self._runner: web.ServerRunner | None = None

    async def open(self) -> None:
        runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self._runner = runner
        self.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def close(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def sent(self, path: str) -> list[Json]:
        """Return what was sent to a path, request by request."""
        return [seen.sent for seen in self.requests if seen.path == path]

    async def asked(self, path: str, times: int) -> None:
        """Wait until a path was requested so many times."""
        while len(self.sent(path)) < times:
            await self._news.wait()

    @property
    def paths(self) -> list[str]:
        return [seen.path for seen in self.requests]

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.content_type == "application/json":
            sent = await request.json()
        elif request.method == "POST":
            sent = dict(await request.post())
        else:
            sent = dict(request.query)
        headers = {name.lower(): value for name, value in request.headers.items()}
        seen = Seen(request.method, request.raw_path.partition("?")[0], sent, headers)
        self.requests.append(seen)
        self._news.set()
        self._news = asyncio.Event()
        if seen.path in self.replies:
            return await self.replies[seen.path](request)  # type: ignore[arg-type]
        if seen.path in self.documents:
            return web.json_response(self.documents[seen.path])
        return await self.answer(seen)

    async def answer(self, seen: Seen) -> web.StreamResponse:
        return web.Response(status=404, text="nothing here")


class AuthorizationServer(Site):
    """Issues codes and tokens correctly, unless a test changes something."""

    def __init__(self, path: str = "") -> None:
        super().__init__()
        self._path = path
        self.callback: dict[str, str | None] = {}
        self.answers: dict[str, Json] = {}  # by path: members to add; None removes one
        self.clients: dict[str, str] = {}  # id: secret, "" for public ones
        self.codes: dict[str, Json] = {}
        self.refresh_tokens: dict[str, str] = {}  # valid ones: client
        self.access_tokens: dict[str, str] = {}  # valid ones: scope
        self.rotates = True
        self.dpop: ProofChecker | None = None  # binds tokens to keys
        self.thumbprints: dict[str, str] = {}  # of the keys, by access or refresh token
        self.holding = asyncio.Event()  # while cleared, the token endpoint waits
        self.holding.set()
        self.held = asyncio.Event()  # a request waits there
        self._count: Counter[str] = Counter()

    async def open(self) -> None:
        await super().open()
        self.issuer = self.origin + self._path
        self.metadata: Json = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "code_challenge_methods_supported": ["plain", "S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "a_member_of_tomorrow": {"is": ["passed", "over"]},
        }
        self.documents[SERVER_METADATA + self._path] = self.metadata

    def make(self, what: str) -> str:
        """Return a new id or secret."""
        self._count[what] += 1
        return f"{what}-{self._count[what]}-of-{self.origin.rpartition(':')[2]}"

    async def answer(self, seen: Seen) -> web.StreamResponse:
        match seen.path:
            case "/register":
                return self._register(seen)
            case "/authorize":
                return self._authorize(seen)
            case "/token":
                if not self.holding.is_set():
                    self.held.set()
                    await self.holding.wait()
                return self._token(seen)
        return await super().answer(seen)

    def _with(self, path: str, answer: Json) -> Json:
        changed = {**answer, **self.answers.get(path, {})}
        return {name: value for name, value in changed.items() if value is not None}

    def _register(self, seen: Seen) -> web.StreamResponse:
        id, method = self.make("client"), seen.sent["token_endpoint_auth_method"]
        answer = {"client_id": id, **seen.sent}
        if method != "none":
            answer["client_secret"] = self.make("secret +%41:/&=")
        answer = self._with("/register", answer)
        self.clients[answer.get("client_id", id)] = answer.get("client_secret", "")
        return web.json_response(answer, status=201)

    def _authorize(self, seen: Seen) -> web.StreamResponse:
        code = self.make("code")
        self.codes[code] = seen.sent
        back = {"code": code, "state": seen.sent["state"], **self.callback}
        query = urlencode({name: value for name, value in back.items() if value is not None})
        location = f"{seen.sent['redirect_uri']}?{query}"
        return web.Response(status=302, headers={"Location": location})

    def _token(self, seen: Seen) -> web.StreamResponse:
        client = self._client(seen)
        if client is None:
            return refused("invalid_client", 401)
        sent = seen.sent
        thumbprint = ""
        if self.dpop is not None:
            thumbprint, why = self.dpop.check(
                seen.headers.get("dpop", ""), "POST", f"{self.origin}/token"
            )
            if why:
                return refused(why, headers={"DPoP-Nonce": self.dpop.nonce})
        match sent["grant_type"]:
            case "authorization_code":
                asked = self.codes.pop(sent["code"], None)
                digest = hashlib.sha256(sent["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                if asked is None or (
                    asked["client_id"],
                    asked["redirect_uri"],
                    asked["code_challenge"],
                    asked.get("resource"),
                ) != (client, sent["redirect_uri"], challenge, sent.get("resource")):
                    return refused("invalid_grant")
                scope = asked.get("scope", "")
            case "refresh_token":
                if self.refresh_tokens.get(sent["refresh_token"]) != client:
                    return refused("invalid_grant")
                if self.thumbprints.get(sent["refresh_token"], "") != thumbprint:
                    return refused("invalid_grant")
                if self.rotates:
                    del self.refresh_tokens[sent["refresh_token"]]
                scope = ""
            case _:
                scope = sent.get("scope", "")
        answer: Json = {"access_token": self.make("access"), "token_type": "Bearer"}
        answer["expires_in"] = 3600
        if thumbprint:
            answer["token_type"] = "DPoP"
        if sent["grant_type"] != "client_credentials" and (
            self.rotates or sent["grant_type"] != "refresh_token"
        ):
            answer["refresh_token"] = self.make("refresh")
        answer = self._with("/token", answer)
        if isinstance(answer.get("refresh_token"), str):
            self.refresh_tokens[answer["refresh_token"]] = client
        self.access_tokens[str(answer.get("access_token"))] = scope
        for member in ("access_token", "refresh_token"):
            self.thumbprints[str(answer.get(member))] = thumbprint
        return web.json_response(answer, headers={"Cache-Control": "no-store"})

    def _client(self, seen: Seen) -> str | None:
        """Return the client's id if it has authenticated."""
        scheme, _, pair = seen.headers.get("authorization", "").partition(" ")
        if scheme == "Basic":
            id, _, secret = base64.b64decode(pair).decode().partition(":")
            id, secret = unquote_plus(id), unquote_plus(secret)
        else:
            id, secret = seen.sent.get("client_id", ""), seen.sent.get("client_secret", "")
        if id.startswith("https://") or "client_assertion" in seen.sent:
            return id
        return id if id in self.clients and self.clients[id] == secret else None


class ProtectedServer(Site):
    """Accepts tokens of its authorization server, and publishes where to get one."""

    def __init__(self, authorization: AuthorizationServer, path: str = "/mcp") -> None:
        super().__init__()
        self.authorization = authorization
        self.path = path
        self.challenge: str | None = None  # instead of the default one, on 401
        self.scope = ""  # required on 401
        self.needs: tuple[str, ...] = ()  # scopes without which there is a 403
        self.dpop: ProofChecker | None = None  # accepts only tokens that are bound to keys

    async def open(self) -> None:
        await super().open()
        self.url = self.origin + self.path
        self.metadata: Json = {
            "resource": self.url,
            "authorization_servers": [self.authorization.issuer],
            "bearer_methods_supported": ["header"],
        }
        self.metadata_path = RESOURCE_METADATA + self.path
        self.documents[self.metadata_path] = self.metadata

    async def answer(self, seen: Seen) -> web.StreamResponse:
        if seen.path != (self.path or "/"):
            return await super().answer(seen)
        expected = "Bearer" if self.dpop is None else "DPoP"
        scheme, _, token = seen.headers.get("authorization", "").partition(" ")
        granted = self.authorization.access_tokens.get(token) if scheme == expected else None
        if granted is None:
            scope = f', scope="{self.scope}"' if self.scope else ""
            own = f'{expected} resource_metadata="{self.origin}{self.metadata_path}"{scope}'
            challenge = own if self.challenge is None else self.challenge
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        if self.dpop is not None:
            proof = seen.headers.get("dpop", "")
            thumbprint, why = self.dpop.check(proof, seen.method, self.url, token)
            if why or thumbprint != self.authorization.thumbprints[token]:
                headers = {
                    "WWW-Authenticate": f'DPoP error="{why or "invalid_token"}"',
                    "DPoP-Nonce": self.dpop.nonce,
                }
                return web.Response(status=401, headers=headers)
        if not set(self.needs) <= set(granted.split()):
            challenge = f'Bearer error="insufficient_scope", scope="{" ".join(self.needs)}"'
            return web.Response(status=403, headers={"WWW-Authenticate": challenge})
        return web.json_response({"token": token})


class Browser:
    """A user who allows everything at once."""

    def __init__(self) -> None:
        self.shown: list[AuthorizationRequest] = []

    async def __call__(self, request: AuthorizationRequest) -> dict[str, str]:
        self.shown.append(request)
        async with (
            aiohttp.ClientSession() as session,
            session.get(request.url, allow_redirects=False) as response,
        ):
            location = response.headers["Location"]
        assert location.startswith(request.redirect_uri)
        return dict(parse_qsl(location.partition("?")[2], keep_blank_values=True))


# Replies


def refused(
    error: str, status: int = 400, headers: dict[str, str] | None = None, **more: Any
) -> web.Response:
    return web.json_response({"error": error, **more}, status=status, headers=headers)


def always(
    text: str = "", status: int = 200, content_type: str = "application/json", **headers: str
) -> Handler:
    """Return a handler that always sends the same reply."""

    async def reply(request: web.Request) -> web.StreamResponse:
        return web.Response(
            text=text, status=status, content_type=content_type, headers={**headers}
        )

    return reply


html = always("<!doctype html><title>Log in</title>", content_type="text/html")


async def endless(request: web.Request) -> web.StreamResponse:
    """Send a document that never ends."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(b" " * 65_536)


async def mute(request: web.Request) -> web.StreamResponse:
    """Send nothing at all."""
    await asyncio.Event().wait()
    raise AssertionError("never")
