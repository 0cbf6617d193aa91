"""The user's keyring, when the package `keyring` is installed and finds a good one.

All of it blocks, until a person has unlocked the keyring if need be. Keyrings raise what they
like; `error` makes one kind of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.errors import StoreError
from interlock.quoting import clip

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

SERVICE = "interlock"  # under which a keyring shows our entries
WITHOUT = "set PYTHON_KEYRING_BACKEND=keyring.backends.fail.Keyring to keep logins in files"


def find() -> KeyringBackend | None:
    """Return the user's keyring if it encrypts, and asks nothing on the terminal."""
    try:
        from keyring import get_keyring
        from keyring.backends.chainer import ChainerBackend
    except ImportError:
        return None
    found = get_keyring()
    # A chain hands what its best member does not take on to worse ones.
    members = found.backends if isinstance(found, ChainerBackend) else [found]
    return next((member for member in members if member.priority >= 1), None)


def read(keyring: KeyringBackend, key: str) -> bytes | None:
    """Return what is kept for a key, or None."""
    content = keyring.get_password(SERVICE, key)
    return None if content is None else content.encode()


def write(keyring: KeyringBackend, key: str, content: bytes | None) -> None:
    """Keep something for a key; None forgets it."""
    if content is not None:
        keyring.set_password(SERVICE, key, content.decode())
    elif keyring.get_password(SERVICE, key) is not None:
        keyring.delete_password(SERVICE, key)


def error(raised: Exception) -> StoreError:
    """Return what to raise instead of what a keyring raised."""
    from keyring.errors import KeyringError

    # The text of any other error may quote what was to be kept.
    text = str(raised) if isinstance(raised, KeyringError) else ""
    return StoreError(
        f"the keyring cannot be used: {clip(text) or type(raised).__name__}; {WITHOUT}"
    )
