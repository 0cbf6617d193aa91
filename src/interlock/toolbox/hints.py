"""Hints for users about errors from servers."""

from __future__ import annotations

import shlex

from interlock.config import HttpServer
from interlock.errors import (
    MAX_WORDS,
    AuthRequired,
    HttpError,
    InsufficientScope,
    InterlockError,
    LoginRequired,
)

_LOGIN = "interlock servers login"


def with_hint(error: InterlockError, name: str, server: object) -> str:
    """Return an error's text with a hint for the user.

    Args:
        error: An error from the server, or from connecting to it.
        name: The server's name in addresses.
        server: The server's configuration, or the server itself.
    """
    text = str(error)
    login = f"{_LOGIN} {shlex.quote(name)}"
    if isinstance(server, HttpServer) and not server.is_named:  # logins are stored by name
        login = f"interlock servers add NAME URL, then {_LOGIN} NAME"
    if isinstance(error, LoginRequired):
        return text.replace(_LOGIN, login) if _LOGIN in text else f"{text}: {login}"
    if isinstance(error, HttpError) and error.status in (404, 405):
        return f"{text}; check the path of its URL: most servers are at /mcp, old ones at /sse"
    if isinstance(error, InsufficientScope) and isinstance(server, HttpServer):
        scopes = "".join(f" --scope {shlex.quote(scope)}" for scope in error.scopes)
        if len(scopes) > MAX_WORDS:
            scopes = ""  # too long for a hint; the stored login keeps the missing scopes
        return f"{text}: {login}{scopes}" if server.uses_login else text
    if isinstance(error, AuthRequired) and isinstance(server, HttpServer):
        if server.auth == "none":
            return f'{text}; its configuration says "auth": "none"'
        if not server.uses_login:
            return f"{text}; correct the header Authorization in its configuration"
    return text
