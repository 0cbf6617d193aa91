"""The names of people in audit records, which can be replaced by pseudonyms.

A record's hash covers the pseudonym in place of each name. So a name can be replaced by its
pseudonym, as `interlock people forget` does, and the record keeps its hash. Every other change of
a name is noticed. The column `people` lists the names in a record's body as a JSON array.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from interlock.auth.gateway_key import GatewayKey

FORGOTTEN = "forgotten:"  # begins each pseudonym, and no name of a principal
_PURPOSE = "pseudonyms"  # the use of the key from which pseudonyms are derived
_MAX_KNOWN = 10_000
_MEMBERS = frozenset(("user", "of", "by", "caller"))  # the members of bodies that name a person

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[str]).decode


class Pseudonyms(dict[str, str]):
    """The pseudonym of each name, which only a process with the gateway's key can derive."""

    def __init__(self, key: GatewayKey) -> None:
        self._key = key.derive(_PURPOSE)

    def __missing__(self, name: str) -> str:
        pseudonym = name
        if name and not name.startswith(FORGOTTEN):
            digest = hmac.digest(self._key, name.encode(errors="surrogateescape"), sha256)
            pseudonym = f"{FORGOTTEN}{digest[:8].hex()}"
        if len(self) >= _MAX_KNOWN:
            self.clear()
        self[name] = pseudonym
        return pseudonym

    def covered(self, columns: Sequence[Any], body: str) -> tuple[tuple[Any, ...], str]:
        """Return the columns from `at` to `reason` and the body as a record's hash covers them.

        Raises:
            ValueError: The column `people` is not a JSON array of text.
        """
        at, tenant, kind, call, user, people, *rest = columns
        if people:
            named = names_in(people)
            body, people = self.replaced(named, body), self.replaced(named, people)
        return (at, tenant, kind, call, self[user], people, *rest), body

    def replaced(self, people: Iterable[str], text: str) -> str:
        """Return JSON text with the pseudonyms of these people in place of their names."""
        for name in people:
            text = text.replace(quoted(name), quoted(self[name]))
        return text


def people_in(body: Any) -> tuple[str, ...]:
    """Return the names of people in the body of a record, without duplicates."""
    return tuple(dict.fromkeys(_names(body)))


def names_in(people: str) -> list[str]:
    """Return the names in a value of the column `people`.

    Raises:
        ValueError: The value is not a JSON array of text.
    """
    return _decode(people) if people else []


def listed(names: Iterable[str]) -> str:
    """Return names as in the column `people`."""
    return _encode(names).decode() if names else ""


def quoted(name: str) -> str:
    """Return a name as it stands in JSON text."""
    return _encode(name).decode()


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for member, each in value.items():
            if member in _MEMBERS and isinstance(each, str) and ":" in each:  # an id of a principal
                yield each
            else:
                yield from _names(each)
