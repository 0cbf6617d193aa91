"""HTTP headers that a user gives: which are valid, and how they replace others."""

from __future__ import annotations

import re
from collections.abc import Mapping

from interlock.errors import ConfigError
from interlock.text import urls

_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# The client sets these headers to match the message, so they must not be configured.
_RESERVED = frozenset(
    (
        "accept",
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "host",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
        "transfer-encoding",
    )
)


def check_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers unchanged.

    Raises:
        ConfigError: A name or a value is not valid, or the client sets the header itself.
    """
    for name, value in headers.items():
        if not urls.HTTP_TOKEN.fullmatch(name):
            raise ConfigError(f"{name!r} is not a valid name of an HTTP header")
        if not _HEADER_VALUE.fullmatch(value):
            raise ConfigError(f"the value of header {name} has an invalid character")
        if name.lower() in _RESERVED or name.lower().startswith("mcp-param-"):
            raise ConfigError(f"header {name} is set by the client; leave it out")
    return headers


def merged(headers: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return headers, of which `own` replaces those with the same name in any case."""
    names = {name.lower() for name in own}
    return {**{name: each for name, each in headers.items() if name.lower() not in names}, **own}
