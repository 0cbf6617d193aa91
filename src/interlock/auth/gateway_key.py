"""A gateway's secret key, and the keys derived from it.

The secret is 32 random bytes, written as 64 hexadecimal digits. It is read from the environment
variable INTERLOCK_KEY, or else from the file `gateway.key`, which is created on first use and
readable only by its owner. Each purpose has its own derived key, so that no key reveals another.

A key can be replaced. The new one then remembers what is still needed of the old one: the keys of
the audit records that were written with it.
"""

from __future__ import annotations

import hmac
import os
import secrets
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

from interlock.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VARIABLE = "INTERLOCK_KEY"
FILE_NAME = "gateway.key"
NEXT = f"{FILE_NAME}.next"  # the file of a key that will replace it
# The purposes for which keys are remembered after their secret was replaced: the hashes of audit
# records and of their copies, and the values in accepted launch commands.
_REMEMBERED = ("audit chain", "audit copy", "pseudonyms", "arguments", "launch")
_INHERITED = "launch"  # the purpose for which the first secret stays in use: see `derive`
_BYTES = 32
_NONCE_BYTES = 12
_MIN_DIFFERENT = 12  # distinct bytes; 32 random bytes practically always have more


class RetiredKey(Struct, frozen=True):
    """The rest of a key that was replaced. It can neither decrypt nor sign.

    Attributes:
        fingerprint: The fingerprint of the key.
        retired: When the key was replaced, in microseconds since 1970.
        derived: Derived keys by purpose.
        writers: The ids of the audit writers that used the key.
    """

    fingerprint: str
    retired: int
    derived: dict[str, bytes]
    writers: frozenset[str]

    def derive(self, purpose: str) -> bytes:
        return self.derived[purpose]

    def sealed(self, key: GatewayKey) -> bytes:
        """Return this, encrypted with the key that replaces it."""
        return key.seal("retired key", msgspec.json.encode(self), self.fingerprint.encode())

    @classmethod
    def opened(cls, sealed: bytes, fingerprint: str, key: GatewayKey) -> RetiredKey:
        """Return what `sealed` has encrypted.

        Raises:
            ConfigError: It was changed, or belongs to another key.
        """
        content = key.unseal("retired key", sealed, fingerprint.encode())
        if content is None:
            raise ConfigError(
                f"what is remembered of gateway key {fingerprint[:8]}… was changed, or was not"
                " written with this key: restore a backup of the database"
            )
        return msgspec.json.decode(content, type=cls)


