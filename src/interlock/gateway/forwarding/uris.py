"""The URIs under which clients see the servers' resources.

1. A URI stays unchanged as long as no other server has the same URI.
2. If two servers have the same URI, all URIs of both get the prefix `interlock://servers/SERVER/`.
   They keep it until the process ends, so that clients can store the URIs.
3. A resource that a result links to can be read like a listed resource. If several servers link to
   the same URI, the first link applies.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

PREFIX = "interlock://servers/"
MAX_LINKS = 10_000  # remembered links


class Uris:
    """Converts URIs between servers and clients, and remembers the links in results."""

    def __init__(self) -> None:
        self._prefixed: set[str] = set()
        self._linked: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def compare(self, uris: Mapping[str, Iterable[str]]) -> None:
        """Find servers that have the same URI, and prefix their URIs from now on.

        Args:
            uris: The URIs of resources and templates, by the server's name.
        """
        owners: dict[str, str] = {}
        for server, each in uris.items():
            for uri in each:
                owner = owners.setdefault(uri, server)
                if owner != server:
                    self._prefixed |= {owner, server}

    def link(self, server: str, uri: str) -> str:
        """Remember a URI that a server's result links to; return the URI for clients."""
        shown = self.shown(server, uri)
        self._linked.setdefault(shown, (server, uri))
        if len(self._linked) > MAX_LINKS:
            self._linked.popitem(last=False)
        return shown

    def linked(self, shown: str) -> tuple[str, str] | None:
        """Return a remembered link's server and original URI; None for an unknown link."""
        return self._linked.get(shown)

    def is_prefixed(self, server: str) -> bool:
        return server in self._prefixed

    def shown(self, server: str, uri: str) -> str:
        """Return the URI that clients see in place of a server's URI."""
        return f"{PREFIX}{quote(server, safe='')}/{uri}" if server in self._prefixed else uri

    def split(self, uri: str) -> tuple[str, str] | None:
        """Return a prefixed URI's server and original URI; None for a URI without prefix."""
        if not uri.startswith(PREFIX):
            return None
        server, _, original = uri.removeprefix(PREFIX).partition("/")
        server = unquote(server)
        return (server, original) if server in self._prefixed else None
