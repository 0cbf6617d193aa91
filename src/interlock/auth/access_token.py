"""Access tokens of the front door: `ilo_` and a sealed reference to an authorization.

A token states an authorization, its generation, the granted scopes, the resource and the expiry.
It is sealed with a key of the gateway, so that it says nothing to anybody else, and nobody can make
one. Whether it is still valid is said by the authorization.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error

from msgspec import Struct

from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_format import ACCESS_PREFIX

LIFETIME = 3_600  # seconds
ID_BYTES = 9  # of an authorization's id, which is its base64url
_PURPOSE = "access token"
_PLACE = b"front door"
_GENERATION_BYTES, _EXPIRY_BYTES = 4, 5


class AccessToken(Struct, frozen=True):
    """The content of an access token.

    Attributes:
        authorization: The id of the authorization.
        generation: How often the authorization's refresh token had been replaced.
        expires: Seconds since 1970.
        scopes: The granted scopes.
        view: The view that the token is for; "" for the endpoint of all views.
    """

    authorization: str
    generation: int
    expires: int
    scopes: tuple[str, ...]
    view: str = ""

    def sealed(self, secret: GatewayKey) -> str:
        """Return the token's text."""
        content = (
            urlsafe_b64decode(self.authorization)
            + self.generation.to_bytes(_GENERATION_BYTES, "big")
            + self.expires.to_bytes(_EXPIRY_BYTES, "big")
            + f"{' '.join(self.scopes)}\n{self.view}".encode()
        )
        sealed = secret.seal(_PURPOSE, content, _PLACE)
        return ACCESS_PREFIX + urlsafe_b64encode(sealed).decode().rstrip("=")

    @classmethod
    def opened(cls, text: bytes, secret: GatewayKey) -> AccessToken | None:
        """Return the content of a token; None if this gateway's key has not sealed it."""
        encoded = text[len(ACCESS_PREFIX) :]
        try:
            sealed = urlsafe_b64decode(encoded + b"=" * (-len(encoded) % 4))
        except (Base64Error, ValueError):
            return None
        # Python ignores foreign characters: one token would have any number of spellings.
        if urlsafe_b64encode(sealed).rstrip(b"=") != encoded:
            return None
        content = secret.unseal(_PURPOSE, sealed, _PLACE)
        if content is None:
            return None
        end = ID_BYTES + _GENERATION_BYTES
        scopes, _, view = content[end + _EXPIRY_BYTES :].decode().partition("\n")
        return cls(
            urlsafe_b64encode(content[:ID_BYTES]).decode(),
            int.from_bytes(content[ID_BYTES:end], "big"),
            int.from_bytes(content[end : end + _EXPIRY_BYTES], "big"),
            tuple(scopes.split()),
            view,
        )
