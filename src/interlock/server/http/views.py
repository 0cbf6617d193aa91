"""Views of an endpoint: named parts of its catalogue, each at its own path below the endpoint.

A view that does not exist and a view that the caller may not use look the same to the caller, both
before and after authentication.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Literal

from msgspec import Struct

from interlock.auth import Authenticator
from interlock.server.http.responses import HttpRefusal

_NAME = rb"([A-Za-z0-9][A-Za-z0-9_-]{0,63})"
_PLACE = re.compile(_NAME + rb"(?:/(sse|messages?))?")
_METADATA = re.compile(rb"/\.well-known/oauth-protected-resource/(?:.*/)?" + _NAME)
_RESERVED = (b"sse", b"message", b"messages")

Kind = Literal["mcp", "sse", "messages"]


class ServedPath(Struct, frozen=True):
    """The content that a path serves.

    Attributes:
        kind: Streamable HTTP, or one of the two paths of HTTP+SSE.
        messages: The path to which clients of HTTP+SSE send messages.
        view: The view's name; "" if the path serves the whole catalogue.
    """

    kind: Kind
    messages: str
    view: str = ""


class Views:
    """The views of an endpoint, and their paths.

    Args:
        names: The names of the views that exist.
        make: Returns an authenticator for a view's name, even if the view does not exist. It is
            called for each request, so that requests for both kinds of views take equally long.
    """

    def __init__(self, names: Collection[str], make: Callable[[str], Authenticator]) -> None:
        self.authenticator = make
        self._names = frozenset(names)

    def route(self, base: str, below: bytes) -> ServedPath | None:
        """Return the content of a path, whether or not the view in the path exists.

        Args:
            base: The endpoint's path.
            below: The raw path after the endpoint's path, without the slash.
        """
        match = _PLACE.fullmatch(below)
        if match is None or match[1] in _RESERVED:
            return None
        view = match[1].decode()
        kind: Kind = "mcp" if match[2] is None else "sse" if match[2] == b"sse" else "messages"
        return ServedPath(kind, f"{base}/{view}/message", view)

    def check(self, name: str) -> None:
        """Refuse a view that does not exist. Call this only after authentication.

        Raises:
            HttpRefusal: 404: the view does not exist.
        """
        if name not in self._names:
            raise nothing_here()

    def published(self, path: bytes) -> bytes | None:
        """Return the OAuth metadata that a view publishes at this path; None at other paths."""
        match = _METADATA.fullmatch(path)
        if match is None:
            return None
        return self.authenticator(match[1].decode()).published(path.decode("latin-1"))


def nothing_here() -> HttpRefusal:
    """Return the 404 for a path that does not exist, at all or for this caller."""
    return HttpRefusal(404, "nothing is served at this path")
