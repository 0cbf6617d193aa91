"""Stored logins: tokens and client registrations, by owner, server URL and issuer.

For a client that the operator has registered, the store contains only the client's issuer, which
stays even after a logout.

Rules:

1. An entry is found only with the issuer, server URL and owner under which it was saved. All three
   are compared as strings, exactly as they were passed.
2. Secrets are stored in the user's keyring, or in files that only the user can read. They appear in
   no repr and no message.
3. If an entry cannot be read, the error names its location. A new login replaces the entry.
"""

from __future__ import annotations

import asyncio
import copy
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from platformdirs import user_data_path

from interlock.aio import in_thread
from interlock.errors import StoreCorrupt, StoreError, StoreLocked, StoreTooNew
from interlock.oauth import keyrings, private_files
from interlock.text.redaction import Redacted

if TYPE_CHECKING:
    from typing import Self

    from keyring.backend import KeyringBackend

LEEWAY = 60.0  # seconds; a token counts as expired this long before it expires
LOCK_SECONDS = 30.0  # seconds to wait for the lock of an entry
KEYRING_SECONDS = 60.0  # seconds for one operation, in which the user may unlock the keyring
MAX_ISSUERS = 8  # issuers kept for one server; saving another one removes the oldest

T = TypeVar("T")


class Tokens(Redacted, frozen=True, kw_only=True, omit_defaults=True):
    """The tokens of one login, and the data needed to refresh them.

    Attributes:
        access_token: The access token. It is a secret.
        refresh_token: The refresh token, a secret; "" if the server issued no refresh token.
        expires_at: The time of expiry by the wall clock, in seconds since 1970; None if unknown.
        received_at: The time of receipt by the wall clock, in seconds since 1970; 0 if unknown.
        scope: The granted scopes, separated by spaces; "" if unknown.
        issuer: The authorization server, spelled as in its metadata.
        resource: The `resource` in the token request, unchanged.
        client_id: The id of the client that received the tokens.
        token_endpoint: The URL that issued the tokens, and that refreshes them.
        auth_method: The client's authentication method at that URL, such as "client_secret_post".
        missing_scopes: Scopes, separated by spaces, that the protected server required later, but
            that are not granted. The next login requests these scopes as well.
        dpop_key: The private key, as PEM, that the tokens are bound to, a secret; "" for bearer
            tokens. It is stored and deleted with the tokens.
    """

    public = ("issuer", "resource", "scope", "expires_at")

    access_token: str
    refresh_token: str = ""
    expires_at: float | None = None
    received_at: float = 0.0
    scope: str = ""
    issuer: str = ""
    resource: str = ""
    client_id: str = ""
    token_endpoint: str = ""
    auth_method: str = ""
    missing_scopes: str = ""
    dpop_key: str = ""

    def expired(self, now: float | None = None) -> bool:
        """Return whether the access token has expired, or will expire within `LEEWAY`.

        If a token is valid only for a short time, the leeway is half of that time.
        """
        if self.expires_at is None:
            return False
        leeway = LEEWAY
        if self.received_at:
            leeway = min(leeway, max(0.0, self.expires_at - self.received_at) / 2)
        return self.expires_at - leeway <= (time.time() if now is None else now)


class Registration(Redacted, frozen=True, kw_only=True, omit_defaults=True):
    """A client that was registered at an issuer's registration endpoint.

    Attributes:
        client_secret: The client's secret; "" if the client has no secret.
        client_secret_expires_at: The time of expiry by the wall clock, in seconds since 1970; 0 for
            never.
    """

    public = ("issuer", "client_id", "token_endpoint_auth_method", "redirect_uris")

    issuer: str
    client_id: str
    client_secret: str = ""
    client_secret_expires_at: float = 0.0
    token_endpoint_auth_method: str = "none"  # noqa: S105 - not a secret
    redirect_uris: tuple[str, ...] = ()
    scope: str = ""

    def expired(self, now: float | None = None) -> bool:
        """Return whether the client's secret has expired, or will expire within `LEEWAY`."""
        if not self.client_secret_expires_at:
            return False
        return self.client_secret_expires_at - LEEWAY <= (time.time() if now is None else now)


class _Entry(Struct, kw_only=True):
    """All data stored for one owner and server URL. The most recently used issuer is last."""

    version: int = 1
    server_url: str
    owner: str = ""
    tokens: dict[str, Tokens] = {}
    registrations: dict[str, Registration] = {}
    issuers: dict[str, str] = {}  # issuers of operator-registered clients, by client id


class _Version(Struct):
    version: int


_VERSION = 1
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Entry).decode
_decode_version = msgspec.json.Decoder(_Version).decode


