"""What breaks during a soak: one thing every few seconds, by chance."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import Any

from interlock.errors import InterlockError
from tests.soak.ground import Ground

LONGEST_STOP = 8.0  # seconds; longer than a call may take

Fault = Callable[[Ground, str], Awaitable[None]]


async def kill(ground: Ground, name: str) -> None:
    """Kill the server with SIGKILL; an HTTP server is restarted at the same port."""
    id = ground.process_id(name)
    if id is None:
        return
    with suppress(ProcessLookupError):
        os.kill(id, signal.SIGKILL)
    if name in ground.ports:
        ground.processes[name].wait()
        await asyncio.sleep(ground.chance.random())
        await ground.serve(name)


async def stop(ground: Ground, name: str) -> None:
    """Let the server hang for a while."""
    id = ground.process_id(name)
    if id is None:
        return
    with suppress(ProcessLookupError):
        os.kill(id, signal.SIGSTOP)
        await asyncio.sleep(ground.chance.random() * LONGEST_STOP)
        os.kill(id, signal.SIGCONT)


async def leave(ground: Ground, name: str) -> None:
    """Send slow requests over HTTP, and disconnect before the answers."""
    body = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hang","_meta":'
        b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        b'"io.modelcontextprotocol/clientCapabilities":{}}}}'
    )
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: hang\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    for _ in range(50):
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", ground.ports[name])
            writer.write(head.encode() + body)
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.close()


def told(tool: str, **arguments: Any) -> Fault:
    """Return a fault that calls this tool of the evil server; the call may fail."""

    async def fault(ground: Ground, name: str) -> None:
        async def act(_: str) -> str:
            with suppress(InterlockError):
                await ground.toolbox.call(f"{name}:{tool}", arguments, timeout=1.0)
            return ""

        await ground.one(f"fault {name}", act)

    words = " ".join(f"{value}"[:20] for value in arguments.values())
    fault.__name__ = f"{tool} {words}".strip()
    return fault


_GARBAGE = ["no JSON at all", '{"jsonrpc":"2.0","id":999999999,"result":{}}', "[]", "{", "\xff"]
_STDIO: list[Fault] = [
    kill,
    stop,
    told("exit", code=3, stderr="last words\n"),
    told("close_stdout"),
    told("mute"),
    told("flood_stderr", size=1_000_000),
    told("say", lines=_GARBAGE),
    told("say", lines=_GARBAGE * 100),
    told("say", lines=[[["x", 20_000_000]]]),
]
_EVIL: list[Fault] = [
    stop,
    told("mute"),
    told("mute_stream"),
    told("garbage"),
    told("half_close"),
    told("quiet"),
    told("bomb"),
    told("lose_sessions"),
    told("die_at_reuse", text="bye"),
    told("drip", every=0.05),
    *(told("cut", at=place) for place in ("start", "headers", "body", "event")),
    told("cut", reset=True),
    *(told("endless", what=what) for what in ("header", "body", "line", "event")),
    *(told("status", code=code) for code in (307, 400, 401, 403, 404, 429, 500, 503)),
]
FAULTS: dict[str, list[Fault]] = {
    "memory": [told("fail"), told("hang")],
    "stdio": _STDIO,
    "old_stdio": _STDIO,
    "http": [told("fail"), told("hang"), leave],
    "mortal_http": [kill, stop],
    "evil_http": _EVIL,
    "evil_session": _EVIL,
}


async def break_things(ground: Ground, every: float, tell: Callable[[str], None]) -> int:
    """Cause one fault every so many seconds; return how many."""
    count = 0
    next_at = monotonic() + every
    while next_at < ground.end:
        await asyncio.sleep(max(0, next_at - monotonic()))
        name = ground.chance.choice(list(FAULTS))
        fault = ground.chance.choice(FAULTS[name])
        tell(f"{name}: {fault.__name__}")
        async with ground.breaking:
            await fault(ground, name)
        count += 1
        next_at += every
    return count
