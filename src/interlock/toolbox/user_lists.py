"""A server's lists, which may differ for each user's credential, merged into one list.

A server may offer different tools to different users, but the toolbox has one list. So the users'
lists are merged, with the newest definition of each item. If users have different definitions of a
tool, the accepted definition is offered, and users with another definition do not see the tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from interlock.client.listing import Kind, Listing

MAX_USERS = 1_000  # users whose lists are kept; beyond this, the oldest lists are dropped

_T = TypeVar("_T")


class UserLists:
    """Keeps each user's lists of one server's items, and merges them."""

    def __init__(self) -> None:
        # Hash of the definition by owner, kind and name; "" if definitions are not compared.
        self._seen: dict[str, dict[str, dict[str, str]]] = {}
        self._offered: dict[str, str] = {}  # the hash of the merged definition of each tool
        self._merged: dict[str, Listing[Any]] = {}  # kind -> merged list

    def has(self, owner: str) -> bool:
        return owner in self._seen

    def sees(self, owner: str, kind: str, name: str) -> bool:
        """Return whether a user's list has an item.

        Until a user's lists are known, the user sees the other users' tools and prompts, but not
        their resources, whose names may be private.

        Args:
            owner: The user's `Principal.owner`.
            kind: "tools", "resources" or "prompts".
            name: The item's name at the server; for a resource, its URI or URI template.
        """
        seen = self._seen.get(owner)
        if seen is None:
            return kind != "resources"
        found = next((seen[each] for each in _MEMBERS[kind] if name in seen.get(each, ())), None)
        return found is not None and found[name] in ("", self._offered.get(name))

    def merge(
        self,
        kind: Kind[_T],
        owner: str,
        listing: Listing[_T],
        *,
        hashes: Mapping[str, str] | None = None,
        accepted: Callable[[str], str] = lambda _: "",
    ) -> Listing[_T]:
        """Replace a user's list; return the merged list of all users.

        Args:
            kind: The kind of the items.
            owner: The user.
            listing: The user's list.
            hashes: The hash of each tool's definition, keyed by the tool's name; None if
                definitions are not compared.
            accepted: Returns the hash of a tool's accepted definition; "" if it has none.
        """
        of_owner = {name: (hashes or {}).get(name, "") for name in map(kind.key, listing)}
        self._seen.setdefault(owner, {})[kind.member] = of_owner
        while len(self._seen) > MAX_USERS:
            del self._seen[next(iter(self._seen))]
        others = [seen.get(kind.member, {}) for each, seen in self._seen.items() if each != owner]
        before: Listing[_T] = self._merged.get(kind.member, Listing())
        pairs = zip(before, before.definitions, strict=True)
        kept = {kind.key(item): (item, definition) for item, definition in pairs}
        merged: Listing[_T] = Listing()
        merged.ttl, merged.truncated = listing.ttl, listing.truncated
        merged.skipped = list(listing.skipped)
        for item, definition in zip(listing, listing.definitions, strict=True):
            name = kind.key(item)
            hash, wanted = of_owner[name], accepted(name)
            is_kept = name in kept and self._offered.get(name) == wanted != hash
            if hash and is_kept and any(each.get(name) == wanted for each in others):
                item, definition = kept[name]
            elif hash:
                self._offered[name] = hash
            merged.append(item)
            merged.definitions.append(definition)
        for name, (item, definition) in kept.items():
            if name not in of_owner and any(name in each for each in others):
                merged.append(item)
                merged.definitions.append(definition)
        self._merged[kind.member] = merged
        return merged

    def remove(self, owner: str) -> bool:
        """Remove a user's lists; return whether the user had lists.

        The merged list still contains their items until it is merged again.
        """
        return self._seen.pop(owner, None) is not None


_MEMBERS = {
    "tools": ("tools",),
    "prompts": ("prompts",),
    "resources": ("resources", "resource_templates"),
}
