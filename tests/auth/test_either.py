"""A bearer token or an API key."""

from __future__ import annotations

import pytest

from interlock.auth import ApiKeyAuth, BearerAuth, EitherAuth, Principal, static_tokens
from interlock.errors import AuthRequired
from tests.support.rows import each_row

TOKEN = "canary-4f1c9a7e2b8d6053"
KEY = "another-4f1c9a7e2b8d6053"
ADA, BOB = Principal("ada"), Principal("bob", key_id="7fk2")
auth = EitherAuth(
    bearer=BearerAuth(verify=static_tokens({TOKEN: ADA}), resource="https://api.example/mcp"),
    api_key=ApiKeyAuth(verify=static_tokens({KEY: BOB})),
)
BEARER = (b"authorization", f"Bearer {TOKEN}".encode())
API_KEY = (b"x-api-key", KEY.encode())


async def test_a_token_or_a_key_identifies_its_owner():
    assert await auth.authenticate([BEARER], None) is ADA
    assert await auth.authenticate([API_KEY], None) is BOB


@each_row(
    ("headers", "status", "reason"),
    [
        ([BEARER, API_KEY], 400, "two_credentials"),
        ([API_KEY, (b"authorization", b"")], 400, "two_credentials"),
        ([], 401, "no_credential"),
        ([(b"x-api-key", TOKEN.encode())], 401, "bad_credential"),
        ([(b"authorization", f"Bearer {KEY}".encode())], 401, "bad_credential"),
    ],
)
async def test_other_requests_are_refused_with_a_reason(headers, status, reason):
    with pytest.raises(AuthRequired) as refused:
        await auth.authenticate(headers, None)

    assert (refused.value.status, refused.value.reason) == (status, reason)


def test_clients_learn_where_to_get_a_token():
    assert auth.challenge == auth.bearer.challenge
    assert auth.published(auth.bearer.metadata_path) == auth.bearer.metadata()
    assert auth.published("/elsewhere") is None
