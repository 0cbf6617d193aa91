"""DPoP: tokens bound to a private key, without which they are useless.

Each login has its own key. Each request with the login's token carries a proof, which is signed
with the key for one method and one URL. A thief who has only the token cannot create a proof.

RFC 9449, RFC 7638 (thumbprint).
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from secrets import token_urlsafe
from time import time
from urllib.parse import urlsplit

import msgspec

from interlock.errors import MissingExtra, StoreCorrupt

try:
    import jwt
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
except ImportError as error:
    raise MissingExtra("a login that is bound to a key (DPoP)", "oauth") from error

ALGORITHM = "ES256"
_COORDINATE_BYTES = 32  # length of a coordinate on the curve P-256


class DpopKey:
    """The private key to which one login's tokens are bound.

    Args:
        pem: A stored key as PEM; "" to create a new key.

    Raises:
        StoreCorrupt: `pem` is not a P-256 private key.
    """

    def __init__(self, pem: str = "") -> None:
        self._key = _load(pem) if pem else ec.generate_private_key(ec.SECP256R1())
        point = self._key.public_key().public_numbers()
        self._jwk = {
            "crv": "P-256",
            "kty": "EC",
            "x": _encoded(point.x.to_bytes(_COORDINATE_BYTES)),
            "y": _encoded(point.y.to_bytes(_COORDINATE_BYTES)),
        }

    def __repr__(self) -> str:
        return "DpopKey()"

    @property
    def pem(self) -> str:
        """The private key as PEM, which is stored with the tokens. It is a secret."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    @property
    def thumbprint(self) -> str:
        """The hash that identifies the public key (`jkt`)."""
        return _hash(msgspec.json.encode(self._jwk, order="sorted"))

    def proof(self, method: str, url: str, *, token: str = "", nonce: str = "") -> str:
        """Return the value of a request's `DPoP` header. Every proof is different.

        Args:
            method: The request's HTTP method.
            url: The request's URL; its query and fragment are ignored.
            token: The access token in the request; "" for a token request.
            nonce: The most recent nonce from the server of `url`; "" if it has sent none.
        """
        claims: dict[str, object] = {
            "jti": token_urlsafe(16),
            "htm": method,
            "htu": urlsplit(url)._replace(query="", fragment="").geturl(),
            "iat": int(time()),
        }
        if token:
            claims["ath"] = _hash(token.encode())
        if nonce:
            claims["nonce"] = nonce
        headers = {"typ": "dpop+jwt", "jwk": self._jwk}
        return jwt.encode(claims, self._key, ALGORITHM, headers=headers)


def _load(pem: str) -> ec.EllipticCurvePrivateKey:
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # not chained: the text may quote the key
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise StoreCorrupt("the stored key of the login cannot be read: log in again")
    return key


def _hash(data: bytes) -> str:
    return _encoded(hashlib.sha256(data).digest())


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
