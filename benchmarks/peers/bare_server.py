"""The least that a server can do: one loop, one decode, one encode. A yardstick.

    python -I bare_server.py [tools=N] [port=PORT]

It speaks every revision, on stdio or on HTTP, and knows two tools, `add` and `text`; it lists N
more. At `/fixed` it sends a fixed reply and does not even look at the request; at `/PATH/SECONDS`
it answers after so long. Not an example to follow: it checks nothing.
"""

from __future__ import annotations

import os
import sys

import msgspec
from msgspec import Raw, Struct

PAGE = 1_000


class Request(Struct):
    method: str
    id: int | str | None = None
    params: Raw = Raw(b"{}")


class Arguments(Struct, frozen=True):
    a: int = 0
    b: int = 0
    size: int = 0


class Call(Struct):
    name: str
    arguments: Arguments = Arguments()


class Params(Struct):
    cursor: str = "0"
    protocol_version: str = msgspec.field(name="protocolVersion", default="")


HINTS = b'"ttlMs":0,"cacheScope":"private","resultType":"complete"}'
CAPABILITIES = b'"capabilities":{"tools":{}}'
DISCOVER = b'{"supportedVersions":["2026-07-28"],%b,%b' % (CAPABILITIES, HINTS)
INITIALIZE = b'{"protocolVersion":"%b",%b,"serverInfo":{"name":"bare","version":"1"}}'
NUMBERS = b'{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}'
SIZE = b'{"type":"object","properties":{"size":{"type":"integer"}},"required":["size"]}'
FURTHER = (
    b'{"name":"tool%d","description":"Read the first lines of a file, as many as wanted.",'
    b'"inputSchema":{"type":"object","properties":{"path":{"type":"string"},'
    b'"limit":{"type":"integer","default":10},"verbose":{"type":"boolean","default":false}},'
    b'"required":["path"]}}'
)
FIXED = (
    b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":'
    b'{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1"}},'
    b'"content":[{"type":"text","text":"2"}]}}'
)


def pages(further: int) -> list[bytes]:
    """Encode the list of tools, page by page."""
    tools = [
        b'{"name":"add","description":"Add.","inputSchema":%b}' % NUMBERS,
        b'{"name":"text","description":"Write.","inputSchema":%b}' % SIZE,
        *(FURTHER % number for number in range(further)),
    ]
    encoded = []
    for place in range(0, len(tools), PAGE):
        more = b'"nextCursor":"%d",' % (place + PAGE) if place + PAGE < len(tools) else b""
        page = b",".join(tools[place : place + PAGE])
        encoded.append(b'{"tools":[%b],%b%b' % (page, more, HINTS))
    return encoded


class Bare:
    def __init__(self, further_tools: int) -> None:
        self.pages = pages(further_tools)
        self.decode = msgspec.json.Decoder(Request).decode
        self.decode_call = msgspec.json.Decoder(Call).decode

    def answer(self, message: bytes) -> bytes:
        """Give the answer; nothing to a notification."""
        request = self.decode(message)
        if request.id is None:
            return b""
        id = msgspec.json.encode(request.id)
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (id, self.result(request))

    def result(self, request: Request) -> bytes:
        if request.method == "tools/call":
            arguments = self.decode_call(request.params).arguments
            text = "x" * arguments.size or str(arguments.a + arguments.b)
            return b'{"content":[{"type":"text","text":"%b"}],"resultType":"complete"}' % (
                text.encode()
            )
        if request.method == "server/discover":
            return DISCOVER
        params = msgspec.json.decode(request.params, type=Params)
        if request.method == "tools/list":
            return self.pages[int(params.cursor) // PAGE]
        if request.method == "initialize":
            return INITIALIZE % (params.protocol_version.encode(), CAPABILITIES)
        return b"{}"

    # Stdio

    def serve(self) -> None:
        rest = b""
        while data := os.read(0, 1 << 18):
            *lines, rest = (rest + data).split(b"\n")
            answers = [answer for answer in map(self.answer, lines) if answer]
            reply = memoryview(b"\n".join([*answers, b""])) if answers else b""
            while reply:
                reply = reply[os.write(1, reply) :]

    # HTTP

    async def __call__(self, scope, receive, send):
        """Serve one request of ASGI."""
        from asyncio import sleep  # on stdio it is not needed, and takes as long as all the rest

        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if scope["path"] == "/fixed":
            await reply(send, 200, FIXED)
        elif scope["method"] != "POST":
            await reply(send, 405, b"")
        else:
            _, _, seconds = scope["path"][1:].partition("/")
            if seconds:
                await sleep(float(seconds))
            answer = self.answer(body)
            await reply(send, 200 if answer else 202, answer)

    def serve_http(self, port: int) -> None:
        import uvicorn

        uvicorn.run(
            self, port=port, lifespan="off", log_level="warning", access_log=False,
            server_header=False, timeout_keep_alive=600,
        )  # fmt: skip


async def reply(send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    told = dict(argument.split("=") for argument in sys.argv[1:])
    bare = Bare(int(told.get("tools", 0)))
    if "port" in told:
        bare.serve_http(int(told["port"]))
    else:
        bare.serve()
