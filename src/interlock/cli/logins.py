"""Which logins are kept, by what is stored on this machine: no server is asked."""

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

# "expired" is only said of what cannot be renewed without a person.
Login = Literal["kept", "expired", "none", "unreadable"]


async def logins(servers: Mapping[str, ServerConfig]) -> dict[str, Login]:
    """Look up the logins of those servers that a person may have to log in to, by name."""
    urls = {name: url for name, server in servers.items() if (url := url_of(server))}
    if not urls:
        return {}
    from interlock.oauth import UserTokenStore  # loads aiohttp

    store = UserTokenStore()
    found = await asyncio.gather(*(_login(store, url) for url in urls.values()))
    return dict(zip(urls, found, strict=True))


def url_of(server: ServerConfig) -> str:
    """Return the URL that a login is kept for; "" when none ever is, or a variable is not set."""
    if not isinstance(server, HttpServer) or not server.uses_login:
        return ""
    try:
        return resolve(server, os.environ).url
    except ConfigError:
        return ""


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
