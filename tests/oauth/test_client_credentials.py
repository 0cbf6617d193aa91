"""Logging in without a user: with a client's own secret or key."""

from __future__ import annotations

import asyncio
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from msgspec.structs import replace

from interlock.errors import AuthError, ConfigError, InsufficientScope
from interlock.oauth import ClientCredentials, ClientIdentity
from interlock.oauth.assertion import LIFETIME
from interlock.oauth.client_grant import client_key
from tests.oauth.conftest import World
from tests.servers.authorization_server import SERVER_METADATA, refused


@pytest.fixture
def world(world: World) -> World:
    world.authorization.clients["me"] = "s3cr3t"
    del world.authorization.metadata["token_endpoint_auth_methods_supported"]
    return world


def credentials(world: World, **client: Any) -> ClientCredentials:
    identity = ClientIdentity(**{"id": "me", "secret": "s3cr3t", **client})
    return ClientCredentials(world.server.url, client=identity, store=world.store)


def pem(key: Any, password: bytes = b"") -> str:
    secured = BestAvailableEncryption(password) if password else NoEncryption()
    written: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secured)
    return written.decode()


EC = ec.generate_private_key(ec.SECP256R1())


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


async def test_an_expired_token_is_replaced_before_it_is_sent(world: World):
    await world.call(credentials(world))
    place = client_key("me", world.server.url)
    tokens = await world.store.load_tokens(place)
    assert tokens is not None
    await world.store.save_tokens(place, replace(tokens, expires_at=1.0))
    world.server.requests.clear()

    assert await world.call(credentials(world))
    assert world.server.paths == ["/mcp"]


async def test_a_refused_token_is_replaced(world: World):
    auth = credentials(world)
    before = await world.call(auth)
    world.authorization.access_tokens.clear()

    assert await world.call(auth) != before


async def test_fifty_simultaneous_refusals_make_one_token_request(world: World):
    auth = credentials(world)

    await asyncio.gather(*(world.call(auth) for _ in range(50)))

    assert len(world.authorization.sent("/token")) == 1


async def test_a_token_response_is_stored_though_its_task_was_cancelled(world: World):
    auth = credentials(world)
    world.authorization.holding.clear()
    asking = asyncio.create_task(world.call(auth))
    await world.authorization.held.wait()

    asking.cancel()
    await asyncio.wait({asking})
    world.authorization.holding.set()

    assert await world.call(auth)
    assert len(world.authorization.sent("/token")) == 1


async def test_two_programs_with_the_same_client_share_a_token(world: World):
    one, other = credentials(world), credentials(world)

    assert await asyncio.gather(world.call(one), world.call(other)) == [one.token, one.token]
    assert len(world.authorization.sent("/token")) == 1


async def test_a_token_that_another_program_stored_meanwhile_is_used(world: World):
    one, other = credentials(world), credentials(world)
    before = await world.call(one)
    await world.call(other)
    world.authorization.access_tokens.clear()
    await world.call(other)
    world.authorization.requests.clear()

    assert await world.call(one) == other.token != before
    assert world.authorization.requests == []


async def test_a_client_does_not_use_the_token_of_a_user(world: World):
    theirs = await world.call(world.oauth())
    auth = credentials(world)

    assert await auth.valid_token() == ""
    assert await world.call(auth) != theirs
    assert await world.call(world.oauth(ask=None)) == theirs  # it is still stored


async def test_a_client_does_not_use_the_token_of_another_client(world: World):
    world.authorization.clients["other"] = "s3cr3t"
    theirs = await world.call(credentials(world, id="other"))
    auth = credentials(world)

    assert await auth.valid_token() == ""
    assert await world.call(auth) != theirs


async def test_a_client_does_not_use_the_token_of_another_issuer(world: World):
    await world.call(credentials(world))

    assert await credentials(world, issuer="https://other.example").valid_token() == ""


