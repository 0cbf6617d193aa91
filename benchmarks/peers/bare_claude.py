"""The least code that hosts the stand-in program: it checks nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from msgspec import Raw, Struct

from benchmarks.peers.claude_host import PROGRAM, TEXT, Ask, serve


class Rpc(Struct):
    method: str
    id: int = 0
    params: Raw = Raw(b"{}")


class Asked(Struct):
    subtype: str
    message: Rpc | None = None


class Line(Struct):
    type: str
    request_id: str = ""
    request: Asked | None = None
    result: str = ""


class Params(Struct):
    name: str
    arguments: dict[str, int]


ANSWER = (
    b'{"type":"control_response","response":'
    b'{"subtype":"success","request_id":"%b","response":%b}}\n'
)
RESULT = b'{"mcp_response":{"jsonrpc":"2.0","id":%d,"result":{"content":[%b]}}}'
ALLOW = b'{"behavior":"allow","updatedInput":{"a":1,"b":2}}'
HOOK = b'{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}'
decode, decode_params = msgspec.json.Decoder(Line).decode, msgspec.json.Decoder(Params).decode


def answer(line: Line) -> bytes:
    asked = line.request
    if asked.subtype != "mcp_message":
        return ANSWER % (line.request_id.encode(), HOOK if asked.subtype[0] == "h" else ALLOW)
    if asked.message.method != "tools/call":
        return ANSWER % (line.request_id.encode(), b"{}")
    params = decode_params(asked.message.params)
    given = params.arguments
    text = TEXT * given["size"] if params.name == "text" else str(given["a"] + given["b"])
    content = msgspec.json.encode({"type": "text", "text": text})
    return ANSWER % (line.request_id.encode(), RESULT % (asked.message.id, content))


@asynccontextmanager
async def opened(decides: bool) -> AsyncIterator[Ask]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, stdin=pipe, stdout=pipe, limit=2**26
    )
    hooks = '{"PreToolUse":[{"hookCallbackIds":["h"]}]}' if decides else "null"
    initialize = f'{{"subtype":"initialize","hooks":{hooks}}}'
    hello = f'{{"type":"control_request","request_id":"1","request":{initialize}}}\n'
    process.stdin.write(hello.encode())
    await process.stdout.readline()

    async def ask(prompt: str) -> str:
        message = {"type": "user", "message": {"content": prompt}}
        process.stdin.write(msgspec.json.encode(message) + b"\n")
        while True:
            line = decode(await process.stdout.readline())
            if line.type == "result":
                return line.result
            process.stdin.write(answer(line))

    try:
        yield ask
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    serve(opened)
