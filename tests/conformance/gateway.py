"""A gateway in front of the conformance suite's server, with the names that the suite expects.

    python gateway.py modern         the server speaks its newest revision
    python gateway.py legacy         it speaks the newest legacy one, so calls that ask are parked

It serves at a free port of loopback and prints the URL. Everybody may call everything.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from interlock.auth import Principal
from interlock.client import ClientOptions
from interlock.config import Pool, StdioServer
from interlock.config.gateway import View
from interlock.config.servers import Question
from interlock.gateway import ForwardingServer
from interlock.policy import Policy
from interlock.server.http.serve import UvicornServer, announce

if TYPE_CHECKING:
    from interlock.auth.authenticator import Headers

ASKS: tuple[Question, ...] = ("elicitation", "sampling", "roots")
VIEW = "suite"


class Everybody:
    """An authenticator for which every client is the same user, in a view with plain names."""

    challenge = "Bearer"

    def __init__(self) -> None:
        self._principal = Principal("user:suite", frozenset({"mcp:*"}), view=VIEW)

    def published(self, path: str) -> bytes | None:
        """Return None: there is nothing to publish."""
        return None

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        """Return the one user."""
        return self._principal


class LegacyGateway(ForwardingServer):
    """A gateway that connects to its servers by `initialize`."""

    def _handlers(self, server: str) -> ClientOptions:
        return {**super()._handlers(server), "revision": "legacy"}


def main() -> None:
    """Serve until SIGTERM."""
    fixture = str(Path(__file__).with_name("server.py"))
    server = StdioServer(command=sys.executable, args=(fixture,), asks=ASKS)
    if sys.argv[1] == "legacy":
        # Scenarios leave questions unanswered. On a shared connection the next question would
        # belong to an unknown call.
        server = replace(server, sharing="per_call", pool=Pool(max=64, spare=2))
    policy = Policy.compile(None, views={VIEW: View(names="plain")})
    kind = LegacyGateway if sys.argv[1] == "legacy" else ForwardingServer
    gateway = kind({"suite": server}, policy)
    UvicornServer(gateway.asgi(auth=Everybody()), "127.0.0.1", 0, on_start=announce).run()


if __name__ == "__main__":
    main()