async def test_required_scopes_are_requested_once(world: World):
    world.server.scope = "a"
    auth = credentials(world)
    await world.call(auth)
    world.server.needs = ("b",)

    await world.call(auth)
    assert [sent["scope"] for sent in world.authorization.sent("/token")] == ["a", "a b"]

    error = world.refusal(403, 'Bearer error="insufficient_scope", scope="b"', auth.token)
    with pytest.raises(InsufficientScope):
        await auth.refresh_after(error)
    assert len(world.authorization.sent("/token")) == 2


async def test_scopes_of_a_step_up_are_requested_again(world: World):
    world.server.scope = "a"
    auth = credentials(world)
    await world.call(auth)
    world.server.needs = ("b",)
    await world.call(auth)
    world.authorization.access_tokens.clear()

    await world.call(auth)

    assert [sent["scope"] for sent in world.authorization.sent("/token")] == ["a", "a b", "a b"]


async def test_without_scopes_the_parameter_is_omitted(world: World):
    await world.call(credentials(world))

    assert "scope" not in world.authorization.sent("/token")[0]


async def test_scopes_that_were_not_granted_are_requested_again(world: World):
    world.server.scope = "a b"
    world.authorization.answers["/token"] = {"scope": "a"}
    auth = credentials(world)
    await world.call(auth)
    assert auth._tokens is not None
    auth._tokens = replace(auth._tokens, expires_at=1.0)

    assert await auth.valid_token()
    assert [sent["scope"] for sent in world.authorization.sent("/token")] == ["a b", "a b"]


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


async def test_a_client_is_not_used_at_another_issuer(world: World):
    with pytest.raises(AuthError, match="is registered at https://other"):
        await world.call(credentials(world, issuer="https://other.example"))

    assert world.authorization.sent("/token") == []


async def test_a_client_without_issuer_stays_with_the_first_issuer(world: World):
    await world.call(credentials(world))
    world.authorization.access_tokens.clear()
    port = world.authorization.origin.rpartition(":")[2]
    world.authorization.metadata["issuer"] = f"http://localhost:{port}"
    world.server.metadata["authorization_servers"] = [f"http://localhost:{port}"]

    with pytest.raises(AuthError, match=r"is registered at http://127"):
        await world.call(credentials(world))

    assert len(world.authorization.sent("/token")) == 1


async def test_a_refused_client_stays_with_the_first_issuer(world: World):
    world.authorization.clients["me"] = "another"
    with pytest.raises(AuthError, match="invalid_client"):
        await world.call(credentials(world))
    port = world.authorization.origin.rpartition(":")[2]
    world.authorization.metadata["issuer"] = f"http://localhost:{port}"
    world.server.metadata["authorization_servers"] = [f"http://localhost:{port}"]

    with pytest.raises(AuthError, match=r"is registered at http://127"):
        await world.call(credentials(world))

    assert len(world.authorization.sent("/token")) == 1


async def test_the_error_of_a_refused_client_has_no_secret(world: World):
    async def reply(request: object) -> object:
        return refused("invalid_client", 401, error_description="no client me with s3cr3t")

    world.authorization.replies["/token"] = reply  # type: ignore[assignment]

    with pytest.raises(AuthError, match=r"gave no token: invalid_client$") as raised:
        await world.call(credentials(world))

    assert world.authorization.origin in str(raised.value)
    assert raised.value.status == 403


async def test_an_authorization_server_without_token_endpoint_is_an_error(world: World):
    del world.authorization.metadata["token_endpoint"]

    with pytest.raises(AuthError, match="has no token endpoint"):
        await world.call(credentials(world))


async def test_a_client_without_a_supported_method_is_an_error(world: World):
    world.authorization.metadata["token_endpoint_auth_methods_supported"] = ["tls_client_auth"]

    with pytest.raises(AuthError, match=r"supports only 'tls_client_auth'$"):
        await world.call(credentials(world))
    with pytest.raises(
        AuthError, match=r"can authenticate by private_key_jwt, but .* supports only"
    ):
        await world.call(credentials(world, secret="", private_key=pem(EC)))


def test_a_client_without_secret_and_key_is_an_error(world: World):
    with pytest.raises(ConfigError, match="'me' needs a secret or a private key"):
        credentials(world, secret="")
