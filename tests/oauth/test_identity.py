"""The authorization server that a client belongs to, and how it authenticates there."""

from __future__ import annotations

import pytest

from interlock.errors import AuthError, ConfigError
from tests.oauth.clients import EC, credentials, pem, world
from tests.oauth.conftest import World
from tests.servers.authorization_server import refused

__all__ = ["world"]


async def test_a_client_is_not_used_at_another_issuer(world: World):
    with pytest.raises(AuthError, match=r"127.0.0.1:1, which is configured as oauth.issuer"):
        await world.call(credentials(world, issuer="https://127.0.0.1:1"))

    assert world.authorization.sent("/token") == []


async def test_client_without_issuer_keeps_its_first_issuer(world: World):
    await world.call(credentials(world))
    world.authorization.access_tokens.clear()
    port = world.authorization.origin.rpartition(":")[2]
    world.authorization.metadata["issuer"] = f"http://localhost:{port}"
    world.server.metadata["authorization_servers"] = [f"http://localhost:{port}"]

    with pytest.raises(AuthError, match=r"is registered at http://127"):
        await world.call(credentials(world))

    assert len(world.authorization.sent("/token")) == 1


async def test_refused_client_keeps_its_first_issuer(world: World):
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

    with pytest.raises(AuthError, match=r"no token: invalid_client; .*--client-secret") as raised:
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
