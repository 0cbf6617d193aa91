"""Login at the issuer of an organisation, and the tokens that it accepts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jwt
import pytest

from tests.gateway.person import Person, issuer
from tests.support.oidc import CLIENT, SECRET, OidcIssuer

__all__ = ["issuer"]
pytestmark = pytest.mark.slow("fills a database")


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
