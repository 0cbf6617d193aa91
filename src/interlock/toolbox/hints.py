"""What a user can do about an error of a server."""

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
    """Return the text of an error, with what a user can do about it.

    Args:
        error: Why the server rejects our credentials, or any other error.
        name: Of the server, in addresses.
        server: As configured.
    """
    text = str(error)
    login = f"{_LOGIN} {shlex.quote(name)}"
    if isinstance(error, LoginRequired):
        return text.replace(_LOGIN, login) if _LOGIN in text else f"{text}: {login}"
    if isinstance(error, HttpError) and error.status in (404, 405):
        return f"{text}; check the path of its URL: most servers are at /mcp, old ones at /sse"
    if isinstance(error, InsufficientScope) and isinstance(server, HttpServer):
        scopes = "".join(f" --scope {shlex.quote(scope)}" for scope in error.scopes)
        if len(scopes) > MAX_WORDS:
            scopes = ""  # the login remembers them, as far as that goes
        return f"{text}: {login}{scopes}" if server.uses_login else text
    if isinstance(error, AuthRequired) and isinstance(server, HttpServer):
        if server.auth == "none":
            return f'{text}; its configuration says "auth": "none"'
        if not server.uses_login:
            return f"{text}; it rejects the Authorization header of its configuration"
    return text