class GatewayKey:
    """Derives keys from a secret. No repr and no error text contains the secret.

    Args:
        secret: The secret, 32 random bytes.

    Attributes:
        retired: The keys that this one replaced, the oldest first; set when the database is opened.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != _BYTES:
            raise ConfigError(f"a gateway key has {_BYTES} bytes, not {len(secret)}")
        if len(set(secret)) < _MIN_DIFFERENT:
            raise ConfigError("the gateway key is too weak: use 32 random bytes, as 64 hex digits")
        self._secret = secret
        self.retired: Sequence[RetiredKey] = ()
        self._ciphers: dict[str, AESGCM] = {}  # by purpose
        self._hint = ""  # what else to do if a database belongs to another key

    @classmethod
    def load(cls, folder: Path) -> GatewayKey:
        """Load the key from INTERLOCK_KEY, or else from `gateway.key`, which is created if missing.

        Args:
            folder: The folder of the file `gateway.key`.

        Raises:
            ConfigError: The key is malformed or weak, or other users can read its file, or the file
                cannot be read or created.
        """
        text = os.environ.get(VARIABLE, "").strip()
        if text:
            return cls.from_text(text, VARIABLE)
        path = folder / FILE_NAME
        if not path.exists():
            with suppress(FileExistsError):  # another process has just created it
                cls.random().write(path)
        key = cls.read(path)
        key._hint = f", or put that key into {path}"
        if path.with_name(NEXT).exists():
            key._hint = ", or run `interlock db rotate-key` again, which was interrupted"
        return key

    @classmethod
    def read(cls, path: Path) -> GatewayKey:
        """Read the key in a file.

        Raises:
            ConfigError: The key is malformed or weak, or other users can read its file, or the file
                cannot be read.
        """
        try:
            return cls(_decode(_read(path), str(path)))
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}") from None

    @classmethod
    def from_text(cls, text: str, place: str) -> GatewayKey:
        """Return the key that a text states in hexadecimal; `place` is named in errors.

        Raises:
            ConfigError: The key is malformed or weak.
        """
        return cls(_decode(text.strip(), place))

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether a key exists, so that `load` need not create one."""
        return bool(os.environ.get(VARIABLE, "").strip()) or (folder / FILE_NAME).exists()

    @classmethod
    def random(cls) -> GatewayKey:
        """Return a new key that is not stored."""
        return cls(secrets.token_bytes(_BYTES))

    def write(self, path: Path) -> None:
        """Write the key to a new file, which only its owner can read, completely or not at all.

        Raises:
            FileExistsError: The file exists.
            ConfigError: The file cannot be created.
        """
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            try:
                with os.fdopen(descriptor, "w") as file:  # mkstemp made it readable by its owner
                    file.write(self._secret.hex() + "\n")
                    file.flush()
                    os.fsync(descriptor)
                os.link(temporary, path)
            finally:
                Path(temporary).unlink(missing_ok=True)
        except FileExistsError:
            raise
        except OSError as error:
            raise ConfigError(f"{path} cannot be created: {error.strerror}") from None

    @cached_property
    def id(self) -> str:
        """The key's public id, which reveals nothing about the key."""
        return self.fingerprint[:8]

    @cached_property
    def fingerprint(self) -> str:
        """A longer public id, which no other key has: 32 hexadecimal digits."""
        return self.derive("id")[:16].hex()

    def check_owner(self, fingerprint: str, database: str) -> None:
        """Check that a database belongs to this key.

        Args:
            fingerprint: The fingerprint of the key that the database belongs to.
            database: The location of the database, for the error.

        Raises:
            ConfigError: The database belongs to another key.
        """
        if fingerprint != self.fingerprint:
            raise ConfigError(
                f"{database}: this database belongs to gateway key {fingerprint[:8]}…; set the same"
                f" {VARIABLE}{self._hint}"
            )

    def derive(self, purpose: str) -> bytes:
        """Return the 32-byte key for a purpose, such as "seal" or "arguments".

        The hashes in accepted launch commands cannot be computed again when the secret is replaced,
        because nobody knows the values. So their key stays that of the first secret.
        """
        if purpose == _INHERITED and self.retired:
            return self.retired[0].derive(purpose)
        return hmac.digest(self._secret, b"interlock " + purpose.encode(), "sha256")

    def of(self, writer: str) -> TrailKey:
        """Return the key of an audit writer: this one, or the one that it replaced."""
        return next((each for each in self.retired if writer in each.writers), self)

    def retire(self, writers: Iterable[str], now: int) -> RetiredKey:
        """Return what is remembered of this key, which audit writers have used, at its end."""
        derived = {purpose: self.derive(purpose) for purpose in _REMEMBERED}
        return RetiredKey(self.fingerprint, now, derived, frozenset(writers))

    def seal(self, purpose: str, content: bytes, bound_to: bytes) -> bytes:
        """Encrypt content with AES-256-GCM and the key for a purpose.

        Args:
            purpose: The purpose; see `derive`.
            content: The bytes to encrypt.
            bound_to: The place of the content, such as a row's id; `unseal` needs the same place.

        Raises:
            MissingExtra: The package cryptography is not installed.
        """
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher(purpose).encrypt(nonce, content, bound_to)

    def unseal(self, purpose: str, sealed: bytes, bound_to: bytes) -> bytes | None:
        """Decrypt the content from `seal`; return None if key, purpose, place or content differ."""
        cipher = self._cipher(purpose)
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
        except (InvalidTag, ValueError, TypeError):  # TypeError: SQLite can contain text instead
            return None

    def _cipher(self, purpose: str) -> AESGCM:
        if (known := self._ciphers.get(purpose)) is not None:
            return known
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ModuleNotFoundError as error:
            raise MissingExtra("encrypting the gateway's stored secrets", "serve") from error
        made = self._ciphers[purpose] = AESGCM(self.derive(purpose))
        return made

    def sign(self, message: bytes) -> bytes:
        """Sign a message with Ed25519.

        Raises:
            MissingExtra: The package cryptography is not installed.
        """
        return self._signing_key.sign(message)

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        """Return whether a signature of a message was made with this key."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._signing_key.public_key().verify(signature, message)
        except InvalidSignature:
            return False
        return True

    @cached_property
    def _signing_key(self) -> Ed25519PrivateKey:
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ModuleNotFoundError as error:
            raise MissingExtra("signing the audit trail", "serve") from error
        return Ed25519PrivateKey.from_private_bytes(self.derive("signature"))

    def __repr__(self) -> str:
        return f"GatewayKey({self.id})"


TrailKey: TypeAlias = GatewayKey | RetiredKey


def _decode(text: str, place: str) -> bytes:
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        raise ConfigError(
            f"{place} is not a gateway key: it must be {2 * _BYTES} hexadecimal digits, such as"
            " `openssl rand -hex 32` prints"
        )
    return secret


def _read(path: Path) -> str:
    with path.open() as file:
        mode = os.fstat(file.fileno()).st_mode & 0o777
        if mode & 0o077:
            raise ConfigError(
                f"{path} can be read by other users (mode {mode:03o}): run `chmod 600 {path}`"
            )
        return file.read(1_000).strip()
