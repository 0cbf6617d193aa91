"""Logins that are kept: tokens and registrations, by issuer and server URL.

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
import fcntl
import os
import re
import stat
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from interlock.errors import StoreCorrupt, StoreError, StoreLocked, StoreTooNew
from interlock.oauth.threads import in_thread

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

LEEWAY = 60.0  # seconds before its end from which a token counts as expired
LOCK_SECONDS = 30.0
KEYRING_SECONDS = 60.0  # a person may have to unlock it
MAX_FILE_BYTES = 1_048_576
MAX_ISSUERS = 8  # for one server; the oldest is forgotten
SERVICE = "interlock"  # under which a keyring shows our entries

T = TypeVar("T")


class Tokens(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a token endpoint gave out.

    Attributes:
        access_token: A secret.
        refresh_token: A secret; "" for none.
        token_type: As the endpoint wrote it.
        expires_at: Wall clock, seconds; None if the endpoint did not say.
        received_at: Wall clock, seconds; 0 if unknown.
        scope: Scopes granted, separated by blanks; "" if never said.
        issuer: The authorization server, as its metadata spells it.
        resource: The `resource` of the token request, verbatim.
        client_id: To whom they were given.
        token_endpoint: Where they came from and are refreshed.
    """

    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - no secret
    refresh_token: str = ""
    expires_at: float | None = None
    received_at: float = 0.0
    scope: str = ""
    issuer: str = ""
    resource: str = ""
    client_id: str = ""
    token_endpoint: str = ""

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

    def __rich_repr__(self) -> list[tuple[str, object]]:
        shown = ("issuer", "resource", "scope", "expires_at")
        return [(name, getattr(self, name)) for name in shown]

    def __repr__(self) -> str:
        return _shown(self)


