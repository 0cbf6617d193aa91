"""Users' credentials: which ones a server needs, and the interface that provides them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import asdict, replace

from interlock.config import HttpServer, OpenApiConfig, StdioServer, variables
from interlock.config.openapi import ApiLogin
from interlock.errors import LoginRequired
from interlock.transports import Authorization

if TYPE_CHECKING:
    from interlock.oauth import TokenStore


class UserCredentials(Protocol):
    """Provides users' credentials for a toolbox's servers; `Principal.owner` identifies a user.

    Attributes:
        is_local: Whether the logins of the local user, whose owner is "", are provided too.
    """

    is_local: bool

    async def values(self, owner: str, server: str) -> Mapping[str, str]:
        """Return the user's values for `${user:NAME}`, keyed by NAME."""
        ...

    def login(self, owner: str, server: str, config: HttpServer) -> Authorization:
        """Return the user's login to a server; all the server's connections get the same object.

        Args:
            owner: The user's `Principal.owner`.
            server: The server's name in the toolbox.
            config: The server's configuration, with variables replaced.
        """
        ...

    def tokens(self, owner: str, server: str) -> TokenStore:
        """Return the store for the tokens of a user's login at a server."""
        ...

    def connect_url(self, owner: str, server: str) -> str:
        """Return the URL where a user connects to a server; "" if there is none."""
        ...

    async def owners(self, server: str) -> Sequence[str]:
        """Return some users who have a credential for a server, the most recent user first."""
        ...


class Needs(Struct, frozen=True):
    """The credentials that a server needs from the user on whose behalf it is called.

    Attributes:
        names: The NAMEs of `${user:NAME}` in the server's configuration.
        login: Whether the server needs an OAuth login.
        caller: The references to the caller, such as "${caller.user}". They need no credential.
    """

    names: frozenset[str] = frozenset()
    login: bool = False
    caller: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names) or self.login


def needs_of(server: object) -> Needs:
    """Return the credentials that a server needs from each user; empty if users share them."""
    match server:
        case StdioServer() if server.sharing != "shared":
            return Needs(_names(server.env.values()), caller=_references(server.env.values()))
        case HttpServer() if server.sharing != "shared":
            values = server.headers.values()
            return Needs(_names(values), server.auth == "oauth", _references(values))
        case OpenApiConfig() if server.sharing != "shared":
            texts = [
                value
                for each in server.openapi.auth.values()
                for value in asdict(each).values()
                if isinstance(value, str)
            ]
            has_login = any(isinstance(each, ApiLogin) for each in server.openapi.auth.values())
            return Needs(_names([*server.headers.values(), *texts]), has_login)
    return Needs()


def placeholders_of(server: object) -> dict[str, str]:
    """Return values for `variables.fill` that stand for each user's own; no server gets them."""
    needs = needs_of(server)
    return dict.fromkeys((*needs.names, *needs.caller), "-")


def without_users(server: HttpServer) -> HttpServer:
    """Return a server without the headers that differ for each user."""
    own = {
        name: text
        for name, text in server.headers.items()
        if not variables.user_names(text) and not variables.caller_references(text)
    }
    return replace(server, headers=own)


def may_keep_login(server: object) -> bool:
    """Return whether a gateway may store each user's login to a configured server."""
    if isinstance(server, HttpServer):
        return server.sharing != "shared" and server.uses_login
    return needs_of(server).login


def _names(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(name for text in texts for name in variables.user_names(text))


def _references(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({each for text in texts for each in variables.caller_references(text)}))


def check_values(server: str, needed: frozenset[str], values: Mapping[str, str]) -> None:
    """Raise an error if a user lacks a value that a server needs.

    Raises:
        LoginRequired: Values are missing; the text names them.
    """
    missing = sorted(needed - values.keys())
    if missing:
        what = ", ".join(missing)
        raise LoginRequired(f"server {server!r} needs {what} from the calling user")
