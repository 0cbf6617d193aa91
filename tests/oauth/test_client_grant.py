"""Tokens without a user: replaced, stored, and shared by programs."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from interlock.errors import InsufficientScope
from interlock.oauth.client_grant import client_key
from tests.oauth.clients import credentials, world
from tests.oauth.conftest import World

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
