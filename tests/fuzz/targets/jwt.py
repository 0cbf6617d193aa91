"""Tokens: only what the issuer signed for us is taken, and nothing else raises or is slow."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from interlock.auth.jwt import JwtVerifier, KeySet
from interlock.errors import ConfigError
from tests.fuzz.choices import Choices
from tests.fuzz.watch import check_text

TOKENS = [
    *(
        b'"alg":"EdDSA"',
        b'"alg":"none"',
        b'"alg":"HS256"',
        b'"kid":"k"',
        b'"typ":"JWT"',
        b'"crit":',
    ),
    *(b'"iss":"https://issuer.example"', b'"aud":"https://mcp.example/mcp"', b'"sub":"me"', b"."),
    *(b'"exp":9999999999', b'"exp":1e999', b'"nbf":', b'"iat":', b'"scope":"a b"', b'"keys":['),
    *(b'"kty":"OKP"', b'"crv":"Ed25519"', b'"x":"', b'"kty":"RSA"', b'"n":"', b'"e":"AQAB"'),
]
ISSUER, AUDIENCE = "https://issuer.example", "https://mcp.example/mcp"
ALGORITHMS = frozenset(("EdDSA", "RS256", "ES256"))
_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


_PUBLIC = base64url(_KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
_JWKS = {"keys": [{"kty": "OKP", "crv": "Ed25519", "x": _PUBLIC, "kid": "k", "alg": "EdDSA"}]}
KEYS: list[dict[str, str]] = [
    _JWKS["keys"][0],
    {"kty": "RSA", "n": base64url(bytes([193, *range(255)])), "e": "AQAB", "kid": "r"},
    {
        "kty": "EC",
        "crv": "P-256",
        "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
        "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU",
    },
]
ODD: list[Any] = [
    *(None, "sig", "enc", ["verify"], ["sign"], "RS256", "EdDSA", "AQAB", "", "A" * 300)
]
_VERIFY = JwtVerifier(issuer=ISSUER, audience=AUDIENCE, jwks=_JWKS, algorithms=["EdDSA"])
_MEMBERS = ["iss", "aud", "sub", "exp", "nbf", "iat", "jti", "scope", "scp", "x"]
_VALUES = [ISSUER, AUDIENCE, [AUDIENCE], "me", 0, 4 * 10**9, 1e308, -1, "4000000000", None, [], {}]


def target(data: bytes) -> None:
    choices = Choices(data)
    match choices.number(4):
        case 0:
            assert verified(choices.rest().decode(errors="replace")) is None
        case 1:
            keys(choices.rest() if choices.flag() else keys_of(choices))
        case 2:
            parts = [choices.bytes(), choices.bytes(), choices.bytes()]
            assert verified(".".join(base64url(part) for part in parts)) is None
        case _:
            signed(choices)


def verified(token: str) -> Any:
    return asyncio.run(_VERIFY(token))  # type: ignore[arg-type]  # it is a coroutine


def keys(document: bytes) -> None:
    try:
        KeySet(ALGORITHMS, None).replace(document)
    except ConfigError as error:
        check_text(error)


def keys_of(choices: Choices) -> bytes:
    """Write keys that are right but for a member or two."""
    listed = []
    for _ in range(choices.number(4)):
        key = dict(choices.one_of(KEYS))
        for name in choices.some_of([*key, "kid", "use", "key_ops", "alg", "d", "k"], 2):
            key[name] = choices.one_of([*ODD, choices.json(1)])
        listed.append(key)
    return json.dumps({"keys": listed}).encode()


def signed(choices: Choices) -> None:
    """Let the issuer sign odd claims, and change the token or not."""
    header = {"alg": "EdDSA", "kid": "k"}
    claims: Any = {"iss": ISSUER, "aud": AUDIENCE, "sub": "me", "exp": 4 * 10**9}
    for name in choices.some_of(_MEMBERS, 4):
        claims[name] = choices.one_of([*_VALUES, choices.json(2), float("inf"), float("nan")])
    payload = json.dumps(claims).encode()
    if choices.flag():
        payload = choices.bytes()
    signing = f"{base64url(json.dumps(header).encode())}.{base64url(payload)}"
    token = f"{signing}.{base64url(_KEY.sign(signing.encode()))}"
    at = choices.number(2 * len(token))
    if at < len(token):
        changed = token[:at] + choices.one_of("AZ._=\n") + token[at + 1 :]
        if at > len(signing):  # the last character of a signature has bits of no meaning
            verified(changed)
        else:
            assert changed == token or verified(changed) is None
        return
    principal = verified(token)
    if principal is not None:
        assert claims["iss"] == ISSUER
        assert AUDIENCE in claims["aud"]
        assert principal.id == f"{ISSUER}#{claims['sub']}"
        assert float(claims["exp"]) > time.time() - 61
        assert all(isinstance(scope, str) for scope in principal.scopes)