class Registration(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who we are for one issuer, as its registration endpoint said.

    Attributes:
        client_secret: A secret; "" for none.
        client_secret_expires_at: Wall clock, seconds; 0 for never.
    """

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

    def __rich_repr__(self) -> list[tuple[str, object]]:
        shown = ("issuer", "client_id", "token_endpoint_auth_method", "redirect_uris")
        return [(name, getattr(self, name)) for name in shown]

    def __repr__(self) -> str:
        return _shown(self)


def _shown(struct: Tokens | Registration) -> str:
    fields = ", ".join(f"{name}={value!r}" for name, value in struct.__rich_repr__())
    return f"{type(struct).__name__}({fields})"


class _Entry(Struct, kw_only=True, repr_omit_defaults=True):
    """All that is kept for one server URL. The issuer that was used last comes last."""

    version: int = 1
    server_url: str
    tokens: dict[str, Tokens] = {}
    registrations: dict[str, Registration] = {}

    def __repr__(self) -> str:
        return f"_Entry(tokens={[*self.tokens]}, registrations={[*self.registrations]})"


class _Version(Struct):
    version: int


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
        self._locks: dict[str, threading.Lock] = {}
        # What could not be written, and what was there instead at that moment.
        self._unsaved: dict[str, tuple[bytes | None, _Entry]] = {}

    # Tokens

    async def load_tokens(self, server_url: str, issuer: str | None = None) -> Tokens | None:
        """Return the tokens for a server, or None.

        Args:
            server_url: As it was given when they were saved.
            issuer: Who gave them out; None takes those that were saved last.

        Raises:
            StoreError: They cannot be read; a `StoreCorrupt` is cured by `delete`.
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
        entry = await self._load_or_begin(server_url)
        _put(entry.tokens, tokens.issuer, tokens)
        await self._save(server_url, entry)

    async def delete_tokens(self, server_url: str) -> None:
        """Forget the tokens of all issuers for a server; registrations stay.

        Raises:
            StoreError: The place cannot be written.
        """
        entry = await self._load_or_begin(server_url)
        entry.tokens.clear()
        await self._save(server_url, entry)

    # Registrations

    async def load_registration(self, server_url: str, issuer: str) -> Registration | None:
        """Return who we are for an issuer when we log in to a server, or None.

        Raises:
            StoreError: It cannot be read; a `StoreCorrupt` is cured by `delete`.
        """
        return (await self._load(server_url)).registrations.get(issuer)

    async def save_registration(self, server_url: str, registration: Registration) -> None:
        """Keep a registration under its issuer, instead of the one that is there.

        Raises:
            StoreError: It cannot be written. `load_registration` gives it in this process.
        """
        entry = await self._load_or_begin(server_url)
        _put(entry.registrations, registration.issuer, registration)
        await self._save(server_url, entry)

    async def delete_registration(self, server_url: str, issuer: str) -> None:
        """Forget who we are for an issuer, and what it gave us.

        Raises:
            StoreError: The place cannot be written.
        """
        entry = await self._load_or_begin(server_url)
        entry.registrations.pop(issuer, None)
        entry.tokens.pop(issuer, None)
        await self._save(server_url, entry)

    # Both

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
        """
        key = _key(server_url)
        deadline = time.monotonic() + LOCK_SECONDS
        pause = 0.002
        while (release := self._try_lock(key)) is None:
            if time.monotonic() > deadline:
                raise StoreLocked(
                    f"another login at {_host(server_url)} has not ended for "
                    f"{LOCK_SECONDS:g} s: end the other program, or try again"
                )
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.1)
        try:
            yield
        finally:
            release()

    # Between entries and bytes

    async def _load(self, server_url: str) -> _Entry:
        key = _key(server_url)
        stored = await self._read(key)
        if key in self._unsaved:
            before, entry = self._unsaved[key]
            if before == stored:
                return entry
            del self._unsaved[key]  # another process could write, and knows better
        if stored is None:
            return _Entry(server_url=server_url)
        return self._decoded(stored, server_url)

    async def _load_or_begin(self, server_url: str) -> _Entry:
        try:
            return await self._load(server_url)
        except (StoreCorrupt, StoreTooNew):
            return _Entry(server_url=server_url)

    def _decoded(self, stored: bytes, server_url: str) -> _Entry:
        place = self._place(_key(server_url))
        again = f"log in to {_host(server_url)} again to replace it"
        try:
            version = _decode_version(stored).version
            if version > _VERSION:
                raise StoreTooNew(f"{place} was written by a newer interlock: update, or {again}")
            entry = _decode(stored)
        # What msgspec says may quote what is in the file.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise StoreCorrupt(f"{place} is damaged: {again}") from None
        if entry.server_url != server_url:
            raise StoreCorrupt(f"{place} belongs to another server: {again}")
        return entry

    async def _save(self, server_url: str, entry: _Entry) -> None:
        key = _key(server_url)
        try:
            await self._write(key, _encode(entry))
        except StoreError:
            with suppress(StoreError):
                self._unsaved[key] = (await self._read(key), entry)
            raise
        self._unsaved.pop(key, None)

    # Where bytes are

    @abstractmethod
    def _place(self, key: str) -> str:
        """Say where the bytes of a key are, for people."""

    @abstractmethod
    async def _read(self, key: str) -> bytes | None: ...

    @abstractmethod
    async def _write(self, key: str, content: bytes | None) -> None: ...

    def _try_lock(self, key: str) -> Callable[[], None] | None:
        """Take the lock of a key without waiting; return what gives it back, None if taken."""
        lock = self._locks.setdefault(key, threading.Lock())
        return lock.release if lock.acquire(blocking=False) else None


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
    readable = re.sub(r"[^a-z0-9.-]", "_", _host(server_url))[:60].strip(".")
    return f"{readable or 'server'}-{sha256(server_url.encode()).hexdigest()[:32]}"


class MemoryTokenStore(TokenStore):
    """Logins that end with the process."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, bytes] = {}

    def _place(self, key: str) -> str:
        return f"the entry {key!r} in memory"

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
        self._folder = folder
        self._keyring_wanted = keyring
        self._keyring_found: KeyringBackend | None = None

    @property
    def folder(self) -> Path:
        """The folder for files and locks."""
        if self._folder is None:
            from platformdirs import user_data_path

            self._folder = user_data_path("interlock") / "logins"
        return self._folder

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _place(self, key: str) -> str:
        if self._keyring_found is not None:
            return f"the entry {key!r} of {SERVICE!r} in the keyring"
        return str(self._path(key))

    async def _read(self, key: str) -> bytes | None:
        if (keyring := await self._keyring()) is not None:
            return await _ask(partial(_read_keyring, keyring, key))
        return await in_thread(partial(_read_file, self._path(key)))

    async def _write(self, key: str, content: bytes | None) -> None:
        path = self._path(key)
        if (keyring := await self._keyring()) is not None:
            await _ask(partial(_write_keyring, keyring, key, content))
            content = None  # a file from the time before there was a keyring
        await in_thread(partial(_write_file, path, content))

    def _try_lock(self, key: str) -> Callable[[], None] | None:
        release = super()._try_lock(key)
        if release is None:
            return None
        try:
            descriptor = _lock_file(self.folder / f"{key}.lock")
        except BlockingIOError:
            release()
            return None
        except OSError:
            # Where we cannot write, no other process can: nobody is there to be locked out.
            return release
        except BaseException:
            release()
            raise

        def release_both() -> None:
            # Unlocked before it is closed: a forked process may have a copy of the descriptor.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)
            release()

        return release_both

    async def _keyring(self) -> KeyringBackend | None:
        if self._keyring_wanted:
            self._keyring_found = await _ask(_find_keyring)
            self._keyring_wanted = False
        return self._keyring_found


# Files


def _read_file(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        if path.is_symlink():
            raise StoreError(f"{path} is a symbolic link, and is not followed: delete it") from None
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(f"{path} is not a file: delete it")
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise StoreError(
                f"{path} is open to other users: chmod 600 it if nobody else can have written "
                "to it, else delete it"
            )
        try:
            content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise StoreCorrupt(f"{path} is over {MAX_FILE_BYTES:,} bytes: delete it, and log in again")
    return content


def _write_file(path: Path, content: bytes | None) -> None:
    try:
        if content is None:
            path.unlink(missing_ok=True)
        else:
            _make_folder(path.parent)
            _replace(path, content)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written: {error.strerror}; the login ends with this program"
        ) from None


def _make_folder(folder: Path) -> None:
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise StoreError(f"other users can write to {folder}: make it yours, with chmod 700")


def _replace(path: Path, content: bytes) -> None:
    """Write a file so that it is the old one or the new one, also after a power cut."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _lock_file(path: Path) -> int:
    """Lock a file and return its descriptor; BlockingIOError if another process has it."""
    _make_folder(path.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


# Keyrings


async def _ask(work: Callable[[], T]) -> T:
    """Let a keyring work, which may have to ask a person first."""
    try:
        async with asyncio.timeout(KEYRING_SECONDS):
            return await in_thread(work)
    except TimeoutError:
        raise StoreLocked(
            f"the keyring has not answered for {KEYRING_SECONDS:g} s: unlock it, "
            f"or {_WITHOUT_KEYRING}"
        ) from None
    except StoreError:
        raise
    except Exception as error:
        raise _keyring_error(error) from None


_WITHOUT_KEYRING = (
    "set PYTHON_KEYRING_BACKEND=keyring.backends.fail.Keyring to keep logins in files"
)


def _keyring_error(error: Exception) -> StoreError:
    from keyring.errors import KeyringError

    # Others may quote what was to be kept.
    reason = f"{error}" if isinstance(error, KeyringError) and str(error) else type(error).__name__
    return StoreError(f"the keyring cannot be used: {' '.join(reason.split())}; {_WITHOUT_KEYRING}")


def _find_keyring() -> KeyringBackend | None:
    """Return the user's keyring if it encrypts, and works without asking on the terminal."""
    try:
        from keyring import get_keyring
        from keyring.backends.chainer import ChainerBackend
    except ImportError:
        return None
    found = get_keyring()
    # A chain would hand a secret on to its less secure members.
    members = found.backends if isinstance(found, ChainerBackend) else [found]
    return next((member for member in members if member.priority >= 1), None)


def _read_keyring(keyring: KeyringBackend, key: str) -> bytes | None:
    content = keyring.get_password(SERVICE, key)
    return None if content is None else content.encode()


def _write_keyring(keyring: KeyringBackend, key: str, content: bytes | None) -> None:
    if content is not None:
        keyring.set_password(SERVICE, key, content.decode())
    elif keyring.get_password(SERVICE, key) is not None:
        keyring.delete_password(SERVICE, key)
