"""Who is calling: credentials in HTTP headers become principals."""

from __future__ import annotations

from interlock.auth.api_key import ApiKeyAuth
from interlock.auth.authenticator import Authenticator
from interlock.auth.bearer import BearerAuth
from interlock.auth.either import EitherAuth
from interlock.auth.principal import Principal
from interlock.auth.verifier import Verify, static_tokens

__all__ = [
    "ApiKeyAuth",
    "Authenticator",
    "BearerAuth",
    "EitherAuth",
    "Principal",
    "Verify",
    "static_tokens",
]
