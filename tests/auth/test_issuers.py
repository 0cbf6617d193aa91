"""Tokens of several issuers: groups and scopes of their claims, remembered for a minute."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.auth import Principal
from interlock.auth.issuers import Issuers, TrustedIssuer, with_groups
from interlock.auth.jwt import stated_scopes
from interlock.auth.scopes import covers
from interlock.errors import AuthUnavailable
from tests.support.rows import each_row

ISSUER = "https://id.example.com"
NOW = 1_800_000_000.0


def token_of(subject: str, issuer: str = ISSUER, **claims: Any) -> str:
    """Return a token whose signature `Verifier` does not check."""
    body = {"iss": issuer, "sub": subject, "exp": NOW + 3600, **claims}
    parts = ({"alg": "RS256"}, body)
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()) for each in parts]
    return ".".join(each.decode().rstrip("=") for each in encoded) + ".c2ln"


class Verifier:
    """Accepts every token, or fails."""

    def __init__(self, **claims: Any) -> None:
        self.claims = claims
        self.count = 0
        self.fails = False

    async def __call__(self, token: str) -> Principal | None:
        self.count += 1
        if self.fails:
            raise OSError("the issuer is down")
        scopes = frozenset(self.claims.get("scope", "").split())
        return Principal(f"{ISSUER}#4711", scopes, self.claims)


class Clocks:
    def __init__(self) -> None:
        self.now = 0.0

    def issuers(self, verify: Verifier, **fields: Any) -> Issuers:
        trusted = TrustedIssuer(ISSUER, verify, **fields)
        return Issuers([trusted], clock=lambda: self.now, wall=lambda: NOW + self.now)


async def test_token_is_verified_once_a_minute():
    clocks, verifier = Clocks(), Verifier(scope="mcp:read")
    issuers = clocks.issuers(verifier)
    token = token_of("4711").encode()

    first = await issuers.find(token)
    clocks.now = 59
    again = await issuers.find(token)

    assert first is again
    assert verifier.count == 1
    clocks.now = 61
    await issuers.find(token)
    assert verifier.count == 2


async def test_token_is_not_remembered_beyond_its_expiry():
    clocks, verifier = Clocks(), Verifier(scope="mcp:read")
    issuers = clocks.issuers(verifier)
    token = token_of("4711", exp=NOW + 5).encode()

    await issuers.find(token)
    clocks.now = 6
    await issuers.find(token)

    assert verifier.count == 2


async def test_known_token_is_accepted_for_a_minute_while_the_issuer_is_down_others_are_not():
    clocks, verifier = Clocks(), Verifier(scope="mcp:read")
    issuers = clocks.issuers(verifier)
    token = token_of("4711").encode()
    await issuers.find(token)
    verifier.fails = True

    clocks.now = 59
    assert await issuers.find(token) is not None
    with pytest.raises(AuthUnavailable):
        await issuers.find(token_of("4712").encode())
    clocks.now = 61
    with pytest.raises(AuthUnavailable):
        await issuers.find(token)


@each_row(
    "token",
    [
        token_of("1", "https://evil.example.com"),
        "a.b.c",
        "a",
        "a.eyJpc3MiOjF9.c",
        ".".join("ab" * 9),
    ],
)
async def test_token_of_another_issuer_is_refused_without_asking_a_verifier(token: str):
    verifier = Verifier()

    assert await Clocks().issuers(verifier).find(token.encode()) is None
    assert verifier.count == 0


@each_row("groups", [["dev", "support", 7], "dev support"])
async def test_groups_of_a_claim_grant_the_scopes_of_the_file(groups: object):
    issuers = Clocks().issuers(
        Verifier(teams=groups), groups="teams", scopes={"dev": ("mcp:*",), "hr": ("admin:read",)}
    )

    known = await issuers.find(token_of("4711").encode())

    assert known is not None
    assert known.principal.groups == {"dev", "support"}
    assert known.principal.scopes == {"mcp:*"}


_SCOPES = ("mcp:*", "mcp:read", "mcp:crm:*", "mcp:crm:find", "admin:write", "openid")
_STATED = st.lists(st.sampled_from(_SCOPES)).flatmap(
    lambda scopes: st.sampled_from((scopes, " ".join(scopes)))
)
_CLAIMS = st.dictionaries(
    st.sampled_from(("scope", "scp", "roles", "permissions", "group", "scopes")),
    _STATED | st.none() | st.integers(),
)


@given(_CLAIMS, _CLAIMS, st.lists(st.sampled_from(("dev", "support", "hr"))))
def test_no_claim_but_that_of_the_groups_widens_the_rights_of_a_token(
    claims: dict[str, Any], more: dict[str, Any], groups: list[str]
):
    granted = {"dev": ("mcp:crm:*", "mcp:read"), "support": ("mcp:crm:find",)}

    def rights(told: dict[str, Any]) -> frozenset[str]:
        principal = Principal("i#u", stated_scopes(told), {"teams": groups, **told})
        return with_groups(principal, "teams", granted).scopes

    narrow, wide = rights({**more, **claims}), rights(claims)
    assert all(any(covers(each, scope) for each in wide) for scope in narrow)
    assert all(any(covers(each, scope) for each in rights({})) for scope in wide)


@each_row(("is_only", "groups"), [(True, {"dev", "corp/dev"}), (False, {"corp/dev"})])
async def test_groups_have_the_name_of_their_issuer(is_only: bool, groups: set[str]):
    fields = {"groups": "teams", "name": "corp", "is_only": is_only}
    known = await Clocks().issuers(Verifier(teams=["dev"]), **fields).find(token_of("1").encode())

    assert known is not None
    assert known.principal.groups == groups


@each_row("claims", [{"scope": "mcp:read"}, {"scope": ""}, {"scp": []}])
async def test_scopes_of_a_token_are_not_widened_by_its_groups(claims: dict[str, Any]):
    issuers = Clocks().issuers(
        Verifier(teams=["dev"], **claims), groups="teams", scopes={"dev": ("mcp:*",)}
    )

    known = await issuers.find(token_of("4711").encode())

    assert known is not None
    assert "mcp:*" not in known.principal.scopes


def test_no_issuer_states_what_only_the_gateway_states():
    told = {"sub": "anna", "interlock:client": "claude.ai"}
    assert with_groups(Principal("anna", claims=told), "", {}).claims == {"sub": "anna"}
