"""Signed statements of a client, and keys that cannot sign."""

from __future__ import annotations

import sys
from base64 import b64encode
from importlib import import_module
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from interlock.errors import ConfigError, MissingExtra
from interlock.oauth import ClientIdentity
from interlock.oauth.assertion import sign
from tests.support.rows import each_row


def pem(key: Any, password: bytes = b"") -> str:
    secured = BestAvailableEncryption(password) if password else NoEncryption()
    written: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secured)
    return written.decode()


EC = ec.generate_private_key(ec.SECP256R1())


def test_two_signed_jwts_differ():
    client = ClientIdentity(id="me", private_key=pem(EC))
    options = {"verify_signature": False}
    one, other = (
        jwt.decode(sign(client, "https://as.example", now=1.0), options=options) for _ in range(2)
    )

    assert one.pop("jti") != other.pop("jti")
    assert one == other


# Statements


@each_row(
    ("key", "algorithm"),
    [
        (rsa.generate_private_key(65537, 2048), "RS256"),
        (EC, "ES256"),
        (ec.generate_private_key(ec.SECP384R1()), "ES384"),
        (ed25519.Ed25519PrivateKey.generate(), "EdDSA"),
    ],
    ids=["RSA", "P-256", "P-384", "Ed25519"],
)
def test_the_default_algorithm_of_a_key_is_used(key: Any, algorithm: str):
    statement = sign(ClientIdentity(id="me", private_key=pem(key)), "https://as.example", now=1.0)

    assert jwt.get_unverified_header(statement)["alg"] == algorithm


def unsupported() -> str:
    """Return a key of the unsupported curve SM2."""
    der = EC.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    sm2 = der.replace(bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a811ccf5501822d"))
    kind = "PRIVATE KEY"
    return f"-----BEGIN {kind}-----\n{b64encode(sm2).decode()}\n-----END {kind}-----\n"


@each_row(
    ("key", "algorithm"),
    [
        ("no key", ""),
        (pem(EC, b"password"), ""),
        (pem(EC), "RS256"),
        (pem(EC), "HS256"),
        (pem(EC), "none"),
        (pem(EC), "ES999"),
        (pem(ec.generate_private_key(ec.SECP256K1())), ""),
        (unsupported(), ""),
    ],
    ids=[
        "none",
        "encrypted",
        "other kind",
        "HS256",
        "no algorithm",
        "unknown",
        "unknown curve",
        "unsupported curve",
    ],
)
def test_a_key_that_cannot_sign_is_an_error_that_does_not_show_it(key: str, algorithm: str):
    client = ClientIdentity(id="me", private_key=key, algorithm=algorithm)

    with pytest.raises(ConfigError, match="the private key of client 'me'") as raised:
        sign(client, "https://as.example", now=1.0)

    assert key not in repr(raised.value)
    assert raised.value.__cause__ is raised.value.__context__ is None
    assert key not in repr(client)


def test_missing_library_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.delitem(sys.modules, "interlock.oauth.assertion")

    with pytest.raises(MissingExtra, match="needs the extra oauth: "):
        import_module("interlock.oauth.assertion")
