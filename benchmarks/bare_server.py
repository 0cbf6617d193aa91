"""The least that a stdio server can do: one loop, one decode, one encode. A yardstick.

It speaks 2026-07-28 and knows one tool, `add`. Not an example to follow: it checks nothing.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Raw, Struct


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


HINTS = b'"ttlMs":0,"cacheScope":"private","resultType":"complete"}'
DISCOVER = b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},' + HINTS
SCHEMA = b'{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}}'
TOOLS = b'{"tools":[{"name":"add","description":"Add.","inputSchema":%b}],%b' % (SCHEMA, HINTS)


def answer(request: Request, call: msgspec.json.Decoder[Call]) -> bytes:
    if request.method == "tools/call":
        arguments = call.decode(request.params).arguments
        text = "x" * arguments.size or str(arguments.a + arguments.b)
        return b'{"content":[{"type":"text","text":"%b"}],"resultType":"complete"}' % text.encode()
    return DISCOVER if request.method == "server/discover" else TOOLS


def main() -> None:
    decode = msgspec.json.Decoder(Request).decode
    call = msgspec.json.Decoder(Call)
    rest = b""
    while data := os.read(0, 1 << 18):
        *lines, rest = (rest + data).split(b"\n")
        out = []
        for line in lines:
            request = decode(line)
            if request.id is not None:
                result = answer(request, call)
                out.append(b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (request.id, result))
        reply = memoryview(b"".join(out))
        while reply:
            reply = reply[os.write(1, reply) :]


if __name__ == "__main__":
    main()
