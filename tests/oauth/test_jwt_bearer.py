"""Logging in with a JWT of a third party (RFC 7523)."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import AuthError, ConfigError
from interlock.oauth import ClientIdentity, JwtBearer
from interlock.oauth.client_grant import client_key
from interlock.oauth.jwt_bearer import GRANT_TYPE
from tests.oauth.conftest import World
from tests.servers.authorization_server import always, refused

JWT = "head.claims.signature"


@pytest.fixture
def world(world: World) -> World:
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


async def test_a_jwt_is_exchanged_for_a_token_without_a_person(world: World):
    world.server.scope = "a"
    platform = Platform()

    assert await world.call(bearer(world, platform))

    assert world.authorization.sent("/token") == [
        {
            "grant_type": GRANT_TYPE,
            "assertion": f"{JWT}1",
            "client_id": "workload",
            "resource": world.server.url,
            "scope": "a",
        }
    ]
    assert platform.calls == [(world.authorization.issuer, world.server.url)]


async def test_each_token_request_has_a_new_jwt(world: World):
    auth = bearer(world)
    await world.call(auth)
    world.authorization.access_tokens.clear()

    await world.call(auth)

    sent = world.authorization.sent("/token")
    assert [each["assertion"] for each in sent] == [f"{JWT}1", f"{JWT}2"]


async def test_a_stored_token_is_used_by_the_next_program(world: World):
    token = await world.call(bearer(world))

    assert await world.call(bearer(world)) == token

    assert await world.store.load_tokens(client_key("workload", world.server.url))
    assert await world.store.load_tokens(world.server.url) is None


@pytest.mark.parametrize("error", ["invalid_grant", "invalid_scope", "unauthorized_client"])
async def test_a_refused_jwt_is_an_error_and_not_sent_again(world: World, error: str):
    async def reply(request: Any) -> Any:
        return refused(error)

    world.authorization.replies["/token"] = reply

    with pytest.raises(AuthError, match=f"gave no token: {error}"):
        await world.call(bearer(world))

    assert len(world.authorization.sent("/token")) == 1


async def test_the_jwt_is_not_sent_to_another_issuer_than_the_one_of_the_client(world: World):
    platform = Platform()

    with pytest.raises(AuthError, match=r"is registered at https://other\.example"):
        await world.call(bearer(world, platform, issuer="https://other.example"))

    assert platform.calls == []
    assert "/token" not in world.authorization.paths


async def test_the_jwt_is_not_sent_to_an_issuer_that_the_server_names_later(
    build: Any, world: World
):
    auth = bearer(world)
    await world.call(auth)
    other = await build()
    world.authorization.access_tokens.clear()
    world.server.metadata["authorization_servers"] = [other.authorization.issuer]

    with pytest.raises(AuthError, match="and is not used at"):
        await world.call(auth)

    assert "/token" not in other.authorization.paths


async def test_an_error_of_the_platform_is_raised_as_it_is(world: World):
    async def platform(issuer: str, resource: str) -> str:
        raise LookupError("no JWT")

    with pytest.raises(LookupError, match="no JWT"):
        await world.call(bearer(world, platform))


async def test_an_answer_that_repeats_the_jwt_is_not_shown(world: World):
    world.authorization.replies["/token"] = always(
        f'{{"error": "invalid_grant", "error_description": "not {JWT}1"}}', status=400
    )

    with pytest.raises(AuthError) as raised:
        await world.call(bearer(world))

    assert JWT not in str(raised.value)
    assert not hasattr(raised.value, "__notes__")


def test_a_server_without_https_gets_no_jwt():
    with pytest.raises(ConfigError, match="must be https"):
        JwtBearer(
            "http://mcp.example/",
            assertion=Platform(),
            client=ClientIdentity(id="workload"),
            store=None,  # type: ignore[arg-type]
        )
