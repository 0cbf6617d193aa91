"""Who may call a gateway, by its keys and its present configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from interlock.auth.gateway_auth import RefusedCredential
from interlock.auth.key_ring import KeyRing
from interlock.config import loads
from interlock.errors import AuthError
from interlock.gateway.callers import GatewayCallers
from interlock.gateway.observer import GatewayObserver
from interlock.gateway.parts import make_parts

RESOURCE = "http://127.0.0.1:8000/mcp"
PEOPLE: dict[str, Any] = {
    "issuer": "https://id.example",
    "audience": RESOURCE,
    "jwksUrl": "https://id.example/jwks",
    "clientId": "board",
}


class Refused(GatewayObserver):
    """Keeps the reasons of refused credentials."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def credential_refused(self, refused: RefusedCredential) -> None:
        self.reasons.append(refused.reason)


def callers_of(keys: KeyRing, *issuers: dict[str, Any]) -> tuple[GatewayCallers, Refused]:
    file = {"mcpServers": {}, "gateway": {"auth": {"issuers": issuers}} if issuers else {}}
    parts, refused = make_parts(loads(json.dumps(file).encode()), {}), Refused()
    return GatewayCallers(keys, lambda: parts, refused), refused


async def test_key_for_one_run_is_created_only_if_no_other_key_exists():
    callers, _ = callers_of(KeyRing())
    assert not callers.exist
    key = callers.key_for_this_run()

    assert key is not None
    assert callers.exist
    assert callers.key_for_this_run() is None
    headers = [(b"x-api-key", key.encode())]
    principal = await callers.authenticator(RESOURCE).authenticate(headers, None)
    assert principal.id == "user:local"


async def test_refused_credential_is_reported_to_the_observer():
    callers, refused = callers_of(KeyRing())
    with pytest.raises(AuthError):
        await callers.authenticator(RESOURCE).authenticate([], None)

    assert refused.reasons == ["no_credential"]


def test_users_can_log_in_at_issuers_with_a_client_id():
    other = {"issuer": "https://machines.example", "jwksUrl": "https://machines.example/jwks"}
    machines = {name: each for name, each in PEOPLE.items() if name != "clientId"} | other
    callers, _ = callers_of(KeyRing(), machines, PEOPLE)

    assert callers.exist
    assert [each.issuer for each in callers.login_issuers()] == ["https://id.example"]
