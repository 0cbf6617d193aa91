"""Reports the state of stored logins, without sending requests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from interlock.cli.terminal import warn
from interlock.config import HttpServer, OpenApiConfig, ServerConfig, resolve
from interlock.config.openapi import ApiLogin
from interlock.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from interlock.oauth.storage import Tokens, TokenStore

# "expired": only the user can renew the login.
Login = Literal["kept", "expired", "none", "unreadable"]


async def logins(servers: Mapping[str, ServerConfig]) -> dict[str, Login]:
    """Return the login state of each server that may use a login, by the server's name."""
    found = {name: login_url(server) for name, server in servers.items()}
    urls = {name: url for name, url in found.items() if url}
    if not urls:
        return {}
    from interlock.oauth import UserTokenStore  # loads aiohttp

    store = UserTokenStore()
    states = await asyncio.gather(*(_login(store, url) for url in urls.values()))
    return dict(zip(urls, states, strict=True))


def login_url(server: ServerConfig) -> str:
    """Return the URL under which a server's login is stored, with variables replaced.

    Returns:
        "" for a server that never uses a login, and when a variable is not set.
    """
    try:
        match server:
            case HttpServer() if server.uses_login:
                return resolve(server, os.environ).url
            case OpenApiConfig() if has_api_login(server):
                return resolve(server, os.environ).openapi.base_url
    except ConfigError:
        pass
    return ""


def has_api_login(server: OpenApiConfig) -> bool:
    """Return whether an API's configuration lets users log in."""
    return any(isinstance(each, ApiLogin) for each in server.openapi.auth.values())


async def _login(store: TokenStore, url: str) -> Login:
    try:
        return _state(await store.load_tokens(url))
    except StoreError as error:
        warn(str(error))
        return "unreadable"


def _state(tokens: Tokens | None) -> Login:
    if tokens is None:
        return "none"
    return "expired" if tokens.expired() and not tokens.refresh_token else "kept"
