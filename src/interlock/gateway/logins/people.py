"""People whom an issuer has named: who may use this gateway, and with which groups and scopes."""

from __future__ import annotations

from interlock.auth.issuers import with_groups
from interlock.auth.jwt import stated_scopes
from interlock.auth.principal import Principal
from interlock.config.gateway import Issuer
from interlock.errors import AuthError
from interlock.text.urls import display
from interlock.types import JsonObject


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
