"""The URIs of resources as clients use them.

1. A URI stays unchanged while no other server has the same one.
2. If two servers have the same URI, all URIs of both begin with `interlock://servers/SERVER/`,
   until the process ends, so that clients can keep them.
3. A resource that a result links to can be read like a listed one. The first link to a URI wins.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

PREFIX = "interlock://servers/"
MAX_LINKS = 10_000  # remembered links


class Uris:
    """The servers whose URIs have a prefix, and the links in results."""

    def __init__(self) -> None:
        self._prefixed: set[str] = set()
        self._linked: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def compare(self, uris: Mapping[str, Iterable[str]]) -> None:
        """Find the servers that have the same URI.

        Args:
            uris: The URIs of resources and templates, by server.
        """
        owners: dict[str, str] = {}
        for server, each in uris.items():
            for uri in each:
                owner = owners.setdefault(uri, server)
                if owner != server:
                    self._prefixed |= {owner, server}

    def link(self, server: str, uri: str) -> str:
        """Remember a URI in a server's result; return it in the clients' form."""
        shown = self.shown(server, uri)
        self._linked.setdefault(shown, (server, uri))
        if len(self._linked) > MAX_LINKS:
            self._linked.popitem(last=False)
        return shown

    def linked(self, shown: str) -> tuple[str, str] | None:
        """Return the server and the original URI of a link; None for an unknown link."""
        return self._linked.get(shown)

    def is_prefixed(self, server: str) -> bool:
        return server in self._prefixed

    def shown(self, server: str, uri: str) -> str:
        """Return a server's URI in the clients' form."""
        return f"{PREFIX}{quote(server, safe='')}/{uri}" if server in self._prefixed else uri

    def split(self, uri: str) -> tuple[str, str] | None:
        """Return the server and the original URI of a prefixed URI; None for others."""
        if not uri.startswith(PREFIX):
            return None
        server, _, original = uri.removeprefix(PREFIX).partition("/")
        server = unquote(server)
        return (server, original) if server in self._prefixed else None
