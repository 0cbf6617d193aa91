"""The local user's login to a server, for programs that run beside a gateway.

A user may have logged in twice: on the gateway's pages, which store the login in its database, and
with `interlock servers login`. The later login is used.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from interlock.config.servers import KeptLogin
from interlock.errors import StoreError
from interlock.oauth.storage import Tokens, TokenStore, UserTokenStore
from interlock.store.credentials import LOGIN, CredentialStore, Place
from interlock.store.login_tokens import LoginTokens

LOCAL_USER = "user:local"

_log = logging.getLogger("interlock.oauth")


class LocalLogin(TokenStore):
    """The tokens of the later of two logins. The database is opened for each use.

    Args:
        kept: The place of the login in the gateway's database.
        own: The logins made by `interlock servers login`; None for those of the user of this
            process.
    """

    def __init__(self, kept: KeptLogin, own: TokenStore | None = None) -> None:
        super().__init__()
        self._kept = kept
        self._own = own or UserTokenStore()
        self._locked_store: TokenStore | None = None

    @asynccontextmanager
    async def lock(self, server_url: str) -> AsyncIterator[None]:
        async with (
            super().lock(server_url),
            self._later(server_url) as store,
            store.lock(server_url),
        ):
            self._locked_store = store
            try:
                yield
            finally:
                self._locked_store = None

    @asynccontextmanager
    async def _later(self, server_url: str) -> AsyncGenerator[TokenStore, None]:
        async with CredentialStore.open(self._kept.database) as credentials:
            kept = LoginTokens(credentials, Place(LOCAL_USER, self._kept.server, LOGIN))
            tokens = await _tokens(kept, server_url)
            own = await _tokens(self._own, server_url) if tokens is not None else None
            is_kept = tokens is not None and (own is None or tokens.received_at >= own.received_at)
            yield kept if is_kept else self._own

    async def _load(self, server_url: str) -> Any:
        async with self._later(server_url) as store:
            return await store._load(server_url)

    async def _write(self, key: str, content: bytes | None) -> None:
        if self._locked_store is None:
            raise StoreError(f"{self._location(key)} must be locked to be changed")
        await self._locked_store._write(key, content)

    async def _read(self, key: str) -> bytes | None:
        raise NotImplementedError  # unreachable, because `_load` is overridden

    def _location(self, key: str) -> str:  # noqa: ARG002
        return f"the login of {LOCAL_USER} to server {self._kept.server!r}"


class LocalLogins:
    """The `UserStores` of an API that uses only the local user's login.

    Args:
        kept: The place of the login in the gateway's database.
    """

    def __init__(self, kept: KeptLogin) -> None:
        self.is_local = True
        self._kept = kept

    async def values(self, owner: str, server: str) -> Mapping[str, str]:  # noqa: ARG002
        """Return {}: the local user's values are part of the configuration."""
        return {}

    def tokens(self, owner: str, server: str) -> TokenStore:  # noqa: ARG002
        """Return the store of the local user's login, whatever the arguments."""
        return LocalLogin(self._kept)

    def connect_url(self, owner: str, server: str) -> str:  # noqa: ARG002
        """Return "", because the user logs in with `interlock servers login`."""
        return ""


async def _tokens(store: TokenStore, server_url: str) -> Tokens | None:
    try:
        return await store.load_tokens(server_url)
    except StoreError as error:
        _log.warning("%s", error)
        return None
