"""Client authentication by a signed JWT instead of a secret: `private_key_jwt`.

RFC 7523 section 3. The issuer is the only audience (RFC 7523bis), so that no other authorization
server can use the JWT.
"""

from __future__ import annotations

from contextlib import suppress
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from interlock.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from interlock.oauth.client_identity import ClientIdentity

try:
    import jwt
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
except ImportError as error:
    raise MissingExtra("client authentication with a private key", "oauth") from error

LIFETIME = 60.0  # seconds for which a JWT is valid
# The exceptions that both libraries raise if a key is malformed or unsuitable for the algorithm.
_UNUSABLE = (ValueError, TypeError, NotImplementedError, UnsupportedAlgorithm, jwt.PyJWTError)
_CURVES = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}


def sign(client: ClientIdentity, issuer: str, *, now: float) -> str:
    """Return a JWT that authenticates `client` at an issuer for `LIFETIME` seconds.

    Args:
        client: The client, which must have a private key.
        issuer: The authorization server, spelled as in its metadata.
        now: The time by the wall clock, in seconds since 1970.

    Raises:
        ConfigError: The key cannot be read, or is unsuitable for the algorithm.
    """
    claims = {
        "iss": client.id,
        "sub": client.id,
        "aud": issuer,
        "iat": int(now),
        "exp": int(now + LIFETIME),
        "jti": token_urlsafe(16),
    }
    with suppress(*_UNUSABLE):  # do not chain these errors, because their texts may quote the key
        key = load_pem_private_key(client.private_key.encode(), password=None)
        algorithm = client.algorithm or _algorithm(key)
        return jwt.encode(claims, key, algorithm)  # type: ignore[arg-type]  # PyJWT checks the key
    raise ConfigError(
        f"the private key of client {client.id!r} cannot be used: it must be an unencrypted PEM "
        f"of a key for {client.algorithm or 'RS256, ES256, ES384, ES512 or EdDSA'}"
    )


def _algorithm(key: object) -> str:
    match key:
        case rsa.RSAPrivateKey():
            return "RS256"
        case ec.EllipticCurvePrivateKey():
            return _CURVES.get(key.curve.name, "")
        case ed25519.Ed25519PrivateKey():
            return "EdDSA"
        case _:
            return ""
