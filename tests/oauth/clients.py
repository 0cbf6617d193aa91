"""A client with a secret, or with a key, at the authorization server of the tests."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from interlock.oauth import ClientCredentials, ClientIdentity
from tests.oauth.conftest import World


@pytest.fixture
def world(world: World) -> World:
    """Return a world with a client that has a secret."""
    world.authorization.clients["me"] = "s3cr3t"
    del world.authorization.metadata["token_endpoint_auth_methods_supported"]
    return world


def credentials(world: World, **client: Any) -> ClientCredentials:
    """Return the login of the client, with other members as given."""
    identity = ClientIdentity(**{"id": "me", "secret": "s3cr3t", **client})
    return ClientCredentials(world.server.url, client=identity, store=world.store)


def pem(key: Any, password: bytes = b"") -> str:
    """Return a key as PEM."""
    secured = BestAvailableEncryption(password) if password else NoEncryption()
    written: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secured)
    return written.decode()


EC = ec.generate_private_key(ec.SECP256R1())
