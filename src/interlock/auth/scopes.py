"""Comparison of scopes, such as `mcp:*`, `mcp:read`, `mcp:SERVER:*` and `admin:read`."""

from __future__ import annotations

import re
from collections.abc import Iterable

SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # scope-token of RFC 6749
_STATED = re.compile(r',?[ ]*\b(error|scope)="([^"]*)"')


def covers(wide: str, scope: str) -> bool:
    """Return whether a scope includes another scope."""
    if wide == scope or (wide == "mcp:*" and scope.startswith("mcp:")):
        return True
    server, _, pattern = wide.removeprefix("mcp:").partition(":")
    return wide.startswith("mcp:") and pattern == "*" and scope.startswith(f"mcp:{server}:")


def intersection(one: Iterable[str], other: Iterable[str]) -> frozenset[str]:
    """Return the scopes of each side that a scope of the other side includes.

    What neither side can say in one scope, such as reading from one server only, is left out.
    """
    one, other = frozenset(one), frozenset(other)
    return _within(one, other) | _within(other, one)


def words_in(claim: object) -> frozenset[str]:
    """Return the words of a claim, which may be a text or a list of texts."""
    if isinstance(claim, str):
        return frozenset(claim.split())
    if isinstance(claim, list):
        return frozenset(each for each in claim if isinstance(each, str))
    return frozenset()


def _within(scopes: frozenset[str], wide: frozenset[str]) -> frozenset[str]:
    return frozenset(scope for scope in scopes if any(covers(each, scope) for each in wide))


def scope_challenge(challenge: str, scopes: Iterable[str]) -> str:
    """Return a `WWW-Authenticate` header that asks the client to request further scopes.

    Return "" if the credentials are not tokens, which alone have scopes that a client can request.

    Args:
        challenge: The header for a request without a credential; it may state scopes.
        scopes: The scopes that the request needs in addition.
    """
    scheme, _, rest = challenge.partition(" ")
    if scheme.lower() not in ("bearer", "dpop"):
        return ""
    stated = dict(_STATED.findall(rest)).get("scope", "").split()
    others = _STATED.sub("", rest).strip(", ")
    needed = " ".join(dict.fromkeys([*stated, *scopes]))
    members = ('error="insufficient_scope"', others, f'scope="{needed}"')
    return f"{scheme} {', '.join(each for each in members if each)}"
