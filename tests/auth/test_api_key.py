"""API keys in the header X-API-Key, alone and beside bearer tokens."""

from __future__ import annotations

import pytest

from interlock.auth import ApiKeyAuth, BearerAuth, EitherAuth, Principal, static_tokens
from interlock.errors import AuthRequired, AuthUnavailable
from tests.support.rows import each_row

KEY = "canary-4f1c9a7e2b8d6053"
ADA = Principal("ada", key_id="7fk2")
auth = ApiKeyAuth(verify=static_tokens({KEY: ADA}))


def sent(*keys: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"x"), *((b"x-api-key", key) for key in keys)]


@each_row("key", [KEY, f" {KEY} "])
async def test_a_valid_key_identifies_its_owner(key):
    assert await auth.authenticate(sent(key.encode()), None) is ADA


@each_row(
    ("keys", "status", "reason"),
    [
        ([], 401, "no_credential"),
        ([b""], 401, "bad_credential"),
        ([KEY[:-1].encode()], 401, "bad_credential"),
        ([b"\xff" * 20], 401, "bad_credential"),
        ([b"a" * 16_385], 401, "bad_credential"),
        ([KEY.encode()] * 2, 400, "two_credentials"),
    ],
    ids=["no key", "empty", "unknown", "not ASCII", "too long", "two keys"],
)
async def test_other_requests_are_refused_with_a_reason(keys, status, reason):
    with pytest.raises(AuthRequired) as refused:
        await auth.authenticate(sent(*keys), None)

    assert (refused.value.status, refused.value.reason) == (status, reason)
    assert KEY not in f"{refused.value!s} {refused.value!r} {vars(refused.value)}"


async def test_a_failing_verifier_refuses_the_request_and_its_text_is_not_passed_on(caplog):
    async def verify(key):
        raise ValueError(f"cannot look up {key}")

    with pytest.raises(AuthUnavailable) as refused:
        await ApiKeyAuth(verify=verify).authenticate(sent(KEY.encode()), None)

    assert refused.value.status == 503
    assert KEY not in f"{refused.value} {refused.value.__context__} {caplog.text}"


def test_api_key_auth_has_a_challenge_and_publishes_no_metadata():
    assert auth.challenge == 'ApiKey header="X-API-Key"'
    assert auth.published("/.well-known/oauth-protected-resource") is None


TOKEN = "token-4f1c9a7e2b8d6053"
BOB = Principal("bob")
either = EitherAuth(
    bearer=BearerAuth(verify=static_tokens({TOKEN: BOB}), resource="https://api.example/mcp"),
    api_key=auth,
)
BEARER = (b"authorization", f"Bearer {TOKEN}".encode())
API_KEY = (b"x-api-key", KEY.encode())


async def test_a_token_or_a_key_identifies_its_owner():
    assert await either.authenticate([BEARER], None) is BOB
    assert await either.authenticate([API_KEY], None) is ADA


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
async def test_two_credentials_and_invalid_ones_are_refused_with_a_reason(headers, status, reason):
    with pytest.raises(AuthRequired) as refused:
        await either.authenticate(headers, None)

    assert (refused.value.status, refused.value.reason) == (status, reason)


def test_either_credential_publishes_the_bearer_metadata():
    assert either.challenge == either.bearer.challenge
    assert either.published(either.bearer.metadata_path) == either.bearer.metadata()
    assert either.published("/elsewhere") is None
