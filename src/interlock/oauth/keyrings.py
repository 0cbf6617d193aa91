"""The user's keyring, when the package `keyring` is installed and finds one that encrypts.

Every function blocks until the user has unlocked the keyring. Keyrings raise
exceptions of any class; `error` converts them to `StoreError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.errors import StoreError
from interlock.text.quoting import clip

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE = "interlock"  # the name under which a keyring lists the entries
WITHOUT = "set PYTHON_KEYRING_BACKEND=keyring.backends.fail.Keyring to keep logins in files"


def find() -> KeyringBackend | None:
    """Return the user's keyring if it encrypts and does not prompt on the terminal."""
    try:
        from keyring import get_keyring
        from keyring.backends.chainer import ChainerBackend
    except ImportError:
        return None
    found = get_keyring()
    # Only the best member of a chain is used: the chain would store what this member rejects in
    # a worse one.
    members = found.backends if isinstance(found, ChainerBackend) else [found]
    return next((member for member in members if member.priority >= 1), None)


def read(keyring: KeyringBackend, key: str) -> bytes | None:
    """Return the content of an entry, or None."""
    content = keyring.get_password(SERVICE, key)
    return None if content is None else content.encode()


def write(keyring: KeyringBackend, key: str, content: bytes | None) -> None:
    """Write an entry; None deletes it."""
    if content is not None:
        keyring.set_password(SERVICE, key, content.decode())
    elif keyring.get_password(SERVICE, key) is not None:
        keyring.delete_password(SERVICE, key)


def error(raised: Exception) -> StoreError:
    """Return the `StoreError` for an exception of a keyring."""
    from keyring.errors import KeyringError

    # Texts of other exceptions are omitted, because they may quote the secret.
    text = str(raised) if isinstance(raised, KeyringError) else ""
    return StoreError(
        f"the keyring cannot be used: {clip(text) or type(raised).__name__}; {WITHOUT}"
    )
