"""Logins that are kept: tokens and registrations, by issuer and server URL.

Of clients that the operator has registered, only their issuer is kept: it outlives the login.

Rules:

1. What one issuer gave out is never found under another one, nor under another server URL. Both
   are compared as strings, as they were given.
2. Secrets are in the user's keyring, or in files that only the user can read. They are in no
   repr and in no message.
3. What cannot be read is an error that names its place, and a new login replaces it. What cannot
   be written is an error as well, but stays usable in this process.
"""

from __future__ import annotations

import asyncio
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
from interlock.redaction import Redacted

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

LEEWAY = 60.0  # seconds before its end from which a token counts as expired
LOCK_SECONDS = 30.0
KEYRING_SECONDS = 60.0  # a person may have to unlock it
MAX_ISSUERS = 8  # for one server; the oldest is forgotten

T = TypeVar("T")


class Tokens(Redacted, frozen=True, kw_only=True, omit_defaults=True):
    """What a token endpoint gave out.

    Attributes:
        access_token: A secret.
        refresh_token: A secret; "" for none.
        expires_at: Wall clock, seconds; None if the endpoint did not say.
        received_at: Wall clock, seconds; 0 if unknown.
        scope: Scopes granted, separated by blanks; "" if never said.
        issuer: The authorization server, as its metadata spells it.
        resource: The `resource` of the token request, verbatim.
        client_id: To whom they were given.
        token_endpoint: Where they came from and are refreshed.
        auth_method: How the client proved itself there, such as "client_secret_post".
        lacks: Scopes that the server has asked for since, when nobody could be asked, separated
            by blanks: the next login is for these, too.
        dpop_key: A secret: PEM of the private key that the tokens are bound to; "" for bearer
            tokens. It is kept and deleted together with them.
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
    lacks: str = ""
    dpop_key: str = ""

    def expired(self, now: float | None = None) -> bool:
        """Say whether the access token is of no use: it ends within `LEEWAY`, or has ended.

        The leeway of a token that lives shortly is half of its life, so that it is used at all.
        """
        if self.expires_at is None:
            return False
        leeway = LEEWAY
        if self.received_at:
            leeway = min(leeway, max(0.0, self.expires_at - self.received_at) / 2)
        return self.expires_at - leeway <= (time.time() if now is None else now)


class Registration(Redacted, frozen=True, kw_only=True, omit_defaults=True):
    """Who we are for one issuer, as its registration endpoint said.

    Attributes:
        client_secret: A secret; "" for none.
        client_secret_expires_at: Wall clock, seconds; 0 for never.
    """

    public = ("issuer", "client_id", "token_endpoint_auth_method", "redirect_uris")

    issuer: str
    client_id: str
    client_secret: str = ""
    client_secret_expires_at: float = 0.0
    token_endpoint_auth_method: str = "none"  # noqa: S105 - no secret
    redirect_uris: tuple[str, ...] = ()
    scope: str = ""

    def expired(self, now: float | None = None) -> bool:
        """Say whether the secret has ended, or ends within `LEEWAY`."""
        if not self.client_secret_expires_at:
            return False
        return self.client_secret_expires_at - LEEWAY <= (time.time() if now is None else now)


class _Entry(Struct, kw_only=True):
    """All that is kept for one server URL. The issuer that was used last comes last."""

    version: int = 1
    server_url: str
    tokens: dict[str, Tokens] = {}
    registrations: dict[str, Registration] = {}
    issuers: dict[str, str] = {}  # of registered clients, by client id


class _Version(Struct):
    version: int


class _Unsaved(Redacted, frozen=True):
    """What could not be written, and what was there instead; None if that is not known."""

    entry: _Entry
    instead_of: tuple[bytes | None] | None


_VERSION = 1
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Entry).decode
_decode_version = msgspec.json.Decoder(_Version).decode


class TokenStore(ABC):
    """Tokens and registrations by issuer and server URL; see `UserTokenStore`.

    Whoever saves or deletes holds `lock` of that server, or loses what another one saves at the
    same moment.
    """

    def __init__(self) -> None:
        self._held: dict[str, object] = {}
        self._unsaved: dict[str, _Unsaved] = {}

    # Tokens

    async def load_tokens(self, server_url: str, issuer: str | None = None) -> Tokens | None:
        """Return the tokens for a server, or None.

        Args:
            server_url: As it was given when they were saved.
            issuer: Who gave them out; None takes those that were saved last.

        Raises:
            StoreError: They cannot be read. What is wrong with `StoreCorrupt` and `StoreTooNew`
                is cured by saving, and by `delete`.
        """
        tokens = (await self._load(server_url)).tokens
        if issuer is None:
            return next(reversed(tokens.values()), None)
        return tokens.get(issuer)

    async def save_tokens(self, server_url: str, tokens: Tokens) -> None:
        """Keep tokens under `tokens.issuer`, instead of those that are there.

        Raises:
            StoreError: They cannot be written. `load_tokens` gives them in this process.
        """
        await self._change(server_url, lambda entry: _put(entry.tokens, tokens.issuer, tokens))

    async def delete_tokens(self, server_url: str) -> None:
        """Forget the tokens of all issuers for a server; registrations stay.

        Raises:
            StoreError: The place cannot be written. They are forgotten in this process.
        """
        await self._change(server_url, lambda entry: entry.tokens.clear())

    # Registrations

    async def load_registration(self, server_url: str, issuer: str) -> Registration | None:
        """Return who we are for an issuer when we log in to a server, or None.

        Raises:
            StoreError: It cannot be read, as in `load_tokens`.
        """
        return (await self._load(server_url)).registrations.get(issuer)

    async def save_registration(self, server_url: str, registration: Registration) -> None:
        """Keep a registration under its issuer, instead of the one that is there.

        Raises:
            StoreError: It cannot be written. `load_registration` gives it in this process.
        """
        await self._change(
            server_url,
            lambda entry: _put(entry.registrations, registration.issuer, registration),
        )

    async def delete_registration(self, server_url: str, issuer: str) -> None:
        """Forget who we are for an issuer, and the tokens that it gave us.

        Raises:
            StoreError: The place cannot be written. It is forgotten in this process.
        """

        def forget(entry: _Entry) -> None:
            entry.registrations.pop(issuer, None)
            entry.tokens.pop(issuer, None)

        await self._change(server_url, forget)

    # Clients that the operator has registered

    async def load_issuer(self, server_url: str, client_id: str) -> str:
        """Return the issuer that a client was first used with at a server, or "".

        Raises:
            StoreError: It cannot be read, as in `load_tokens`.
        """
        return (await self._load(server_url)).issuers.get(client_id, "")

    async def save_issuer(self, server_url: str, client_id: str, issuer: str) -> None:
        """Keep the issuer that a client belongs to.

        Raises:
            StoreError: It cannot be written. `load_issuer` gives it in this process.
        """
        await self._change(server_url, lambda entry: _put(entry.issuers, client_id, issuer))

    # All of them

    async def delete_login(self, server_url: str) -> None:
        """Forget tokens and registrations, but not where registered clients belong.

        Raises:
            StoreError: The place cannot be read or written. They are forgotten in this process.
        """
        if not (await self._load(server_url)).issuers:
            await self.delete(server_url)
            return

        def forget(entry: _Entry) -> None:
            entry.tokens.clear()
            entry.registrations.clear()

        await self._change(server_url, forget)

    async def delete(self, server_url: str) -> None:
        """Forget everything about a server, in whatever state it is.

        Raises:
            StoreError: The place cannot be written.
        """
        key = _key(server_url)
        self._unsaved.pop(key, None)
        await self._write(key, None)

    @asynccontextmanager
    async def lock(self, server_url: str) -> AsyncIterator[None]:
        """Keep other tasks and processes of this user from this block, for one server.

        It ends with the process, however that ends. It is not reentrant.

        Raises:
            StoreLocked: Another one has kept it for `LOCK_SECONDS`.
            StoreError: Others can write to the folder of the locks.
        """
        key = _key(server_url)
        deadline = time.monotonic() + LOCK_SECONDS
        pause = 0.002
        # Asked again and again: flock waits without end, or not at all.
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

    async def _load(self, server_url: str) -> _Entry:
        key = _key(server_url)
        unsaved = self._unsaved.get(key)
        try:
            stored = await self._read(key)
        except StoreError:
            if unsaved is None:
                raise
            return unsaved.entry
        if unsaved is not None:
            if unsaved.instead_of in (None, (stored,)):
                return unsaved.entry
            del self._unsaved[key]  # another process could write, and knows better
        return (
            _Entry(server_url=server_url) if stored is None else self._decoded(stored, server_url)
        )

    def _decoded(self, stored: bytes, server_url: str) -> _Entry:
        place = self._place(_key(server_url))
        again = f"log in to {_host(server_url)} again to replace it"
        try:
            if _decode_version(stored).version > _VERSION:
                raise StoreTooNew(f"{place} was written by a newer interlock: update, or {again}")
            entry = _decode(stored)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise StoreCorrupt(f"{place} is damaged: {again}") from None
        if entry.server_url != server_url:
            raise StoreCorrupt(f"{place} belongs to another server: {again}")
        return entry

    async def _change(self, server_url: str, change: Callable[[_Entry], object]) -> None:
        key = _key(server_url)
        try:
            entry = await self._load(server_url)
        except StoreError:
            entry = _Entry(server_url=server_url)  # a new login replaces what cannot be read
        change(entry)
        try:
            await self._write(key, _encode(entry))
        except StoreError:
            self._unsaved[key] = _Unsaved(entry, await self._seen(key))
            raise
        self._unsaved.pop(key, None)

    async def _seen(self, key: str) -> tuple[bytes | None] | None:
        try:
            return (await self._read(key),)
        except StoreError:
            return None

    # Where bytes are

    @abstractmethod
    def _place(self, key: str) -> str:
        """Say where the bytes of a key are, for people."""

    @abstractmethod
    async def _read(self, key: str) -> bytes | None: ...

    @abstractmethod
    async def _write(self, key: str, content: bytes | None) -> None: ...

    def _try_lock(self, key: str) -> Callable[[], object] | None:
        """Take the lock of a key without waiting; return what gives it back, None if taken."""
        mine = object()
        # One step, so that event loops in two threads do not both find it free.
        if self._held.setdefault(key, mine) is not mine:
            return None
        return lambda: self._held.pop(key)


def _put(kept: dict[str, T], issuer: str, value: T) -> None:
    kept.pop(issuer, None)
    kept[issuer] = value
    while len(kept) > MAX_ISSUERS:
        del kept[next(iter(kept))]


def _host(server_url: str) -> str:
    try:
        return urlsplit(server_url).hostname or "the server"
    except ValueError:
        return "the server"


def _key(server_url: str) -> str:
    """Return a name for files and keyrings; it is another one for each URL."""
    readable = re.sub(r"[^a-z0-9.-]", "_", _host(server_url))[:60]
    return f"{readable}-{sha256(server_url.encode()).hexdigest()[:32]}"


class MemoryTokenStore(TokenStore):
    """Logins that end with the process."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, bytes] = {}

    def _place(self, key: str) -> str:
        return f"the entry {key} in memory"

    async def _read(self, key: str) -> bytes | None:
        return self._kept.get(key)

    async def _write(self, key: str, content: bytes | None) -> None:
        if content is None:
            self._kept.pop(key, None)
        else:
            self._kept[key] = content


