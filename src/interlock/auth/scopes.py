"""Comparison of scopes, such as `mcp:*`, `mcp:read`, `mcp:SERVER:*` and `admin:read`."""

from __future__ import annotations

from collections.abc import Iterable


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


def _within(scopes: frozenset[str], wide: frozenset[str]) -> frozenset[str]:
    return frozenset(scope for scope in scopes if any(covers(each, scope) for each in wide))