class TokenStore(ABC):
    """A store of tokens and registrations by owner, server URL and issuer; see `UserTokenStore`.

    Hold the server's `lock` while you save or delete. Otherwise a simultaneous change by another
    task or process may be lost.

    Attributes:
        owner: The owner of the logins; "" is the user who runs this process.
    """

    def __init__(self) -> None:
        self.owner = ""
        self._locked: dict[str, object] = {}

    def for_owner(self, owner: str) -> Self:
        """Return a view of this store that sees only one owner's logins.

        Args:
            owner: The owner, such as the id of a principal; "" is the user who runs this process.
                Logins saved through this view are invisible to views for other owners.
        """
        view = copy.copy(self)
        view.owner = owner
        return view

    # Tokens

    async def load_tokens(self, server_url: str, issuer: str | None = None) -> Tokens | None:
        """Return the tokens for a server; None if there are none.

        Args:
            server_url: The server URL, exactly as it was passed when the tokens were saved.
            issuer: The issuer of the tokens; None for the tokens that were saved last.

        Raises:
            StoreCorrupt: The entry is damaged. Saving tokens or calling `delete` replaces it.
            StoreTooNew: A newer version of this program wrote the entry. Saving tokens or calling
                `delete` replaces it.
            StoreError: The entry cannot be read.
        """
        tokens = (await self._load(server_url)).tokens
        if issuer is None:
            return next(reversed(tokens.values()), None)
        return tokens.get(issuer)

    async def save_tokens(self, server_url: str, tokens: Tokens) -> None:
        """Store tokens under `tokens.issuer`, replacing earlier tokens from that issuer.

        Raises:
            StoreError: The entry cannot be written.
        """
        await self._change(server_url, lambda entry: _put(entry.tokens, tokens.issuer, tokens))

    # Registrations

    async def load_registration(self, server_url: str, issuer: str) -> Registration | None:
        """Return the client that was registered at an issuer for a server, or None.

        Raises:
            StoreError: The entry cannot be read; see `load_tokens`.
        """
        return (await self._load(server_url)).registrations.get(issuer)

    async def save_registration(self, server_url: str, registration: Registration) -> None:
        """Store a registration under its issuer, replacing an earlier registration there.

        Raises:
            StoreError: The entry cannot be written.
        """
        await self._change(
            server_url,
            lambda entry: _put(entry.registrations, registration.issuer, registration),
        )

    # Clients that the operator has registered

    async def load_issuer(self, server_url: str, client_id: str) -> str:
        """Return the issuer with which a client was first used at a server; "" if it was not used.

        Raises:
            StoreError: The entry cannot be read; see `load_tokens`.
        """
        return (await self._load(server_url)).issuers.get(client_id, "")

    async def save_issuer(self, server_url: str, client_id: str, issuer: str) -> None:
        """Store the issuer to which a client belongs.

        Raises:
            StoreError: The entry cannot be written.
        """
        await self._change(server_url, lambda entry: _put(entry.issuers, client_id, issuer))

    # All of them

    async def delete_login(self, server_url: str) -> None:
        """Delete tokens and registrations, but keep the issuers of operator-registered clients.

        Raises:
            StoreError: The entry cannot be read or written.
        """
        if not (await self._load(server_url)).issuers:
            await self.delete(server_url)
            return

        def clear(entry: _Entry) -> None:
            entry.tokens.clear()
            entry.registrations.clear()

        await self._change(server_url, clear)

    async def delete(self, server_url: str) -> None:
        """Delete all data stored for a server, even if the entry cannot be read.

        Raises:
            StoreError: The entry cannot be written.
        """
        await self._write(self._key(server_url), None)

    @asynccontextmanager
    async def lock(self, server_url: str) -> AsyncIterator[None]:
        """Lock a server's entry against other tasks and processes of this user.

        The lock ends with the process, even if the process is killed. The lock is not reentrant.

        Raises:
            StoreLocked: The lock did not become free within `LOCK_SECONDS`.
            StoreError: Other users can write to the folder with the locks.
        """
        key = self._key(server_url)
        deadline = time.monotonic() + LOCK_SECONDS
        pause = 0.002
        # `flock` has no timeout, so poll the lock.
        while (release := self._try_lock(key)) is None:
            if time.monotonic() > deadline:
                raise StoreLocked(
                    f"another login to {_host(server_url)} has not ended in {LOCK_SECONDS:g} s: "
                    "end that program, or try again"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)
        try:
            yield
        finally:
            release()

    # Between entries and bytes

    def _key(self, server_url: str) -> str:
        """Return the name of a file or keyring entry, unique for the owner and the URL."""
        readable = re.sub(r"[^a-z0-9.-]", "_", _host(server_url))[:60]
        digests = [sha256(server_url.encode()).hexdigest()[:32]]
        if self.owner:
            digests.append(sha256(self.owner.encode()).hexdigest()[:32])
        return "-".join([readable, *digests])

    async def _load(self, server_url: str) -> _Entry:
        stored = await self._read(self._key(server_url))
        if stored is None:
            return _Entry(server_url=server_url, owner=self.owner)
        return self._decoded(stored, server_url)

    def _decoded(self, stored: bytes, server_url: str) -> _Entry:
        location = self._location(self._key(server_url))
        again = f"log in to {_host(server_url)} again to replace it"
        try:
            if _decode_version(stored).version > _VERSION:
                raise StoreTooNew(
                    f"{location} was written by a newer interlock: update, or {again}"
                )
            entry = _decode(stored)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise StoreCorrupt(f"{location} is damaged: {again}") from None
        if (entry.server_url, entry.owner) != (server_url, self.owner):
            raise StoreCorrupt(f"{location} belongs to another server or owner: {again}")
        return entry

    async def _change(self, server_url: str, change: Callable[[_Entry], object]) -> None:
        try:
            entry = await self._load(server_url)
        except StoreError:  # the entry cannot be read, so the new login replaces it
            entry = _Entry(server_url=server_url, owner=self.owner)
        change(entry)
        await self._write(self._key(server_url), _encode(entry))

    # For subclasses: read, write and lock

    @abstractmethod
    def _location(self, key: str) -> str:
        """Return where a key's content is stored, for messages."""

    @abstractmethod
    async def _read(self, key: str) -> bytes | None: ...

    @abstractmethod
    async def _write(self, key: str, content: bytes | None) -> None: ...

    def _try_lock(self, key: str) -> Callable[[], object] | None:
        """Lock a key without waiting; return a function that unlocks it; None if it is locked."""
        mine = object()
        # One atomic step, because event loops in two threads may try to lock the same key.
        if self._locked.setdefault(key, mine) is not mine:
            return None
        return lambda: self._locked.pop(key)


