"""The lifespan is entered once and left once, in whatever order its holders come and go."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec import Raw

from interlock import Client, Server
from interlock.protocol import Request
from tests.support.rows import each_row


class Journal:
    """Notes events; its lifespan must be left by the task that entered it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.left = asyncio.Event()

    @asynccontextmanager
    async def lifespan(self, server: Server):
        self.events.append("entering")
        await asyncio.sleep(0)
        self.events.append("entered")
        task = asyncio.current_task()
        yield
        assert asyncio.current_task() is task
        self.events.append("left")
        self.left.set()


async def test_the_lifespan_lasts_from_the_first_holder_to_the_last():
    journal = Journal()
    server = Server("s", lifespan=journal.lifespan)
    first, second = server.running(), server.running()

    async with first:
        await second.__aenter__()
    assert journal.events == ["entering", "entered"]  # the second holder is left
    await second.__aexit__(None, None, None)

    assert journal.events == ["entering", "entered", "left"]


async def test_requests_wait_until_the_lifespan_is_entered():
    journal = Journal()
    server = Server("s", lifespan=journal.lifespan)

    @server.tool
    async def entered() -> str:
        return journal.events[-1]

    async with Client.memory(server) as one, Client.memory(server) as other:
        assert (await one.call_tool("entered")).text == "entered"
        assert (await other.call_tool("entered")).text == "entered"
    await journal.left.wait()

    assert journal.events == ["entering", "entered", "left"]


async def test_a_server_can_run_twice():
    journal = Journal()
    server = Server("s", lifespan=journal.lifespan)

    for _ in range(2):
        async with server.running():
            pass

    assert journal.events == ["entering", "entered", "left"] * 2


async def test_holder_that_arrives_while_the_lifespan_ends_enters_it_again():
    journal = Journal()
    server = Server("s", lifespan=journal.lifespan)
    leaving = server.running()
    await leaving.__aenter__()
    going = asyncio.ensure_future(leaving.__aexit__(None, None, None))
    await asyncio.sleep(0)

    async with server.running():
        assert journal.events.count("entered") == 2
    await going

    assert journal.events == ["entering", "entered", "left"] * 2


async def test_an_error_of_the_lifespan_reaches_each_holder_and_the_next_one_retries():
    tries = []

    @asynccontextmanager
    async def lifespan(server: Server):
        tries.append(1)
        await asyncio.sleep(0)
        if len(tries) == 1:
            raise OSError("no database")
        yield

    server = Server("s", lifespan=lifespan)

    async def use() -> None:
        async with server.running():
            pass

    results = await asyncio.gather(use(), use(), return_exceptions=True)
    await use()

    assert [str(each) for each in results] == ["no database"] * 2
    assert len(tries) == 2


async def test_a_cancelled_holder_leaves_the_lifespan():
    journal = Journal()
    server = Server("s", lifespan=journal.lifespan)
    inside = asyncio.Event()

    async def use() -> None:
        async with server.running():
            inside.set()
            await asyncio.Event().wait()

    using = asyncio.create_task(use())
    await inside.wait()
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using

    assert journal.events == ["entering", "entered", "left"]


async def test_middleware_wraps_every_request_with_the_first_one_outermost():
    seen = []

    def named(name: str):
        def middleware(handler):
            async def handle(request, context):
                seen.append((name, request.method))
                return await handler(request, context)

            return handle

        return middleware

    server = Server("s", middleware=[named("outer"), named("inner")])
    server.tool(name="t")(lambda: "")
    async with Client.memory(server, revision="2025-11-25") as client:
        await client.call_tool("t")

    assert seen == [
        ("outer", "initialize"),
        ("inner", "initialize"),
        ("outer", "tools/call"),
        ("inner", "tools/call"),
    ]


async def test_middleware_gets_the_object_of_the_lifespan():
    seen = []

    @asynccontextmanager
    async def opened(_server):
        yield "database"

    def middleware(handler):
        async def handle(request, context):
            seen.append(context.lifespan)
            return await handler(request, context)

        return handle

    server = Server("s", lifespan=opened, middleware=[middleware])
    server.tool(name="t")(lambda: "")
    async with Client.memory(server) as client:
        await client.list_tools()

    assert set(seen) == {"database"}


async def test_middleware_can_refuse_requests_and_see_results():
    answers = []

    def middleware(handler):
        async def handle(request, context):
            answer = await handler(request, context)
            answers.append(answer)
            return answer

        return handle

    server = Server("s", middleware=[middleware])
    server.tool(name="t")(lambda: "hello")
    async with Client.memory(server) as client:
        await client.call_tool("t")

    assert b'"text":"hello"' in answers[-1]


@each_row("revision", ["2025-11-25", "2026-07-28"])
async def test_middleware_can_change_the_params_of_a_call(revision):
    def middleware(handler):
        async def handle(request, context):
            params = Raw(bytes(request.params).replace(b"secret", b"hidden"))
            return await handler(Request(request.id, request.method, params), context)

        return handle

    server = Server("s", middleware=[middleware])

    @server.tool
    async def echo(text: str) -> str:
        return text

    async with Client.memory(server, revision=revision) as client:
        assert (await client.call_tool("echo", {"text": "a secret"})).text == "a hidden"
