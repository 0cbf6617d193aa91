"""The host of clients that are described by a document."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from interlock.gateway.front_door.client_authentication import BY_JWT
from tests.gateway.front_door.visitor import ORIGIN

REDIRECT = "https://claude.ai/api/mcp/auth_callback"


class Host:
    """The host of a client's document.

    Attributes:
        id: The client's id, which is the URL of its document.
        answer: Answers a request for the document.
        fetches: How often the document was requested.
    """

    def __init__(self) -> None:
        self.id = self.origin = ""
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.fetches = 0
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.more: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.raw: web.Response | None = None

    def name(self, client: str) -> None:
        """Describe the client of this name from now on."""
        self.id = f"{self.origin}/{client}/client.json"
        self.more = {}

    def document(self) -> dict[str, Any]:
        return {
            "client_id": self.id,
            "client_name": "Claude",
            "redirect_uris": [
                "https://claude.ai/api/mcp/auth_callback",
                "http://localhost/callback",
            ],
            "token_endpoint_auth_method": "none",
            **self.more,
        }

    async def answered(self, _: web.Request) -> web.Response:
        self.fetches += 1
        self.asked.set()
        await self.may_answer.wait()
        if self.raw is not None:
            return self.raw
        return web.json_response(self.document(), headers=self.headers)

    async def keys(self, _: web.Request) -> web.Response:
        public = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        return web.json_response({"keys": [public | {"kid": "k", "alg": "ES256"}]})

    def signs(self) -> None:
        """Describe a client that signs its requests, as ChatGPT's does."""
        self.more = {
            "token_endpoint_auth_method": "private_key_jwt",
            "token_endpoint_auth_methods_supported": ["none", "private_key_jwt"],
            "jwks_uri": f"{self.origin}/jwks",
        }

    def proof(self, **claims: Any) -> dict[str, str]:
        """Return the members of a form with which the client proves who it is."""
        return {"client_assertion_type": BY_JWT, "client_assertion": self.assertion(**claims)}

    def assertion(self, key: Any = None, algorithm: str = "ES256", **claims: Any) -> str:
        now = int(time.time())
        usual = {"iss": self.id, "sub": self.id, "aud": f"{ORIGIN}/token", "exp": now + 60}
        told = {name: value for name, value in (usual | claims).items() if value is not None}
        told.setdefault("jti", f"{now}-{time.perf_counter_ns()}")
        return jwt.encode(told, key or self.key, algorithm, {"kid": "k"})


def unsigned(host: Host) -> str:
    """Return an assertion without a signature."""
    payload = host.assertion().split(".")[1]
    none = urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    return f"{none}.{payload}."


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    made = Host()
    app = web.Application()
    app.router.add_get("/{name}/client.json", made.answered)
    app.router.add_get("/jwks", made.keys)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
    made.name("claude")
    yield made
    made.may_answer.set()
    await runner.cleanup()
