"""A parser for the header `WWW-Authenticate`, with which a server refuses a request.

A header may contain several challenges, each with parameters in any order. Both challenges and
parameters are separated by commas. Quoted values may contain commas and scheme names. Malformed
parts are skipped, because the authorization server can be discovered without them.

RFC 9110 section 11.6.1, RFC 6750 section 3, RFC 9449 section 7.1, RFC 9728 section 5.1.
"""

from __future__ import annotations

import re
from enum import IntEnum

from msgspec import Struct

from interlock.text.urls import HTTP_TOKEN

MAX_CHALLENGE = 16_384  # characters of a header that are parsed

# Unquoted URLs are accepted, because some servers send them although the grammar forbids it.
_PARAMETER = re.compile(rf'({HTTP_TOKEN.pattern})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
_TOKEN68 = re.compile(r"[ \t]+[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))")
_GAP = re.compile(r"[ \t,]*")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # the syntax of a scope in RFC 6749


class Dpop(IntEnum):
    """Whether a server accepts, or requires, tokens that are bound to a key."""

    UNKNOWN = 0
    OFFERED = 1
    REQUIRED = 2


class Challenge(Struct, frozen=True):
    """A server's requirements on a token. An attribute is "" or () if the server states nothing."""

    resource_metadata: str = ""
    scopes: tuple[str, ...] = ()
    error: str = ""
    dpop: Dpop = Dpop.UNKNOWN


def token_challenge(header: str) -> Challenge:
    """Merge the challenges for a token in a header. If a name is repeated, the first value is used.

    Args:
        header: The value of `WWW-Authenticate`; join several headers with ", ".
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
    """Return each challenge's scheme and parameters, with all names in lower case."""
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
            break  # a quote is not closed, so the remaining text is ambiguous
        else:
            at += 1
    return found


def split_scopes(scope: str) -> tuple[str, ...]:
    """Return the scopes in a `scope` value; duplicates and invalid scopes are dropped."""
    return tuple(dict.fromkeys(each for each in scope.split(" ") if _SCOPE.fullmatch(each)))


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at
