"""Authentication: turns the credentials in HTTP headers into principals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.auth.api_key import ApiKeyAuth, EitherAuth
from interlock.auth.authenticator import Authenticator
from interlock.auth.bearer import BearerAuth
from interlock.auth.principal import Principal
from interlock.auth.verifier import Verify, static_tokens
from interlock.lazy import loader

if TYPE_CHECKING:
    from interlock.auth.jwt import JwtVerifier

__all__ = [
    "ApiKeyAuth",
    "Authenticator",
    "BearerAuth",
    "EitherAuth",
    "JwtVerifier",
    "Principal",
    "Verify",
    "static_tokens",
]

# Lazy: importing `JwtVerifier` loads PyJWT and cryptography, which only some programs need.
__getattr__ = loader(__name__, {"JwtVerifier": "auth.jwt"})
