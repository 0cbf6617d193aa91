"""People whom an issuer has named: who may use this gateway, and with which groups and scopes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from interlock.auth.issuers import with_groups
from interlock.auth.jwt import stated_scopes
from interlock.auth.principal import Principal
from interlock.config.gateway import Issuer
from interlock.errors import AuthError
from interlock.gateway.callers import issuer_of
from interlock.text.urls import display
from interlock.types import JsonObject

MAX_CLAIMS = 8_192  # bytes of a person's claims, as JSON, that are stored
_OF_RIGHTS = ("sub", "scope", "scp")  # claims that decide about a person's rights


def person_of(issuer: Issuer, claims: JsonObject) -> Principal:
    """Return the person that verified claims of an issuer describe.

    Raises:
        AuthError: The operator lets only others of this issuer sign in.
    """
    where = display(issuer.issuer)
    for name, condition in issuer.people.items():
        if name not in claims or not condition.holds(claims[name]):
            raise AuthError(
                f"{where} has signed you in, but this gateway is only for some of its people"
                f" (claim {name!r}); ask the operator, who decides it by auth.issuers[].people",
                403,
            )
    names = claims.get("_claim_names")
    if issuer.groups and isinstance(names, dict) and issuer.groups in names:
        raise AuthError(
            f"{where} does not list more than 200 groups of a person: the operator can use app"
            ' roles instead ("groups": "roles")',
            403,
        )
    principal = Principal(f"{issuer.issuer}#{claims['sub']}", stated_scopes(claims), claims)
    return with_groups(
        principal, issuer.groups, issuer.scopes, name=issuer.name, is_only=issuer.is_only
    )


def with_rights_now(issuers: Sequence[Issuer], principal: Principal) -> Principal | None:
    """Return a user with the groups and scopes that the configuration gives now.

    None if the user's issuer is no longer configured, or the operator no longer lets the user in.
    Users without an issuer are returned as they are.
    """
    if "#" not in principal.id:
        return principal
    issuer = issuer_of(issuers, principal.id)
    if issuer is None:
        return None
    try:
        found = person_of(issuer, {"sub": principal.id.partition("#")[2], **principal.claims})
    except AuthError:
        return None
    return replace(principal, scopes=found.scopes, groups=found.groups)


def stored_claims(claims: JsonObject, issuer: Issuer, of_rules: Collection[str]) -> JsonObject:
    """Return the claims of a person that are stored: those that decide, if all are too long.

    Args:
        claims: The claims that the issuer states.
        of_rules: The claims that rules name.
    """
    if len(msgspec.json.encode(claims)) <= MAX_CLAIMS:
        return claims
    kept = {*_OF_RIGHTS, issuer.groups, *issuer.people, *of_rules}
    return {name: each for name, each in claims.items() if name in kept}
