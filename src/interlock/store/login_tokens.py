"""A store of a user's OAuth login to one server, in the table of credentials."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic, time

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.errors import StoreCorrupt, StoreError, StoreLocked
from interlock.oauth.storage import LOCK_SECONDS, TokenStore
from interlock.store.credentials import CredentialStore, Place, State


class LoginTokens(TokenStore):
    """A store of one login's tokens, and of the client that was registered for the login.

    Its lock is a lease in the database, which excludes all processes that use the database.
    """

    def __init__(self, credentials: CredentialStore, place: Place) -> None:
        super().__init__()
        self._credentials = credentials
        self._place = place
        self._holder = ""  # the holder of the lease, while this object has locked the login

    @asynccontextmanager
    async def lock(self, server_url: str) -> AsyncIterator[None]:
        async with super().lock(server_url):
            holder = secrets.token_hex(8)
            deadline, pause = monotonic() + LOCK_SECONDS, 0.01
            while not await self._credentials.lease(self._place, holder):
                if monotonic() > deadline:
                    raise StoreLocked(
                        f"another process has been refreshing {self._location('')} for "
                        f"{LOCK_SECONDS:g} s; try again"
                    )
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.2)
            self._holder = holder
            try:
                yield
            finally:
                self._holder = ""
                with suppress(StoreError):  # harmless, because the lease expires
                    await self._credentials.release(self._place, holder)

    async def expire(self, server_url: str, refused: str) -> None:
        """Mark the login as expired, if its token is still the one that the server refused.

        Raises:
            StoreError: The login cannot be read or written.
        """
        async with self.lock(server_url):
            tokens = await self.load_tokens(server_url)
            if tokens is not None and tokens.access_token == refused:
                ended = replace(tokens, refresh_token="", expires_at=time())
                await self.save_tokens(server_url, ended)

    async def copied(self) -> TokenStore:
        """Return a copy in memory, whose tokens can be revoked after the login is deleted here.

        Raises:
            StoreError: The login cannot be read.
        """
        return _Copy(await self._credentials.read(self._place))

    def _location(self, key: str) -> str:  # noqa: ARG002
        return f"the login of {self._place.user} to server {self._place.server!r}"

    async def _read(self, key: str) -> bytes | None:  # noqa: ARG002
        return await self._credentials.read(self._place)

    async def _write(self, key: str, content: bytes | None) -> None:  # noqa: ARG002
        if content is None:
            await self._credentials.revoke(self._place)
        else:
            await self._credentials.write(self._place, content, *_state_of(content), self._holder)


class _Copy(TokenStore):
    """A copy of a login, in memory."""

    def __init__(self, content: bytes | None) -> None:
        super().__init__()
        self._content = content

    def _location(self, key: str) -> str:  # noqa: ARG002
        return "a deleted login"

    async def _read(self, key: str) -> bytes | None:  # noqa: ARG002
        return self._content

    async def _write(self, key: str, content: bytes | None) -> None:  # noqa: ARG002
        self._content = content


class _Tokens(Struct):
    refresh_token: str = ""
    expires_at: float | None = None


class _Entry(Struct):
    tokens: dict[str, _Tokens] = {}


def _state_of(content: bytes) -> tuple[State, float | None]:
    try:
        tokens = [*msgspec.json.decode(content, type=_Entry).tokens.values()]
    except msgspec.DecodeError as error:
        raise StoreCorrupt("a login that is not valid cannot be stored") from error
    if not tokens:
        return "needs_login", None
    return "ok", None if tokens[-1].refresh_token else tokens[-1].expires_at
