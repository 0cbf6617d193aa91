"""One credential in either header; what is wrong with a refused one is for the record only."""

from __future__ import annotations

import pytest

from interlock.auth import Principal, static_tokens
from interlock.auth.gateway_auth import GatewayAuth, RefusedCredential
from interlock.auth.issuers import Issuers, TrustedIssuer
from interlock.auth.key_ring import KeyRing
from interlock.auth.stored_key import StoredKey
from interlock.errors import AuthError, InsufficientScope
from tests.auth.test_issuers import ISSUER, token_of
from tests.auth.test_key_ring import NOW, Clocks, Source, made
from tests.support.rows import each_row

URL = "https://tools.example.com/mcp"
TOKEN = token_of("4711")


class Gate:
    """A gateway's authenticator with the reasons that it recorded."""

    def __init__(self, *keys: StoredKey, view: str = "") -> None:
        self.refused: list[RefusedCredential] = []
        self.source, self.clocks = Source(*keys), Clocks()
        self.ring = KeyRing(self.source, clock=self.clocks.clock, wall=lambda: NOW * 1_000)
        trusted = TrustedIssuer(
            ISSUER,
            static_tokens({TOKEN: Principal(f"{ISSUER}#4711", frozenset({"mcp:read"}))}),
        )
        self.auth = GatewayAuth(
            self.ring, Issuers([trusted]), resource=URL, view=view, on_refused=self.refused.append
        )

    async def authenticate(self, *headers: tuple[bytes, bytes]) -> Principal:
        await self.ring.refresh()
        return await self.auth.authenticate([(b"host", b"x"), *headers], "10.0.0.7")


def bearer(value: bytes) -> tuple[bytes, bytes]:
    return b"authorization", b"Bearer " + value


def header(value: bytes) -> tuple[bytes, bytes]:
    return b"x-api-key", value


@each_row("send", [bearer, header])
async def test_key_or_token_is_accepted_in_either_header(send):
    stored, key = made()

    assert (await Gate(stored).authenticate(send(key))).key_id == stored.id
    assert (await Gate().authenticate(send(TOKEN.encode()))).id == f"{ISSUER}#4711"


@each_row("send", [bearer, header])
async def test_refused_credentials_get_equal_answers_and_different_audit_reasons(send):
    expired, old = made(expires=NOW)
    revoked, void = made(revoked=NOW - 1, user="berta")
    _, unknown = made()
    answers = set()
    gate = Gate(expired, revoked)
    for credential in (old, void, unknown, b"", b"ilk_x", b"\xff\xfe", TOKEN.encode()[:-2]):
        with pytest.raises(AuthError) as raised:
            await gate.authenticate(send(credential))
        error = raised.value
        answers.add((error.status, str(error), error.reason, error.challenge))

    ((status, _, reason, challenge),) = answers
    assert (status, reason) == (401, "bad_credential")
    assert challenge.startswith('Bearer resource_metadata="https://tools.example.com/.well-known/')
    assert [each.reason for each in gate.refused] == [
        "key_expired",
        "key_revoked",
        *["bad_credential"] * 5,
    ]
    assert [each.key for each in gate.refused[:3]] == [expired, revoked, None]
    assert {each.address for each in gate.refused} == {"10.0.0.7"}


@each_row(
    ("headers", "status", "reason"),
    [
        ([], 401, "no_credential"),
        ([bearer(b"a"), header(b"a")], 400, "two_credentials"),
        ([header(b"a"), header(b"a")], 400, "two_credentials"),
        ([bearer(b"a"), bearer(b"a")], 400, "two_credentials"),
        ([(b"authorization", b"Basic YTpi")], 401, "bad_credential"),
    ],
)
async def test_other_requests_are_refused_with_a_reason(headers, status, reason):
    gate = Gate()

    with pytest.raises(AuthError) as raised:
        await gate.authenticate(*headers)

    assert (raised.value.status, raised.value.reason) == (status, reason)
    assert [each.reason for each in gate.refused] == [reason]


async def test_key_without_a_scope_for_tools_is_refused_with_403():
    stored, key = made(scopes=("admin:write",))

    with pytest.raises(InsufficientScope) as raised:
        await Gate(stored).authenticate(header(key))

    assert raised.value.status == 403
    assert 'scope="mcp:read"' in raised.value.challenge


async def test_principal_is_one_object_for_each_credential_and_view():
    stored, key = made()
    gate = Gate(stored, view="support")

    first = await gate.authenticate(header(key))
    again = await gate.authenticate(bearer(key))

    assert first is again
    assert first.view == "support"


async def test_key_bound_to_a_view_gets_404_at_other_views():
    stored, key = made(view="support")

    assert (await Gate(stored).authenticate(header(key))).view == "support"
    assert (await Gate(stored, view="support").authenticate(header(key))).view == "support"
    with pytest.raises(AuthError) as raised:
        await Gate(stored, view="sales").authenticate(header(key))
    assert raised.value.status == 404
