"""OAuth logins for protected servers, for `Client.http(auth=...)`."""

from __future__ import annotations

from interlock.oauth.authorization import AuthorizationRequest
from interlock.oauth.client_grant import ClientCredentials, JwtBearer
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.fetcher import Fetcher
from interlock.oauth.login import OAuth
from interlock.oauth.storage import MemoryTokenStore, TokenStore, UserTokenStore
from interlock.oauth.token_exchange import TokenExchange

__all__ = [
    "AuthorizationRequest",
    "ClientCredentials",
    "ClientIdentity",
    "Fetcher",
    "JwtBearer",
    "MemoryTokenStore",
    "OAuth",
    "TokenExchange",
    "TokenStore",
    "UserTokenStore",
]
