"""URIs of resources, as clients use them.

1. A URI stays as its server writes it while no other server has the same one.
2. If two servers have the same URI, all URIs of both begin with `interlock://servers/SERVER/`.
   They stay so until the process ends, so that clients can keep them.
3. A resource that a result links to can be read like a listed one. The first link to a URI counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

PREFIX = "interlock://servers/"
MAX_LINKS = 10_000  # remembered


class Uris:
    """Which servers' URIs have a prefix, and what results have linked to."""

    def __init__(self) -> None:
        self._prefixed: set[str] = set()
        self._linked: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def compare(self, uris: Mapping[str, Iterable[str]]) -> None:
        """Find the servers that have the same URI.

        Args:
            uris: Of resources and templates, by server.
        """
        owners: dict[str, str] = {}
        for server, each in uris.items():
            for uri in each:
                owner = owners.setdefault(uri, server)
                if owner != server:
                    self._prefixed |= {owner, server}

    def link(self, server: str, uri: str) -> str:
        """Remember a URI in a result of a server, and return it as clients see it."""
        shown = self.shown(server, uri)
        self._linked.setdefault(shown, (server, uri))
        if len(self._linked) > MAX_LINKS:
            self._linked.popitem(last=False)
        return shown

    def linked(self, shown: str) -> tuple[str, str] | None:
        """Return server and original URI of a link; None if there was none."""
        return self._linked.get(shown)

    def is_prefixed(self, server: str) -> bool:
        """Return whether the URIs of a server have the prefix."""
        return server in self._prefixed

    def shown(self, server: str, uri: str) -> str:
        """Return a server's URI as clients see it."""
        return f"{PREFIX}{quote(server, safe='')}/{uri}" if server in self._prefixed else uri

    def split(self, uri: str) -> tuple[str, str] | None:
        """Return server and original URI of one with the prefix; None for others."""
        if not uri.startswith(PREFIX):
            return None
        server, _, original = uri.removeprefix(PREFIX).partition("/")
        server = unquote(server)
        return (server, original) if server in self._prefixed else None
