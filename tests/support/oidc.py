"""An issuer of OpenID Connect in this process, which signs what a test wants it to."""

from __future__ import annotations

import hashlib
import json
import time
from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

CLIENT = "interlock"
SECRET = "issuer-secret-0123456789"


class OidcIssuer:
    """The issuer.

    Attributes:
        url: Its identifier.
        claims: Of the ID tokens that it signs, beside the usual ones; "signed" is a whole token.
        user_info: What its userinfo endpoint answers; None for an issuer without one.
        is_down: It answers with an error.
        repeats: It refuses each code, and repeats what it was sent in its answer.
        requests: How often its metadata was requested.
        seen: What its token endpoint was sent: values of forms and headers.
    """

    def __init__(self) -> None:
        self.url = self._origin = ""
        self.claims: dict[str, Any] = {}
        self.user_info: dict[str, Any] | None = None
        self.is_down = False
        self.repeats = False
        self.requests = 0
        self.seen: list[str] = []
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._asked: dict[str, dict[str, str]] = {}  # requests by their codes
        self._runner: web.AppRunner | None = None

    async def open(self) -> None:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._metadata)
        app.router.add_get("/jwks", self._keys)
        app.router.add_post("/token", self._token)
        app.router.add_get("/me", self._me)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = self._origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def entry(self, **more: Any) -> dict[str, Any]:
        """Return the issuer in a configuration."""
        return {
            "issuer": self.url,
            "audience": "https://tools.example.com/mcp",
            "jwksUrl": f"{self.url}/jwks",
            "groups": "groups",
            "scopes": {"support": ["mcp:*"], "ops": ["mcp:*", "admin:read"]},
            "clientId": CLIENT,
            "clientSecret": SECRET,
            **more,
        }

    def consented(self, url: str) -> dict[str, str]:
        """Return the query that the browser brings back after its user has consented."""
        asked = dict(parse_qsl(urlsplit(url).query))
        code = f"code-{asked['state'][:8]}"
        self._asked[code] = asked
        return {"code": code, "state": asked["state"]}

    def signed(self, **claims: Any) -> str:
        """Return an ID token."""
        now = int(time.time())
        usual = {"iss": self.url, "sub": "4711", "aud": CLIENT, "iat": now, "exp": now + 600}
        return jwt.encode({**usual, **claims}, self._key, "ES256", {"kid": "k"})

    async def _metadata(self, _: web.Request) -> web.Response:
        self.requests += 1
        found = {
            "issuer": self.url,
            "authorization_endpoint": f"{self._origin}/authorize",
            "token_endpoint": f"{self._origin}/token",
            "jwks_uri": f"{self._origin}/jwks",
        }
        if self.user_info is not None:
            found["userinfo_endpoint"] = f"{self._origin}/me"
        return web.json_response(found, status=503 if self.is_down else 200)

    async def _keys(self, _: web.Request) -> web.Response:
        public = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
        return web.json_response({"keys": [public | {"kid": "k", "alg": "ES256"}]})

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.seen += [*map(str, form.values()), request.headers.get("Authorization", "")]
        if self.repeats:
            said = {"error": self.seen[-1], "error_description": " ".join(self.seen)}
            return web.json_response(said, status=400)
        asked = self._asked.pop(str(form.get("code")), {})
        digest = hashlib.sha256(str(form.get("code_verifier")).encode()).digest()
        challenge = urlsafe_b64encode(digest).decode().rstrip("=")
        is_client = request.headers.get("Authorization", "").startswith("Basic ")
        sent = (challenge, form.get("redirect_uri"))
        if not is_client or sent != (asked.get("code_challenge"), asked.get("redirect_uri")):
            return web.json_response({"error": "invalid_grant"}, status=400)
        claims = {"nonce": asked["nonce"], **self.claims}
        token = claims.pop("signed", None) or self.signed(**claims)
        return web.json_response({"access_token": "access", "id_token": token})

    async def _me(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer access"
        return web.json_response(self.user_info)
