"""Functions that verify a token: what they return, and what a failure reveals."""

from __future__ import annotations

import logging

import pytest

from interlock.auth.principal import Principal
from interlock.auth.verifier import MAX_TOKEN_BYTES, static_tokens, verified
from interlock.errors import AuthUnavailable, ConfigError
from tests.support.rows import each_row

TOKEN = "canary-4f1c9a7e2b8d6053"

OTHER = "another-4f1c9a7e2b8d6053"

ADA = Principal("ada", frozenset({"notes:read"}))


async def test_each_static_token_has_its_own_principal():
    bob = Principal("bob")
    verify = static_tokens({TOKEN: ADA, OTHER: bob})

    assert await verify(OTHER) is bob
    assert await verify(TOKEN) is ADA
    assert await verify(TOKEN[:-1]) is None
    assert await verify("\udc80") is None


@pytest.mark.parametrize("returned", [True, {"id": "root"}, "root", 0])
async def test_verifier_that_returns_another_type_refuses_every_caller(returned, caplog):
    async def verify(token):
        return returned

    with pytest.raises(AuthUnavailable) as refused:
        await verified(verify, TOKEN)

    assert (refused.value.status, refused.value.challenge) == (503, "")
    assert type(returned).__name__ in caplog.text


async def test_error_of_a_verifier_is_neither_sent_nor_logged(caplog):
    async def verify(token):
        raise ValueError(f"cannot parse {token}")

    with caplog.at_level(logging.DEBUG), pytest.raises(AuthUnavailable) as refused:
        await verified(verify, TOKEN)

    assert TOKEN not in f"{refused.value} {refused.value.__context__}"
    assert "ValueError at" in caplog.text
    assert "test_verifier.py" in caplog.text
    assert TOKEN not in caplog.text


@each_row(
    "token",
    [
        "",
        "short",
        "a" * 15,
        "a" * (MAX_TOKEN_BYTES + 1),
        "with a blank in it",
        "ümlaut-4f1c9a7e2b8d",
    ],
    ids=["empty", "short", "just too short", "too long", "blank", "not ASCII"],
)
def test_weak_or_unsendable_static_token_is_refused_without_naming_it(token):
    with pytest.raises(ConfigError) as refused:
        static_tokens({token: ADA})

    assert not token or f" {token} " not in str(refused.value)
