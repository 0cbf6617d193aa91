"""Callers that share a connection over HTTP: a question reaches the caller whose call asks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Hashable

import msgspec
import pytest
import uvicorn
from msgspec import Raw

from interlock import Context, Server
from interlock.auth import Principal
from interlock.calls import Call, Caller
from interlock.config import HttpServer
from interlock.toolbox import Toolbox
from interlock.types import ClientCapabilities, ElicitParams, ElicitResult
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Back:
    """The way to one caller's client: it answers with its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked = 0

    @property
    def caller(self) -> Hashable:
        return self.name

    def notify(self, method: str, params: bytes) -> None: ...

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        self.asked += 1
        answer = {"action": "accept", "content": {"name": self.name}}
        return Raw(msgspec.json.encode(answer))

    def close_stream(self, retry_ms: int) -> None: ...


async def never(_: ElicitParams) -> ElicitResult:
    raise AssertionError("the question is for a caller, not for the user of this process")


@each_row("revision", ["2025-11-25", "2026-07-28"])
async def test_question_during_one_of_two_concurrent_calls_reaches_that_caller_only(revision: str):
    server = Server("asking")
    both = asyncio.Barrier(2)

    @server.tool
    async def who(context: Context) -> str:
        """Ask for a name while another call is under way."""
        if not context.answers:
            await both.wait()
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await context.elicit("who?", form)
        return str((answer.content or {})["name"])

    listener = socket.create_server(("127.0.0.1", 0))
    app = server.asgi()
    config = uvicorn.Config(app, log_config=None, lifespan="on", ws="none")
    serving = uvicorn.Server(config)
    task = asyncio.create_task(serving.serve(sockets=[listener]))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    toolbox = Toolbox({"s": HttpServer(url=url)}, revision=revision, elicitation=never)
    try:
        async with toolbox:
            entry = toolbox.find("s:who")

            async def call(back: Back) -> str:
                caller = Caller(Principal(back.name), surface="mcp")
                capabilities = ClientCapabilities(elicitation={})
                outcome = await toolbox.handle(
                    Call(entry, {}, caller, back=back, capabilities=capabilities)
                )
                return outcome.result.text

            anna, berta = Back("anna"), Back("berta")
            assert await asyncio.gather(call(anna), call(berta)) == ["anna", "berta"]
            assert (anna.asked, berta.asked) == (1, 1)
            assert toolbox.status["s"].starts == 1
    finally:
        serving.should_exit = True
        await task
        server.close()
