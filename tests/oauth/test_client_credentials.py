"""Logging in without a user: with a client's own secret or key."""

from __future__ import annotations

import jwt
import pytest

from interlock.errors import AuthError, InsufficientScope
from interlock.oauth import ClientCredentials, ClientIdentity
from interlock.oauth.assertion import LIFETIME
from tests.oauth.clients import EC, credentials, pem, world
from tests.oauth.conftest import World
from tests.servers.authorization_server import SERVER_METADATA

__all__ = ["world"]


async def test_a_server_without_an_authorization_server_is_an_error(world: World):
    world.server.documents.clear()
    world.server.challenge = "Bearer"

    with pytest.raises(AuthError, match=r"publishes no way to log in \(.*: it answers 404\)"):
        await world.call(credentials(world))


async def test_an_invalid_token_endpoint_is_an_error_that_names_it(world: World):
    world.authorization.metadata["token_endpoint"] = "/token"

    text = rf"^the token_endpoint of {world.authorization.origin} cannot be used: '/token' is"
    with pytest.raises(AuthError, match=text):
        await world.call(credentials(world))


async def test_a_client_with_a_secret_gets_a_token_without_a_user(world: World):
    world.server.scope = "a"

    assert await world.call(credentials(world))

    assert world.authorization.paths == [SERVER_METADATA, "/token"]
    assert world.authorization.sent("/token") == [
        {"grant_type": "client_credentials", "resource": world.server.url, "scope": "a"}
    ]


async def test_a_client_with_a_key_authenticates_with_a_signed_jwt(world: World):
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = ["private_key_jwt"]

    assert await world.call(credentials(world, secret="", private_key=pem(EC)))

    sent = world.authorization.sent("/token")[0]
    assert sent["client_assertion_type"].endswith(":jwt-bearer")
    claims = jwt.decode(
        sent["client_assertion"],
        EC.public_key(),
        algorithms=["ES256"],
        audience=world.authorization.issuer,
        issuer="me",
        subject="me",
    )
    assert claims["exp"] - claims["iat"] == LIFETIME
    assert claims["aud"] == world.authorization.issuer  # not a list


async def test_an_authorization_server_without_user_logins_is_enough(world: World):
    for member in ("authorization_endpoint", "code_challenge_methods_supported"):
        del world.authorization.metadata[member]
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]

    assert await world.call(credentials(world))


async def test_configured_scopes_are_requested(world: World):
    world.server.metadata["scopes_supported"] = ["a", "b", "c"]
    client = ClientIdentity(id="me", secret="s3cr3t")
    auth = ClientCredentials(world.server.url, client=client, store=world.store, scopes=("b",))

    await world.call(auth)

    assert world.authorization.sent("/token")[0]["scope"] == "b"


async def test_a_403_without_scopes_is_raised_at_once(world: World):
    auth = credentials(world)
    await world.call(auth)
    world.server.requests.clear()
    world.authorization.requests.clear()

    with pytest.raises(InsufficientScope):
        await auth.refresh_after(world.refusal(403, "Bearer", auth.token))

    assert world.server.paths == world.authorization.paths == []
