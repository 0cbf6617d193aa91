"""URLs: one definition each of origin, display form, validity, loopback and header token.

Origin and loopback decide where credentials are sent, so no other module defines them.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

from interlock.text.quoting import clip

_DEFAULT_PORTS = {"http": 80, "https": 443}

# RFC 9110 section 5.6.2: names of headers, methods and authentication schemes.
HTTP_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def split(url: str) -> SplitResult:
    """Split a URL whose host and port can be read.

    Raises:
        ValueError: The host is missing, or host or port are malformed.
    """
    parts = urlsplit(url)
    if "\\" in parts.netloc:  # browsers read it as the "/" before a path
        raise ValueError("the URL has a backslash in its host")
    host, _ = parts.hostname, parts.port  # reading a malformed port raises
    if not host:
        raise ValueError("the URL has no host")
    host.encode("idna")  # raises for a malformed host
    return parts


def origin(url: str) -> str:
    """Return scheme, host and port in lower case, without a default port: "https://host:8443".

    Equal origins may share credentials. For a URL without host the result is "scheme://" and
    the readable rest, which never equals the origin of a server.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    is_default = parts.port is None or parts.port == _DEFAULT_PORTS.get(parts.scheme)
    return f"{parts.scheme}://{host}" if is_default else f"{parts.scheme}://{host}:{parts.port}"


def address(url: str) -> tuple[str, int]:
    """Return the host and the port of an HTTP URL; ("", 0) if it is malformed."""
    try:
        parts = split(url)
        return parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        return "", 0


def page_origin(text: str) -> str | None:
    """Return the origin that browsers send for pages of a URL; None if it is not an origin."""
    try:
        parts = split(text)
    except ValueError:
        return None
    has_more = parts.path not in ("", "/") or parts.query or parts.fragment or "@" in parts.netloc
    return None if has_more or parts.scheme not in ("http", "https") else origin(text)


def display(url: str) -> str:
    """Return a URL for messages: one short line without user, password, query and fragment."""
    try:
        parts = split(url)
    except ValueError:
        # Parsers disagree on where the user part of a malformed URL ends, so it is not shown.
        return "a URL that cannot be read" if "@" in url else repr(clip(re.split("[?#]", url)[0]))
    return clip(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}")


def is_loopback(host: str) -> bool:
    """Return whether a URL's host is this machine, without a DNS lookup."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def problem(url: str) -> str | None:
    """Return why a text is not a valid server URL; None if it is valid."""
    if not re.match(r"https?://[^/\s]", url):
        return "must start with https:// or http://"
    try:
        split(url)
    except ValueError:
        return "has an invalid host or port"
    return None
