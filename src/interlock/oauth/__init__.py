"""Logging in to protected servers with OAuth: what `Client.http(auth=...)` takes."""

from __future__ import annotations

from interlock.oauth.authorization import AuthorizationRequest
from interlock.oauth.client_credentials import ClientCredentials
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.fetcher import Fetcher
from interlock.oauth.login import OAuth
from interlock.oauth.storage import MemoryTokenStore, TokenStore, UserTokenStore

__all__ = [
    "AuthorizationRequest",
    "ClientCredentials",
    "ClientIdentity",
    "Fetcher",
    "MemoryTokenStore",
    "OAuth",
    "TokenStore",
    "UserTokenStore",
]
