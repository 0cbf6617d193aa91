"""Who is calling: credentials in HTTP headers become principals."""

from __future__ import annotations

from interlock.auth.bearer import BearerAuth, Verify, static_tokens
from interlock.auth.principal import Principal

__all__ = ["BearerAuth", "Principal", "Verify", "static_tokens"]
