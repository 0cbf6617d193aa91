"""Tokens without a user: replaced, stored, and shared by programs."""

from __future__ import annotations

import asyncio
from typing import Any

import jwt
import pytest
from msgspec.structs import replace

from interlock.errors import AuthError, ConfigError, InsufficientScope
from interlock.oauth import ClientCredentials, ClientIdentity, JwtBearer
from interlock.oauth.assertion import LIFETIME
from interlock.oauth.client_grant import GRANT_TYPE, client_key
from tests.oauth.clients import EC, credentials, pem, world
from tests.oauth.conftest import Build, World
from tests.servers.authorization_server import SERVER_METADATA, always, refused

__all__ = ["world"]


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


async def test_client_credentials_need_no_authorization_endpoint(world: World):
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


JWT = "head.claims.signature"


@pytest.fixture
async def federated(build: Build) -> World:
    """Return a world with a client that has no secret."""
    world = await build()
    world.authorization.clients["workload"] = ""
    return world


class Platform:
    """Returns a new JWT each time, and records its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    async def __call__(self, issuer: str, resource: str) -> str:
        self.calls.append((issuer, resource))
        return f"{JWT}{len(self.calls)}"


def bearer(world: World, platform: Any = None, **client: Any) -> JwtBearer:
    identity = ClientIdentity(**{"id": "workload", **client})
    return JwtBearer(
        world.server.url, assertion=platform or Platform(), client=identity, store=world.store
    )


async def test_a_jwt_is_exchanged_for_a_token_without_a_person(federated: World):
    federated.server.scope = "a"
    platform = Platform()

    assert await federated.call(bearer(federated, platform))

    assert federated.authorization.sent("/token") == [
        {
            "grant_type": GRANT_TYPE,
            "assertion": f"{JWT}1",
            "client_id": "workload",
            "resource": federated.server.url,
            "scope": "a",
        }
    ]
    assert platform.calls == [(federated.authorization.issuer, federated.server.url)]


async def test_each_token_request_has_a_new_jwt(federated: World):
    auth = bearer(federated)
    await federated.call(auth)
    federated.authorization.access_tokens.clear()

    await federated.call(auth)

    sent = federated.authorization.sent("/token")
    assert [each["assertion"] for each in sent] == [f"{JWT}1", f"{JWT}2"]


async def test_stored_token_is_used_by_the_next_process(federated: World):
    token = await federated.call(bearer(federated))

    assert await federated.call(bearer(federated)) == token

    assert await federated.store.load_tokens(client_key("workload", federated.server.url))
    assert await federated.store.load_tokens(federated.server.url) is None


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_scope", "unauthorized_client"])
async def test_a_refused_jwt_is_an_error_and_not_sent_again(federated: World, error: str):
    async def reply(request: Any) -> Any:
        return refused(error)

    federated.authorization.replies["/token"] = reply

    with pytest.raises(AuthError, match=f"gave no token: {error}"):
        await federated.call(bearer(federated))

    assert len(federated.authorization.sent("/token")) == 1


async def test_the_jwt_is_not_sent_to_another_issuer_than_the_one_of_the_client(federated: World):
    platform = Platform()

    with pytest.raises(AuthError, match=r"127.0.0.1:1, which is configured as oauth.issuer"):
        await federated.call(bearer(federated, platform, issuer="https://127.0.0.1:1"))

    assert platform.calls == []
    assert "/token" not in federated.authorization.paths


async def test_the_jwt_is_not_sent_to_an_issuer_that_the_server_names_later(
    build: Build, federated: World
):
    auth = bearer(federated)
    await federated.call(auth)
    other = await build()
    federated.authorization.access_tokens.clear()
    federated.server.metadata["authorization_servers"] = [other.authorization.issuer]

    with pytest.raises(AuthError, match="and is not used at"):
        await federated.call(auth)

    assert "/token" not in other.authorization.paths


async def test_platform_error_is_raised_unchanged(federated: World):
    async def platform(issuer: str, resource: str) -> str:
        raise LookupError("no JWT")

    with pytest.raises(LookupError, match="no JWT"):
        await federated.call(bearer(federated, platform))


async def test_an_answer_that_repeats_the_jwt_is_not_shown(federated: World):
    federated.authorization.replies["/token"] = always(
        f'{{"error": "invalid_grant", "error_description": "not {JWT}1"}}', status=400
    )

    with pytest.raises(AuthError) as raised:
        await federated.call(bearer(federated))

    assert JWT not in str(raised.value)
    assert not hasattr(raised.value, "__notes__")


def test_jwt_is_not_sent_to_a_server_without_https():
    with pytest.raises(ConfigError, match="must be https"):
        JwtBearer(
            "http://mcp.example/",
            assertion=Platform(),
            client=ClientIdentity(id="workload"),
            store=None,  # type: ignore[arg-type]
        )