class UserTokenStore(TokenStore):
    """Logins of this user: in the keyring if there is one, else in files for this user only.

    A keyring is used when the package `keyring` is installed and finds one that encrypts. The
    Windows Credential Manager keeps at most 2,560 bytes for an entry, which the tokens of some
    servers exceed: such a login is an error there, and `keyring=False` the way out.

    Args:
        folder: For the files, and for locks; None is "logins" in the user's data folder. It is
            made when it is needed, with mode 0700.
        keyring: False never asks for one.
    """

    def __init__(self, folder: Path | None = None, *, keyring: bool = True) -> None:
        super().__init__()
        self.folder = folder or user_data_path("interlock") / "logins"
        self._keyring_wanted = keyring
        self._keyring: KeyringBackend | None = None

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _place(self, key: str) -> str:
        if self._keyring is not None:
            return f"the entry {key} of {keyrings.SERVICE!r} in the keyring"
        return str(self._path(key))

    async def _read(self, key: str) -> bytes | None:
        if (keyring := await self._found_keyring()) is not None:
            return await _ask(partial(keyrings.read, keyring, key))
        return await in_thread(partial(private_files.read, self._path(key)))

    async def _write(self, key: str, content: bytes | None) -> None:
        if (keyring := await self._found_keyring()) is not None:
            await _ask(partial(keyrings.write, keyring, key, content))
            content = None  # for the file, from the time before there was a keyring
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
            # Where we cannot write, no other process of ours can: there is nobody to lock out.
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
            self._keyring = await _ask(keyrings.find)
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


async def _ask(work: Callable[[], T]) -> T:
    """Let a keyring work, which may have to ask a person first."""
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
