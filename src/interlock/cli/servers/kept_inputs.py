"""Stores the user's answers to `${input:ID}` in the keyring, each for one server.

An answer belongs to the server's entry at the time of the answer. If its command, URL or a variable
changes, the user is asked again, so that no other program gets what was typed for this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from interlock.config import ServerConfig, variables
from interlock.oauth import keyrings

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

# Members of an entry that decide who gets an answer.
_PLACES = (
    "object",
    "command",
    "args",
    "env",
    "env_file",
    "cwd",
    "url",
    "type",
    "headers",
    "oauth",
    "openapi",
)


class KeptInputs:
    """The stored answers in a keyring."""

    def __init__(self, keyring: KeyringBackend) -> None:
        self._keyring = keyring

    @classmethod
    def find(cls) -> KeptInputs | None:
        """Return the answers in the user's keyring; None if no keyring encrypts its content."""
        keyring = keyrings.find()
        return None if keyring is None else cls(keyring)

    def load(self, server: ServerConfig, id: str) -> str | None:
        """Return the answer to a server's input; None if no answer is stored.

        Raises:
            StoreError: The keyring cannot be read.
        """
        try:
            found = keyrings.read(self._keyring, _key(server, id))
        except Exception as error:
            raise keyrings.error(error) from error
        return None if found is None else found.decode()

    def save(self, server: ServerConfig, id: str, answer: str | None) -> None:
        """Store an answer; delete the stored answer if `answer` is None.

        Raises:
            StoreError: The keyring cannot be written.
        """
        try:
            content = None if answer is None else answer.encode()
            keyrings.write(self._keyring, _key(server, id), content)
        except Exception as error:
            raise keyrings.error(error) from error


def forget(servers: Iterable[ServerConfig]) -> int:
    """Delete all stored answers for these servers; return how many were deleted.

    Raises:
        StoreError: The keyring cannot be used.
    """
    gone = 0
    wanted = [(server, id) for server in servers for id in ids_of(server)]
    kept = KeptInputs.find() if wanted else None
    for server, id in wanted if kept is not None else ():
        if kept is not None and kept.load(server, id) is not None:
            kept.save(server, id, None)
            gone += 1
    return gone


def ids_of(server: ServerConfig) -> list[str]:
    """Return the ids of the inputs that a server uses, each once."""
    text = msgspec.json.encode(server).decode()
    return list(dict.fromkeys(variables.input_names(text)))


def _key(server: ServerConfig, id: str) -> str:
    entry = {name: getattr(server, name) for name in _PLACES if hasattr(server, name)}
    return f"input {sha256(msgspec.json.encode(entry)).hexdigest()[:32]} {id}"
