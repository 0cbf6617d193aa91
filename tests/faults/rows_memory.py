"""Memory that runs out, in a client and in a server: what is lost, and who is told."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from interlock import Client, Context
from interlock.errors import HttpError, InterlockError, RemoteError
from tests.faults.failing_memory import FailingMemory
from tests.faults.ground import EVIL, SERVERS, Ground, all_of
from tests.faults.matrix import JSON, MEMORY, OLDEST, SESSION, SSE, STDIO, row
from tests.faults.rows_server import ITSELF, Piped, Stage
from tests.servers.little_memory import TOO_MUCH

CALL = {"text": "x" * 100}
LITTLE = [sys.executable, str(SERVERS / "little_memory.py")]
MIB = 2**20


async def tell(context: Context, text: str) -> str:
    """Report progress, wait a little, and return the text."""
    context.progress(1)
    for _ in range(3):
        await asyncio.sleep(0)
    return text


@asynccontextmanager
async def clients(stage: Stage, transport: str) -> AsyncIterator[Callable[[], Client]]:
    """Serve on a transport; yield a function that returns a new client."""
    if transport == MEMORY:
        yield lambda: Client.memory(stage.server)
    elif transport == STDIO:
        async with Piped(stage.server) as piped:
            yield lambda: Client.memory(piped)
    else:
        ways: dict[str, dict[str, Any]] = {SSE: {"json_silence": 0.0}, OLDEST: {"sse": True}}
        async with stage.on_a_port(**ways.get(transport, {})) as raw:
            path = "/sse" if transport == OLDEST else "/mcp"
            url = f"http://127.0.0.1:{raw.port}{path}"
            revision = "2025-11-25" if transport == SESSION else "auto"
            yield lambda: Client.http(url, revision=revision)


@contextmanager
def memory_reports_allowed() -> Iterator[None]:
    """Allow only memory errors to be reported to the loop and the garbage collector."""
    loop = asyncio.get_running_loop()
    report = loop.get_exception_handler()
    assert report is not None

    def sift(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), MemoryError):
            report(loop, context)

    loop.set_exception_handler(sift)
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            # A handler for which there was no task.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            yield
            gc.collect()  # tasks that have failed so are told of when they go
    finally:
        logging.disable(logging.NOTSET)
        loop.set_exception_handler(report)


@row(
    "fd / memory / pid limit reached: memory, at any step of a call",
    "it is answered, or an error soon; so are the others; "
    "then all goes on, or ConnectionClosed; a server goes on in any case",
    *ITSELF,
    within=2.0,
)
async def has_no_memory_once(ground: Ground) -> None:
    stage = Stage()
    stage.server.tool(tell)
    nth, ends = 1, Counter[str]()
    async with clients(stage, ground.transport) as make:
        with memory_reports_allowed():
            while True:
                memory = FailingMemory(nth)
                ends[await one_failure(ground, stage, make, memory)] += 1
                if not memory.where:
                    break
                nth += 1
        async with make() as client:
            assert (await client.call_tool("echo", CALL)).text == CALL["text"]
    assert nth > 50
    told = ", ".join(f"{count} {name}" for name, count in sorted(ends.items()))
    ground.kept.insert(0, (0.0, told))


async def one_failure(
    ground: Ground, stage: Stage, make: Callable[[], Client], memory: FailingMemory
) -> str:
    """Call a tool while memory runs out, beside another call; say how the first one ended."""
    loop = asyncio.get_running_loop()
    stage.entered.clear()
    stage.opened.clear()
    async with make() as client:
        held = asyncio.create_task(client.call_tool("hold"))
        await stage.entered.wait()
        began = loop.time()
        with ground.flying_time():
            with memory.failing():
                call = client.call_tool("tell", CALL, progress=lambda _: None)
                (end,) = await all_of(call)
            stage.opened.set()
            (other,) = await all_of(held)
            ground.keep(loop.time() - began, "")
            (later,) = await all_of(client.call_tool("echo", CALL))
    # What the caller itself has no memory for is an error of its own.
    assert isinstance(end, MemoryError) or ended_well(end, CALL["text"]), (memory.where, end)
    assert ended_well(other, "held"), (memory.where, other)
    assert ended_well(later, CALL["text"]), (memory.where, later)
    return type(end).__name__ if isinstance(end, BaseException) else "answered"


def ended_well(end: Any, text: str) -> bool:
    """Return whether a call has ended with its text, or with an expected error."""
    return isinstance(end, InterlockError) or end.is_error or end.text == text


# For certain


@row(
    "fd / memory / pid limit reached: an answer that does not fit into memory",
    "OutOfMemory, or StreamEnded; other calls are answered, and so is the next one",
    *(STDIO, JSON, SSE, SESSION),
    within=2.0,
)
async def gets_too_much(ground: Ground) -> None:
    told = await report_of_client(ground)
    assert told["large"].startswith(("OutOfMemory: ", "StreamEnded: ")), told
    assert (told["small"], told["later"]) == ("beside it", "later")


@row(
    "fd / memory / pid limit reached: an answer that does not fit into memory, with all others "
    "on one stream",
    "OutOfMemory, for every call: the stream is the session",
    OLDEST,
    within=2.0,
)
async def gets_too_much_on_the_only_stream(ground: Ground) -> None:
    told = await report_of_client(ground)
    for call in ("large", "small", "later"):
        assert "a message does not fit into memory" in told[call]


async def report_of_client(ground: Ground) -> dict[str, Any]:
    """Run a client with little memory that requests too much; return its report."""
    place = EVIL if ground.transport == STDIO else [await ground.url()]
    ran = await asyncio.to_thread(
        subprocess.run, [*LITTLE, "use", *place], stdout=subprocess.PIPE, check=True
    )
    told: dict[str, Any] = json.loads(ran.stdout)
    ground.keep(told["seconds"], told["large"])
    return told


@row(
    "fd / memory / pid limit reached: a server that has no memory for a request or a result",
    "an error for that call, over HTTP 503 for a request; other calls are answered, and so are "
    "the next ones",
    *(STDIO, JSON, SESSION),
    within=2.0,
)
async def has_too_little(ground: Ground) -> None:
    client = await client_of_little(ground)
    async with client:
        ground.stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", "Sending a large body", ResourceWarning)
        await client.call_tool("shrink")
        for tool, arguments in (
            ("make", {"size": TOO_MUCH}),
            ("make", {"size": 12 * MIB}),  # it fits, and not what is made of it
            ("count", {"text": "x" * 14 * MIB}),
        ):
            with ground.promise(outcome="an error, and others are answered"):
                large = asyncio.create_task(client.call_tool(tool, arguments))
                small = client.call_tool("echo", {"text": "beside it"})
                assert (await small).text == "beside it"
                (end,) = await all_of(large)
                assert isinstance(end, RemoteError | HttpError) or end.is_error, end
            with ground.promise(outcome="the next one is answered"):
                assert (await client.call_tool("count", {"text": "x" * MIB})).text == str(MIB)
        if ground.transport != STDIO:
            assert isinstance(end, HttpError)
            assert end.status == 503


async def client_of_little(ground: Ground) -> Client:
    """Start a server that will run out of memory; return its client."""
    if ground.transport == STDIO:
        return Client.stdio(*LITTLE, "serve")
    server = subprocess.Popen([*LITTLE, "serve", "http"], stderr=subprocess.PIPE, text=True)  # noqa: ASYNC220 - quick
    ground.stack.enter_context(server)
    ground.stack.callback(server.kill)
    assert server.stderr is not None
    line = await asyncio.to_thread(server.stderr.readline)
    revision = "2025-11-25" if ground.transport == SESSION else "auto"
    return Client.http(line.split()[-1], revision=revision)
