"""The lists of a server that each user sees with a credential of their own.

A server may offer different tools to different users. The toolbox has one list for all, so it is
merged: the newest definition of each item that any user's list has.
"""

from __future__ import annotations

from typing import Any, TypeVar

from interlock.client.listing import Kind, Listing

MAX_USERS = 1_000  # whose lists are kept; beyond it, those that were listed first are forgotten

_T = TypeVar("_T")


class UserLists:
    """The lists of one server."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, frozenset[str]]] = {}  # names by owner and kind
        self._merged: dict[str, Listing[Any]] = {}  # by kind

    def has(self, owner: str) -> bool:
        """Return whether a user's tools were listed."""
        return owner in self._seen

    def sees(self, owner: str, kind: str, name: str) -> bool:
        """Return whether a user's list has an item.

        While a user's lists are unknown, the user sees the tools and prompts of the others, but
        not their resources, whose names may be private.

        Args:
            owner: The user.
            kind: "tools", "resources" or "prompts".
            name: As the server names it; of a resource, its URI or URI template.
        """
        seen = self._seen.get(owner)
        if seen is None:
            return kind != "resources"
        return any(name in seen.get(each, ()) for each in _MEMBERS[kind])

    def merge(self, kind: Kind[_T], owner: str, listing: Listing[_T]) -> Listing[_T]:
        """Replace a user's list; return the items of all users."""
        of_owner = self._seen.setdefault(owner, {})
        of_owner[kind.member] = frozenset(map(kind.key, listing))
        while len(self._seen) > MAX_USERS:
            del self._seen[next(iter(self._seen))]
        others = frozenset[str]().union(
            *(seen.get(kind.member, ()) for each, seen in self._seen.items() if each != owner)
        )
        merged: Listing[_T] = Listing()
        merged.extend(listing)
        merged.definitions = list(listing.definitions)
        merged.ttl, merged.truncated = listing.ttl, listing.truncated
        merged.skipped = list(listing.skipped)
        before: Listing[_T] = self._merged.get(kind.member, Listing())
        for item, definition in zip(before, before.definitions, strict=True):
            name = kind.key(item)
            if name in others and name not in of_owner[kind.member]:
                merged.append(item)
                merged.definitions.append(definition)
        self._merged[kind.member] = merged
        return merged

    def remove(self, owner: str) -> bool:
        """Forget a user's lists; return whether there were any. The items stay for now."""
        return self._seen.pop(owner, None) is not None


_MEMBERS = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "resource_templates"),
}

__all__ = ["UserLists"]
