"""The state of stored logins, without a request to any server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from interlock.cli.terminal import warn
from interlock.config import HttpServer, ServerConfig, resolve
from interlock.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from interlock.oauth.storage import Tokens, TokenStore

# "expired": the login cannot be renewed without the user.
Login = Literal["kept", "expired", "none", "unreadable"]


async def logins(servers: Mapping[str, ServerConfig]) -> dict[str, Login]:
    """Return the login state of each server that may use one, by name."""
    found = {name: with_login(server) for name, server in servers.items()}
    urls = {name: server.url for name, server in found.items() if server is not None}
    if not urls:
        return {}
    from interlock.oauth import UserTokenStore  # loads aiohttp

    store = UserTokenStore()
    states = await asyncio.gather(*(_login(store, url) for url in urls.values()))
    return dict(zip(urls, states, strict=True))


def with_login(server: ServerConfig) -> HttpServer | None:
    """Return a server that may use a login, with variables resolved.

    Returns:
        None for a server that never uses one, and when a variable is not set.
    """
    if not isinstance(server, HttpServer) or not server.uses_login:
        return None
    try:
        return resolve(server, os.environ)
    except ConfigError:
        return None


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
