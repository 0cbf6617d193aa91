"""Bearer tokens: which are accepted, and what a refusal does and does not say."""

from __future__ import annotations

import json
import logging

import pytest

from interlock.auth import BearerAuth, static_tokens
from interlock.auth.principal import Principal
from interlock.errors import AuthError, AuthRequired, ConfigError, InsufficientScope
from tests.support.rows import each_row

TOKEN = "canary-4f1c9a7e2b8d6053"
OTHER = "another-4f1c9a7e2b8d6053"
ADA = Principal("ada", frozenset({"notes:read"}))
RESOURCE = "https://api.example/mcp"


def guard(**options: object) -> BearerAuth:
    options = {"verify": static_tokens({TOKEN: ADA}), "resource": RESOURCE, **options}
    return BearerAuth(**options)


def bearer(token: str) -> list[bytes]:
    return [b"Bearer " + token.encode()]


async def identify(guard: BearerAuth, values: list[bytes]) -> Principal:
    """Authenticate a request with these Authorization headers among others."""
    sent = [(b"authorization", value) for value in values]
    return await guard.authenticate([(b"host", b"x"), *sent, (b"accept", b"y")], None)


async def refusal(guard: BearerAuth, values: list[bytes]) -> AuthError:
    with pytest.raises(AuthError) as refused:
        await identify(guard, values)
    error = refused.value
    while error is not None:  # nothing that could be logged has the token in it
        assert TOKEN not in f"{error!s} {error!r} {vars(error)}"
        error = error.__context__
    return refused.value


# Letting in


@each_row(
    "value",
    [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER   {TOKEN}", f" Bearer {TOKEN} "],
)
async def test_valid_token_identifies_its_principal(value):
    assert await identify(guard(), [value.encode()]) == ADA


# Refusing


async def test_missing_token_gets_a_challenge_with_the_metadata_url():
    error = await refusal(guard(required_scopes=["notes:read", "notes:write"]), [])

    assert (type(error), error.status) == (AuthRequired, 401)
    assert error.challenge == (
        "Bearer "
        'resource_metadata="https://api.example/.well-known/oauth-protected-resource/mcp", '
        'scope="notes:read notes:write"'
    )


async def test_unknown_token_is_refused():
    error = await refusal(guard(verify=static_tokens({})), bearer(TOKEN))

    assert (type(error), error.status) == (AuthRequired, 401)
    assert 'error="invalid_token"' in error.challenge
    assert "resource_metadata=" in error.challenge


@each_row(
    "values",
    [
        [b""],
        [b"Bearer"],
        [b"Bearer "],
        [b"Bearer a b"],
        [b"Bearer a,b"],
        [b"Bearer =a"],
        [b"Bearer \xff"],
        [b"Bearer a\r\nX: y"],
        [b"Bea\x00rer a"],
        [b"Bearer\t" + TOKEN.encode()],
        [b"Bearer " + b"a" * 16_385],
        [f"Bearer {TOKEN}".encode()] * 2,
        [f"Bearer {TOKEN}".encode(), b"Basic eDp5"],
    ],
)
async def test_a_malformed_header_is_a_bad_request(values):
    error = await refusal(guard(), values)

    assert (type(error), error.status) == (AuthRequired, 400)
    assert 'error="invalid_request"' in error.challenge


async def test_another_scheme_gets_a_challenge_for_a_bearer_token():
    error = await refusal(guard(), [b"Basic eDp5"])

    assert error.status == 401
    assert error.challenge.startswith("Bearer resource_metadata=")


async def test_token_without_the_scopes_gets_a_challenge_with_all_required_scopes():
    error = await refusal(guard(required_scopes=["notes:read", "notes:write"]), bearer(TOKEN))

    assert isinstance(error, InsufficientScope)
    assert error.status == 403
    assert error.scopes == ("notes:read", "notes:write")
    assert error.challenge.startswith('Bearer error="insufficient_scope", resource_metadata="')
    assert error.challenge.endswith('scope="notes:read notes:write"')


def test_a_step_up_names_the_scopes_of_the_endpoint_too():
    guarded = guard(required_scopes=["notes:read"])

    guarded.require(ADA, ["notes:read"])
    with pytest.raises(InsufficientScope) as refused:
        guarded.require(ADA, ["notes:delete"])

    assert refused.value.scopes == ("notes:read", "notes:delete")


# Nothing is written


async def test_no_token_is_written_anywhere(caplog):
    guarded = guard()
    with caplog.at_level(logging.DEBUG):
        await identify(guarded, bearer(TOKEN))
        await refusal(guarded, bearer(TOKEN) * 2)

    assert TOKEN not in f"{guarded!r} {guarded.verify!r} {vars(guarded.verify)} {caplog.text}"
    cells = [cell.cell_contents for cell in guarded.verify.__closure__]
    assert TOKEN not in repr(cells)


# Metadata


@each_row(
    ("resource", "path"),
    [
        ("https://api.example/mcp", "/.well-known/oauth-protected-resource/mcp"),
        ("https://api.example/a/b/", "/.well-known/oauth-protected-resource/a/b/"),
        ("https://api.example", "/.well-known/oauth-protected-resource"),
        ("https://api.example/", "/.well-known/oauth-protected-resource"),
        ("http://127.0.0.1:8000/mcp", "/.well-known/oauth-protected-resource/mcp"),
        ("http://[::1]:8000", "/.well-known/oauth-protected-resource"),
    ],
)
def test_metadata_path_and_resource_follow_the_configured_url(resource, path):
    guarded = guard(resource=resource, authorization_servers=["https://issuer.example"])

    assert guarded.metadata_path == path
    assert guarded.metadata_url.endswith(path)
    assert json.loads(guarded.metadata()) == {
        "resource": resource,
        "authorization_servers": ["https://issuer.example"],
        "bearer_methods_supported": ["header"],
    }


def test_metadata_lists_the_scopes():
    guarded = guard(scopes_supported=["notes:read", "notes:write"])

    assert json.loads(guarded.metadata())["scopes_supported"] == ["notes:read", "notes:write"]


# Configuration


@each_row(
    "url",
    [
        "",
        "/mcp",
        "api.example/mcp",
        "ftp://api.example/mcp",
        "http://api.example/mcp",
        "http://localhost.evil.example/mcp",
        "https://user@api.example/mcp",
        "https://api.example/mcp#part",
        "https://api.example/mcp?tenant=1",
        'https://api.example/"mcp',
        "https://api.example/mcp\r\nX: y",
        "https://api.example/m cp",
        "https://api.example:port/mcp",
        "https://[::1/mcp",
    ],
)
def test_a_url_that_is_not_safe_to_publish_is_refused(url):
    with pytest.raises(ConfigError, match="resource"):
        guard(resource=url)
    with pytest.raises(ConfigError, match="authorization server"):
        guard(authorization_servers=[url])


@each_row("scope", ["", "two words", 'quo"te', "back\\slash", "offline_access"])
def test_a_scope_that_no_challenge_can_carry_is_refused(scope):
    with pytest.raises(ConfigError):
        guard(required_scopes=[scope])
    with pytest.raises(ConfigError):
        guard(scopes_supported=[scope])
