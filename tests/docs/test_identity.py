"""The pages of identity providers: a token in the shape of each has the rights of its group."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm

from interlock.auth.issuers import Issuers, TrustedIssuer
from interlock.auth.jwt import JwtVerifier
from interlock.config import load
from interlock.config.gateway import Issuer
from interlock.gateway.logins.people import person_of
from tests.docs.page import ROOT, blocks
from tests.support.rows import each_row

PAGES = sorted((ROOT / "docs/operate/identity").glob("*.md"))


@pytest.fixture(scope="module")
def key() -> RSAPrivateKey:
    return generate_private_key(65537, 2048)


def configured(page: Path, folder: Path) -> Issuer:
    """Return the issuer in the configuration of a page."""
    (text,) = (each.text for each in blocks(page.read_text()) if each.title == "gateway.json")
    file = folder / "gateway.json"
    file.write_text(text)
    config = load(file)
    assert config.warnings == ()
    assert config.gateway is not None
    (issuer,) = config.gateway.issuers
    return issuer


def claims_on(page: Path) -> dict[str, Any]:
    """Return the claims of the token on a page."""
    texts = (each.text for each in blocks(page.read_text()) if each.language == "text")
    (found,) = (json.loads(each) for each in texts)
    assert isinstance(found, dict)
    return found


@each_row("page", PAGES)
async def test_token_in_the_shape_of_a_provider_has_the_rights_of_its_group(
    page: Path, key: RSAPrivateKey, tmp_path: Path
):
    issuer = configured(page, tmp_path)
    public = json.loads(RSAAlgorithm.to_jwk(key.public_key())) | {"kid": "k", "alg": "RS256"}
    verify = JwtVerifier(issuer.issuer, issuer.audience, jwks={"keys": [public]})
    issuers = Issuers([TrustedIssuer(issuer.issuer, verify, issuer.groups, issuer.scopes)])
    claims = claims_on(page)
    now = int(time.time())

    async def scopes(**changed: object) -> set[str] | None:
        token = jwt.encode(
            {**claims, "iat": now, "exp": now + 60, **changed}, key, "RS256", {"kid": "k"}
        )
        known = await issuers.find(token.encode())
        return None if known is None else {*known.principal.scopes}

    assert await scopes() == {"mcp:read"}
    assert await scopes(**{issuer.groups: "others"}) == set()
    assert await scopes(aud="https://elsewhere.example.com") is None
    assert await scopes(iss="https://elsewhere.example.com") is None
    if issuer.client_id:  # an ID token has the same claims, without scopes
        told = {name: each for name, each in claims.items() if name not in ("scope", "scp")}
        assert person_of(issuer, told).scopes == {"mcp:read"}
