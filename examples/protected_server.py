"""A server over HTTP that authenticates its clients, with a long-running tool.

Run: NOTES_TOKEN=only-anna-knows-this python examples/protected_server.py
"""

import asyncio
import os

from interlock import Context, Server
from interlock.auth import BearerAuth, Principal, static_tokens
from interlock.server import Handler

ANNA = Principal("anna", scopes=frozenset({"notes:read"}))
auth = BearerAuth(
    verify=static_tokens({os.environ.get("NOTES_TOKEN", "only-anna-knows-this"): ANNA}),
    resource="http://127.0.0.1:8000/mcp",
    required_scopes=["notes:read"],
)


def named(handle: Handler) -> Handler:
    """Print the user and method of each request."""

    async def named_handle(request, context):
        user = context.principal.id if context.principal else "unauthenticated"
        print(f"{user}: {request.method}")
        return await handle(request, context)

    return named_handle


server = Server("notes", version="1.0.0", middleware=[named])


@server.tool(destructive=True, scopes=["notes:write"])
async def delete(name: str) -> str:
    """Delete a note."""
    return f"{name} is gone"


@server.tool(task=True)
async def index(context: Context) -> str:
    """Read all notes again, with progress."""
    for done in range(10):
        context.progress(done, 10, "reading")
        await asyncio.sleep(0.1)
    return "ready"


app = server.asgi(auth=auth)

if __name__ == "__main__":
    server.run_http(port=8000, auth=auth)
