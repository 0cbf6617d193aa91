"""The client of `mcp` 1, which knows the handshake only: python mcp1_client.py legacy TARGET..."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl, FileUrl
from story import FORM, ROOTS, SAMPLED, Heard, Progress, main, wire


class Mcp1:
    def __init__(self, session: ClientSession, begun: types.InitializeResult, heard: Heard) -> None:
        self._session = session
        self._begun = begun
        self.heard = heard

    async def about(self) -> dict[str, Any]:
        return {
            "revision": self._begun.protocolVersion,
            "name": self._begun.serverInfo.name,
            "instructions": self._begun.instructions,
        }

    async def tools(self) -> list[dict[str, Any]]:
        return wire(await self._session.list_tools())["tools"]

    async def call(
        self, name: str, arguments: dict[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        async def step(done: float, total: float | None, message: str | None) -> None:
            progress(done, total, message)

        callback = step if progress else None
        return wire(await self._session.call_tool(name, arguments, progress_callback=callback))

    async def resources(self) -> list[dict[str, Any]]:
        return wire(await self._session.list_resources())["resources"]

    async def templates(self) -> list[dict[str, Any]]:
        return wire(await self._session.list_resource_templates())["resourceTemplates"]

    async def read(self, uri: str) -> dict[str, Any]:
        return wire(await self._session.read_resource(AnyUrl(uri)))

    async def prompts(self) -> list[dict[str, Any]]:
        return wire(await self._session.list_prompts())["prompts"]

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return wire(await self._session.get_prompt(name, arguments))

    async def complete(
        self, ref: dict[str, str], argument: str, typed: str, before: dict[str, str]
    ) -> dict[str, Any]:
        kinds = {"ref/prompt": types.PromptReference}
        kind = kinds.get(ref["type"], types.ResourceTemplateReference)
        typing = {"name": argument, "value": typed}
        return wire(await self._session.complete(kind.model_validate(ref), typing, before))

    @asynccontextmanager
    async def watching(self, uri: str) -> AsyncGenerator[None, None]:
        await self._session.subscribe_resource(AnyUrl(uri))
        yield
        await self._session.unsubscribe_resource(AnyUrl(uri))


@asynccontextmanager
async def connect(_era: str, target: list[str]) -> AsyncGenerator[Mcp1, None]:
    heard = Heard()

    async def sample(_context: Any, _params: Any) -> types.CreateMessageResult:
        return types.CreateMessageResult.model_validate(SAMPLED)

    async def elicit(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content=FORM)

    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(each)) for each in ROOTS])

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        heard.logs.append([params.level, params.logger, params.data])

    async def note(message: Any) -> None:
        if isinstance(message, types.ServerNotification):
            change = message.root
            heard.add_notification(change.method, getattr(change.params, "uri", None))

    async with AsyncExitStack() as stack:
        if len(target) == 1:
            over = sse_client if target[0].endswith("/sse") else streamable_http_client
            streams = await stack.enter_async_context(over(target[0]))
        else:
            command = StdioServerParameters(command=target[0], args=target[1:])
            streams = await stack.enter_async_context(stdio_client(command))
        session = await stack.enter_async_context(
            ClientSession(
                streams[0],
                streams[1],
                read_timeout_seconds=timedelta(seconds=20),
                sampling_callback=sample,
                elicitation_callback=elicit,
                list_roots_callback=roots,
                logging_callback=log,
                message_handler=note,
            )
        )
        begun = await session.initialize()
        await session.set_logging_level("info")
        await session.send_ping()
        yield Mcp1(session, begun, heard)


if __name__ == "__main__":
    main(connect)
