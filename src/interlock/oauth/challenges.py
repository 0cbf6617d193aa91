"""Parser for `WWW-Authenticate`, the header with which a server refuses a request.

A header contains several challenges, each with parameters in any order. Commas separate both.
Values may be quoted, and then contain commas and names of schemes. Malformed
parts are skipped: the authorization server can be discovered without them.

RFC 9110 section 11.6.1, RFC 6750 section 3, RFC 9449 section 7.1, RFC 9728 section 5.1.
"""

from __future__ import annotations

import re
from enum import IntEnum

from msgspec import Struct

from interlock.text.urls import HTTP_TOKEN

MAX_CHALLENGE = 16_384  # characters that are parsed

# Some servers send unquoted URLs, which the grammar forbids.
_PARAMETER = re.compile(rf'({HTTP_TOKEN.pattern})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_TOKEN68 = re.compile(r"[ \t]+[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))")
_GAP = re.compile(r"[ \t,]*")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # scope-token of RFC 6749


class Dpop(IntEnum):
    """Whether a server accepts tokens that are bound to a key."""

    UNKNOWN = 0
    OFFERED = 1
    REQUIRED = 2


class Challenge(Struct, frozen=True):
    """A server's demands on a token; "" and () for demands that it does not state."""

    resource_metadata: str = ""
    scopes: tuple[str, ...] = ()
    error: str = ""
    dpop: Dpop = Dpop.UNKNOWN


def token_challenge(header: str) -> Challenge:
    """Merge the challenges for a token in a header; the first value of a name counts.

    Args:
        header: The value of `WWW-Authenticate`; several headers are joined by ", ".
    """
    known: dict[str, str] = {}
    schemes: set[str] = set()
    for scheme, parameters in challenges(header):
        if scheme in ("bearer", "dpop"):
            known = {**parameters, **known}
            schemes.add(scheme)
    dpop = Dpop.OFFERED if "bearer" in schemes else Dpop.REQUIRED
    return Challenge(
        known.get("resource_metadata", ""),
        split_scopes(known.get("scope", "")),
        known.get("error", ""),
        dpop if "dpop" in schemes else Dpop.UNKNOWN,
    )


def challenges(header: str) -> list[tuple[str, dict[str, str]]]:
    """Return the schemes and parameters of a header, with all names in lower case."""
    header = header[:MAX_CHALLENGE]
    found: list[tuple[str, dict[str, str]]] = []
    at = 0
    while (at := _end(_GAP, header, at)) < len(header):
        if found and (parameter := _PARAMETER.match(header, at)):
            name, quoted, plain = parameter.groups()
            value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            found[-1][1].setdefault(name.lower(), value)
            at = parameter.end()
        elif scheme := HTTP_TOKEN.match(header, at):
            found.append((scheme.group().lower(), {}))
            at = _end(_TOKEN68, header, scheme.end())
        elif header[at] == '"':
            break  # an unterminated quote: the rest is ambiguous
        else:
            at += 1
    return found


def split_scopes(scope: str) -> tuple[str, ...]:
    """Return the scopes of a `scope` value, without duplicates and invalid ones."""
    return tuple(dict.fromkeys(each for each in scope.split(" ") if _SCOPE.fullmatch(each)))


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