def _put(stored: dict[str, T], key: str, value: T) -> None:
    stored.pop(key, None)
    stored[key] = value
    while len(stored) > MAX_ISSUERS:
        del stored[next(iter(stored))]


def _host(server_url: str) -> str:
    try:
        return urlsplit(server_url).hostname or "the server"
    except ValueError:
        return "the server"


class MemoryTokenStore(TokenStore):
    """A store that keeps logins in memory, until the process ends."""

    def __init__(self) -> None:
        super().__init__()
        self._stored: dict[str, bytes] = {}

    def _location(self, key: str) -> str:
        return f"the entry {key} in memory"

    async def _read(self, key: str) -> bytes | None:
        return self._stored.get(key)

    async def _write(self, key: str, content: bytes | None) -> None:
        if content is None:
            self._stored.pop(key, None)
        else:
            self._stored[key] = content


class UserTokenStore(TokenStore):
    """A store of this user's logins, in the keyring if possible, or else in private files.

    The keyring is used if the package `keyring` is installed and finds a keyring that encrypts. The
    Windows Credential Manager limits an entry to 2,560 bytes, and some servers' tokens are longer.
    Saving such a login raises an error there; pass `keyring=False` to avoid that.

    Args:
        folder: The folder for files and locks; None for "logins" in the user's data folder. The
            folder is created when it is needed, with mode 0700.
        keyring: Whether the keyring may be used.
    """

    def __init__(self, folder: Path | None = None, *, keyring: bool = True) -> None:
        super().__init__()
        self.folder = folder or user_data_path("interlock") / "logins"
        self._keyring_wanted = keyring
        self._keyring: KeyringBackend | None = None

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _location(self, key: str) -> str:
        if self._keyring is not None:
            return f"the entry {key} of {keyrings.SERVICE!r} in the keyring"
        return str(self._path(key))

    async def _read(self, key: str) -> bytes | None:
        if (keyring := await self._found_keyring()) is not None:
            return await _use_keyring(partial(keyrings.read, keyring, key))
        return await in_thread(partial(private_files.read, self._path(key)))

    async def _write(self, key: str, content: bytes | None) -> None:
        if (keyring := await self._found_keyring()) is not None:
            await _use_keyring(partial(keyrings.write, keyring, key, content))
            content = None  # delete the file, which was written before there was a keyring
        await in_thread(partial(_write_file, self._path(key), content))

    def _try_lock(self, key: str) -> Callable[[], object] | None:
        release = super()._try_lock(key)
        if release is None:
            return None
        try:
            descriptor = private_files.lock(self.folder / f"{key}.lock")
        except BlockingIOError:
            release()
            return None
        except OSError:
            # Locking is impossible and unnecessary: this user's other processes cannot write here
            # either.
            return release
        except BaseException:
            release()
            raise

        def release_both() -> None:
            private_files.unlock(descriptor)
            release()

        return release_both

    async def _found_keyring(self) -> KeyringBackend | None:
        if self._keyring_wanted:
            self._keyring = await _use_keyring(keyrings.find)
            self._keyring_wanted = False
        return self._keyring


def _write_file(path: Path, content: bytes | None) -> None:
    try:
        if content is None:
            path.unlink(missing_ok=True)
        else:
            private_files.replace(path, content)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}; the login lasts until this program ends"
        ) from None


async def _use_keyring(work: Callable[[], T]) -> T:
    """Run blocking keyring work in a thread. It may have to wait until the user unlocks it."""
    try:
        async with asyncio.timeout(KEYRING_SECONDS):
            return await in_thread(work)
    except TimeoutError:
        raise StoreLocked(
            f"the keyring has not answered in {KEYRING_SECONDS:g} s: unlock it, "
            f"or {keyrings.WITHOUT}"
        ) from None
    except Exception as raised:
        raise keyrings.error(raised) from None
