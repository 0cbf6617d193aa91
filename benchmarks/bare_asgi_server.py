"""The least that an HTTP server can do: read the body, send a fixed reply. A yardstick.

Run: python benchmarks/bare_asgi_server.py PORT
"""

from __future__ import annotations

import sys

import uvicorn

BODY = (
    b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":'
    b'{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}},'
    b'"content":[{"type":"text","text":"2"}]}}'
)
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


async def app(_scope, receive, send):
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


if __name__ == "__main__":
    uvicorn.run(
        app, port=int(sys.argv[1]), lifespan="off", log_level="warning", access_log=False,
        server_header=False,
    )  # fmt: skip
