"""The user's keyring, if the package `keyring` is installed and finds a keyring that encrypts.

Every function may block until the user has unlocked the keyring. Keyrings can raise any exception;
`error` converts it to a `StoreError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.errors import StoreError
from interlock.text.quoting import clip

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE = "interlock"  # the service name of the entries in the keyring
WITHOUT = "set PYTHON_KEYRING_BACKEND=keyring.backends.fail.Keyring to keep logins in files"


def find() -> KeyringBackend | None:
    """Return the user's keyring; None if it does not encrypt, or prompts on the terminal."""
    try:
        from keyring import get_keyring
        from keyring.backends.chainer import ChainerBackend
    except ImportError:
        return None
    found = get_keyring()
    # Of a chain of keyrings, use only the best. If the best keyring rejects an entry, the chain
    # would store the entry in a worse keyring.
    members = found.backends if isinstance(found, ChainerBackend) else [found]
    return next((member for member in members if member.priority >= 1), None)


def read(keyring: KeyringBackend, key: str) -> bytes | None:
    """Return the content of an entry; None if the entry does not exist."""
    content = keyring.get_password(SERVICE, key)
    return None if content is None else content.encode()


def write(keyring: KeyringBackend, key: str, content: bytes | None) -> None:
    """Write an entry; delete it if `content` is None."""
    if content is not None:
        keyring.set_password(SERVICE, key, content.decode())
    elif keyring.get_password(SERVICE, key) is not None:
        keyring.delete_password(SERVICE, key)


def error(raised: Exception) -> StoreError:
    """Return a `StoreError` for an exception that a keyring raised."""
    from keyring.errors import KeyringError

    # Other exceptions' texts are left out, because they may quote the secret.
    text = str(raised) if isinstance(raised, KeyringError) else ""
    return StoreError(
        f"the keyring cannot be used: {clip(text) or type(raised).__name__}; {WITHOUT}"
    )
