"""Redirect URIs of clients: which may be registered, and which request matches one.

1. A URI is compared byte for byte. Only the port of a program on this computer may differ, because
   such a program takes any free port (RFC 8252, section 7.3).
2. A URI is https, http on loopback, or has the scheme of an app. Schemes that a browser runs or
   opens itself are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

MAX_URI = 512  # characters
MAX_URIS = 10  # of one client

# Only characters of RFC 3986. A backslash, a space or a control would be read differently by
# different programs, and a fragment would hide the answer's parameters.
_URI = re.compile(r"[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=%]+")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_WEB = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[::1\]|[A-Za-z0-9](?:[A-Za-z0-9.\-]*[A-Za-z0-9])?)"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<rest>(?:[/?].*)?)"
)
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
# Schemes that browsers or systems handle themselves: they run scripts, or read files and networks.
_NOT_OF_APPS = re.compile(
    "about|blob|chrome.*|content|data|devtools|dns|edge|feed|file|filesystem|ftps?|gopher|https?"
    "|intent|ipp|jar|javascript|jdbc|ldaps?|livescript|mailto|mhtml|mocha|moz-extension|ms-.*|nfs"
    "|res|resource|rtsp|sftp|smb|sms|ssh|tel|telnet|urn|vbscript|view-source|wss?|wyciwyg"
)


def problem_of(uri: str) -> str | None:
    """Return why a client may not register a redirect URI; None if it may."""
    if len(uri) > MAX_URI:
        return f"it has {len(uri)} characters; the limit is {MAX_URI}"
    if not _URI.fullmatch(uri):
        return "it has a fragment, or characters that no URI has"
    found = _SCHEME.match(uri)
    if found is None:
        return "it is not an absolute URI"
    scheme = found[1].lower()
    if scheme not in ("http", "https"):
        if _NOT_OF_APPS.fullmatch(scheme):
            return f"the scheme {scheme!r} is not that of an app"
        return None if len(uri) > len(found[0]) else "nothing follows its scheme"
    web = _WEB.fullmatch(uri)
    if web is None or "@" in web["host"] or ".." in web["host"]:
        return "its host is not a plain host name"
    if web["port"] is not None and not 0 < int(web["port"]) < 65_536:
        return f"port {web['port']} does not exist"
    if web["scheme"] == "http" and web["host"] not in _LOOPBACK:
        return "http is only for programs on the same computer: use https"
    return None


def matches(registered: Iterable[str], asked: str) -> bool:
    """Return whether a redirect URI in a request is one of those that a client has registered."""
    if problem_of(asked) is not None:
        return False
    spelled = _without_port(asked)
    return any(asked == each or (spelled and spelled == _without_port(each)) for each in registered)


def is_local(uri: str) -> bool:
    """Return whether a redirect URI leads to a program on the user's own computer."""
    return _without_port(uri) is not None


def place_of(uri: str) -> str:
    """Return where a redirect URI leads, for people: a host, "localhost" or the scheme of an app.

    The result is as operators write it in `auth.oauth.clients`.
    """
    if is_local(uri):
        return "localhost"
    scheme = uri.partition(":")[0].lower()
    return urlsplit(uri).hostname or "" if scheme == "https" else f"{scheme}:"


def _without_port(uri: str) -> tuple[str, str] | None:
    """Return the host and the rest of an http URI on loopback; None for all other URIs."""
    web = _WEB.fullmatch(uri)
    if web is None or web["scheme"] != "http" or web["host"] not in _LOOPBACK:
        return None
    rest = web["rest"]
    return web["host"], rest if rest.startswith("/") else f"/{rest}"
