"""Logging in, from the first refusal to a token that is let in."""

from __future__ import annotations

from .conftest import World


async def test_a_refused_client_finds_registers_asks_and_is_let_in(world: World):
    token = await world.call(world.oauth())

    assert token in world.authorization.access_tokens
    assert world.authorization.paths == [
        "/.well-known/oauth-authorization-server",
        "/register",
        "/authorize",
        "/token",
    ]
