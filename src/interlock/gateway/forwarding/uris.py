"""The URIs under which clients see the servers' resources.

1. A URI stays unchanged as long as no other server has the same URI.
2. If two servers have the same URI, or one has a template that may match a URI or a template of
   the other, all URIs of both get the prefix `interlock://servers/SERVER/`. They keep it until the
   process ends, so that clients can store the URIs.
3. A resource that a result links to can be read like a listed resource. The link gets the prefix
   if the URI belongs to another server, because that server lists it, has linked to it before, or
   has a template for it: reading it must not ask a server that did not offer it. A link without
   prefix is forgotten when another server turns out to have its URI.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, unquote

from interlock.client.listing import Listing
from interlock.types import Resource, ResourceTemplate

_Lists = tuple[str, Listing[Resource], Listing[ResourceTemplate]]  # of a server

PREFIX = "interlock://servers/"
MAX_LINKS = 10_000  # remembered links of one server
MAX_LINK = 2_048  # characters of a remembered link


class Uris:
    """Converts URIs between servers and clients, and remembers the links in results."""

    def __init__(self) -> None:
        self._prefixed: set[str] = set()
        self._owners: dict[str, str] = {}  # the servers of listed resources and templates
        # The texts before "{" of templates, sorted; none begins with another. And their servers.
        self._starts: list[str] = []
        self._servers: list[frozenset[str]] = []
        self._compared: Sequence[_Lists] = ()
        self._linked: dict[str, tuple[str, str]] = {}
        self._links: dict[str, OrderedDict[str, None]] = {}  # remembered links by server

    def compare_lists(self, lists: Sequence[_Lists]) -> None:
        """Compare the servers' resources and templates, unless they are the same lists as before.

        Args:
            lists: Each server's name, its resources and its templates.
        """
        before = self._compared
        if len(lists) == len(before) and all(
            new[0] == old[0] and new[1] is old[1] and new[2] is old[2]
            for new, old in zip(lists, before, strict=True)
        ):
            return
        self._compared = lists
        self.compare(
            {
                server: [
                    *(each.uri for each in resources),
                    *(each.uri_template for each in templates),
                ]
                for server, resources, templates in lists
            }
        )

    def compare(self, uris: Mapping[str, Iterable[str]]) -> None:
        """Find servers that have the same URI, and prefix their URIs from now on.

        Args:
            uris: The URIs of resources and templates, by the server's name.
        """
        self._owners = {}
        starts: dict[str, frozenset[str]] = {}
        for server, each in uris.items():
            alone = frozenset((server,))
            for uri in each:
                owner = self._owners.setdefault(uri, server)
                if owner != server:
                    self._prefixed |= {owner, server}
                start, brace, _ = uri.partition("{")
                if brace:
                    starts[start] = starts[start] | alone if start in starts else alone
        outer: list[tuple[str, frozenset[str]]] = []
        self._starts, self._servers = [], []
        for start in sorted(starts):
            while outer and not start.startswith(outer[-1][0]):
                outer.pop()
            servers = starts[start] | (outer[-1][1] if outer else frozenset())
            if len(servers) > 1:
                self._prefixed |= servers
            if not outer:
                self._starts.append(start)
                self._servers.append(servers)
            outer.append((start, servers))
        has_several = len(set(self._owners.values())) > 1
        for uri, server in self._owners.items() if starts and has_several else ():
            others = self._of_template(uri)
            if others and others != {server}:
                self._prefixed |= others | {server}

    def _of_template(self, uri: str) -> frozenset[str]:
        """Return the servers with the shortest beginning of a template that a URI has."""
        place = bisect_right(self._starts, uri)
        if place and uri.startswith(self._starts[place - 1]):
            return self._servers[place - 1]
        return frozenset()

    def link(self, server: str, uri: str) -> str:
        """Remember a URI that a server's result links to; return the URI for clients."""
        shown = self.shown(server, uri)
        if shown == uri and self._is_foreign(server, uri):
            shown = _with_prefix(server, uri)
        links = self._links.setdefault(server, OrderedDict())
        if shown not in links and len(shown) <= MAX_LINK:
            self._linked[shown], links[shown] = (server, uri), None
            if len(links) > MAX_LINKS:
                del self._linked[links.popitem(last=False)[0]]
        return shown

    def _is_foreign(self, server: str, uri: str) -> bool:
        """Return whether a URI without prefix belongs to another server."""
        if uri.startswith(PREFIX):
            return True
        linked = self._linked.get(uri, (server, uri))[0]
        return linked != server or self._is_taken(server, uri)

    def _is_taken(self, server: str, uri: str) -> bool:
        """Return whether another server lists a URI, or has a template for it."""
        return self._owners.get(uri, server) != server or not self._of_template(uri) <= {server}

    def linked(self, shown: str) -> tuple[str, str] | None:
        """Return a remembered link's server and original URI; None for an unknown link."""
        found = self._linked.get(shown)
        if found is None or found[1] != shown:
            return found
        server, uri = found
        return None if server in self._prefixed or self._is_taken(server, uri) else found

    def is_prefixed(self, server: str) -> bool:
        return server in self._prefixed

    def shown(self, server: str, uri: str) -> str:
        """Return the URI that clients see in place of a server's URI."""
        return _with_prefix(server, uri) if server in self._prefixed else uri

    def split(self, uri: str) -> tuple[str, str] | None:
        """Return a prefixed URI's server and original URI; None for a URI without prefix."""
        if not uri.startswith(PREFIX):
            return None
        server, _, original = uri.removeprefix(PREFIX).partition("/")
        server = unquote(server)
        return (server, original) if server in self._prefixed else None


def _with_prefix(server: str, uri: str) -> str:
    return f"{PREFIX}{quote(server, safe='')}/{uri}"
