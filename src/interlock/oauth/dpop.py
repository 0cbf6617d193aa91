"""DPoP: tokens that are useless without the private key they are bound to.

A login has a key of its own. Each request that uses the login carries a proof, signed with the
key, for one method and one URL. A thief of the token cannot make such a proof.

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
_COORDINATE_BYTES = 32  # size of a P-256 coordinate


class DpopKey:
    """The private key of one login.

    Args:
        pem: The PEM of a stored key; "" creates a new key.

    Raises:
        StoreCorrupt: `pem` is not the PEM of such a key.
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
        """The private key, to be stored with the tokens. A secret."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    @property
    def thumbprint(self) -> str:
        """The hash that names the public key (`jkt`)."""
        return _hash(msgspec.json.encode(self._jwk, order="sorted"))

    def proof(self, method: str, url: str, *, token: str = "", nonce: str = "") -> str:
        """Return the `DPoP` header of one request; every proof is different.

        Args:
            method: HTTP method of the request.
            url: URL of the request; query and fragment are ignored.
            token: The access token that the request carries; "" in a token request.
            nonce: The last nonce of the server of `url`; "" for none.
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
    except (ValueError, TypeError, UnsupportedAlgorithm):  # the text may quote the key
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise StoreCorrupt("the stored key of the login cannot be read: log in again")
    return key


def _hash(data: bytes) -> str:
    return _encoded(hashlib.sha256(data).digest())


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")
