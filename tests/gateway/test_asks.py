"""What servers behind a gateway may ask its clients."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from interlock import Client
from interlock.config import StdioServer
from interlock.config.gateway import ViewSearch
from interlock.config.servers import AUTO, Question
from interlock.gateway import ForwardingServer
from interlock.policy import Policy
from interlock.types import (
    CallToolResult,
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    TextContent,
)
from tests.support.scripted_server import LEGACY, MODERN

ASKING = """
from interlock import Context, Server
server = Server("asking")

@server.tool
async def sample(context: Context) -> str:
    return (await context.sample("hi", 10)).text

@server.tool
async def elicit(context: Context) -> str:
    return (await context.elicit("who?", {"type": "object", "properties": {}})).action

@server.tool
def allowed(context: Context) -> list[str]:
    return [each for each in ("sampling", "elicitation", "roots") if context.can(each)]

server.run()
"""


async def sampled(_: CreateMessageParams) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(text="hello"), model="m")


async def declined(_: ElicitParams) -> ElicitResult:
    return ElicitResult(action="decline")


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize("executor", ["", "interlock__call_write_tool"])
@pytest.mark.parametrize("asks", [AUTO, (), ("sampling",)], ids=["auto", "never", "sampling"])
async def test_server_questions_are_limited_to_the_configured_kinds(
    asks: tuple[Question, ...], executor: str, tmp_path: Path
):
    script = tmp_path / "asking.py"
    script.write_text(ASKING)
    server = StdioServer(command=sys.executable, args=(str(script),), asks=asks)
    search = ViewSearch(is_on=bool(executor))
    gateway = ForwardingServer({"s": server}, Policy.compile(None, search=search))

    async def call(client: Client, name: str) -> CallToolResult:
        given = (executor, {"name": name}) if executor else (name,)
        return await client.call_tool(*given)

    for revision in (LEGACY, MODERN):
        async with Client.memory(
            gateway, revision=revision, sampling=sampled, elicitation=declined, roots=[]
        ) as client:
            allowed = (await call(client, "s__allowed")).structured
            sample = await call(client, "s__sample")
            elicit = await call(client, "s__elicit")

        found = allowed["result"] if isinstance(allowed, dict) else allowed
        assert sorted(found) == sorted(asks)
        assert (sample.text == "hello") is ("sampling" in asks)
        assert (elicit.text == "decline") is ("elicitation" in asks)
