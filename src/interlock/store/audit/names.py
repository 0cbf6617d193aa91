"""The names of people in audit records, which can be replaced by pseudonyms.

A record's hash covers the pseudonym in place of each name. So a name can be replaced by its
pseudonym, as `interlock people forget` does, and the record keeps its hash. Every other change of
a name is noticed. Names are in the column `user`, and in some members of bodies.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from interlock.auth.gateway_key import TrailKey
from interlock.types import JsonObject

FORGOTTEN = "forgotten:"  # begins each pseudonym, and no name of a principal
# Records of calls, whose bodies name nobody, but may contain what callers sent.
OF_CALLS = frozenset(("intent", "outcome", "refused", "unfinished"))
_PURPOSE = "pseudonyms"  # the use of the key from which pseudonyms are derived
_MAX_KNOWN = 10_000
_MEMBERS = frozenset(("user", "of", "by", "caller", "approvers"))  # name principals
_encode = msgspec.json.Encoder().encode


class Pseudonyms(dict[str, str]):
    """The pseudonym of each name, which only a process with the gateway's key can derive."""

    def __init__(self, key: TrailKey) -> None:
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
        """Return the columns from `at` to `reason` and the body as a record's hash covers them."""
        at, tenant, kind, call, user, *rest = columns
        return (at, tenant, kind, call, self[user], *rest), self.covered_body(kind, body)

    def covered_body(self, kind: str, body: str) -> str:
        """Return the body of a record of this kind as its hash covers it."""
        return body if kind in OF_CALLS else self.replaced(people_in(body), body)

    def replaced(self, people: Iterable[str], text: str) -> str:
        """Return JSON text with the pseudonyms of these people in place of their names."""
        for name in people:
            text = text.replace(quoted(name), quoted(self[name]))
        return text


def people_in(body: str | bytes) -> tuple[str, ...]:
    """Return the names of principals in the body of a record that does not belong to a call."""
    try:
        return tuple(dict.fromkeys(_names(msgspec.json.decode(body))))
    except (ValueError, RecursionError):  # the record was tampered with
        return ()


def people_of(record: JsonObject) -> tuple[str, ...]:
    """Return the names of principals in a record, as `records.as_object` returns it."""
    if record.get("kind") in OF_CALLS:
        return (record.get("user", ""),)
    return tuple(dict.fromkeys(_names(record)))


def quoted(name: str) -> str:
    """Return a name as it stands in JSON text."""
    return _encode(name).decode()


def _names(value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for member, each in value.items():
        if member in _MEMBERS:
            named = each if isinstance(each, list) else [each]
            yield from (name for name in named if isinstance(name, str) and ":" in name)
        elif member != "arguments":  # what callers sent
            yield from _names(each)
