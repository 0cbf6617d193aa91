"""A server that accepts the tokens of an authorization server.

protected.py ISSUER [METHOD]: only METHOD needs a token, if one is named. The first line of stdout
is its URL; it ends when its stdin does.
"""

from __future__ import annotations

import socket
import sys
from threading import Thread
from typing import Any

import uvicorn

from interlock import Context, Server
from interlock.auth import BearerAuth
from interlock.auth.jwt import JwtVerifier
from interlock.auth.principal import Principal

ISSUER = sys.argv[1]
listening = socket.create_server(("127.0.0.1", 0))
url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"

verify_jwt = JwtVerifier(issuer=ISSUER, audience=url, jwks_url=f"{ISSUER}/jwks", leeway=0.0)
signed_out: set[str] = set()  # ids of tokens


async def verify(token: str) -> Principal | None:
    """Verify a token that has not been signed out."""
    principal = await verify_jwt(token)
    return None if principal and principal.claims["jti"] in signed_out else principal


server = Server("protected", version="1.0.0")
auth = BearerAuth(
    verify=verify,
    resource=url,
    authorization_servers=[ISSUER],
    scopes_supported=["notes:read", "notes:write"],
    required_scopes=["notes:read"],
)


@server.tool
async def who(context: Context) -> str:
    """Return the principal and its scopes."""
    assert context.principal is not None
    subject = context.principal.id.removeprefix(f"{ISSUER}#")
    return f"{subject}: {' '.join(sorted(context.principal.scopes))}"


@server.tool
async def write(text: str, context: Context) -> str:
    """Write a note, which needs a scope of its own."""
    assert context.principal is not None
    auth.require(context.principal, ["notes:write"])
    return f"wrote {text}"


@server.tool
async def sign_out(context: Context) -> str:
    """Invalidate the token of this call."""
    assert context.principal is not None
    signed_out.add(context.principal.claims["jti"])
    return "good bye"


def asking_for(method: str) -> Any:
    """Require no token for all other methods."""
    guarded, to_all = server.asgi(auth=auth), server.asgi()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked = dict(scope.get("headers", ())).get(b"mcp-method", method.encode())
        await (guarded if asked == method.encode() else to_all)(scope, receive, send)

    return app


def end_with_stdin(running: uvicorn.Server) -> None:
    """End the server when stdin is closed."""
    sys.stdin.read()
    running.should_exit = True


if __name__ == "__main__":
    app = asking_for(sys.argv[2]) if sys.argv[2:] else server.asgi(auth=auth)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    Thread(target=end_with_stdin, args=[running], daemon=True).start()
    print(url, flush=True)
    running.run(sockets=[listening])
