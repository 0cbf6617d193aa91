"""The client of FastMCP 4, in both eras: see `story.main`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import SSETransport, StdioTransport, StreamableHttpTransport
from mcp.client.subscriptions import ResourceUpdated, listen
from story import FORM, ROOTS, SAMPLED, Heard, Progress, main, wire

WANTS_LOGS = {"io.modelcontextprotocol/logLevel": "info"}


class FastMcp4:
    def __init__(self, client: Client[Any], heard: Heard) -> None:
        self._client = client
        self.heard = heard

    @property
    def _is_modern(self) -> bool:
        return (self._client.protocol_version or "") >= "2026"

    async def about(self) -> dict[str, Any]:
        info = self._client.server_info
        return {
            "revision": self._client.protocol_version,
            "name": info and info.name,
            "instructions": self._client.instructions,
        }

    async def tools(self) -> list[dict[str, Any]]:
        return [wire(tool) for tool in await self._client.list_tools()]

    async def call(
        self, name: str, arguments: dict[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        async def step(done: float, total: float | None, message: str | None) -> None:
            progress(done, total, message)

        result = await self._client.call_tool_mcp(
            name,
            arguments,
            progress_handler=step if progress else None,
            meta=WANTS_LOGS if self._is_modern else None,
        )
        return wire(result)

    async def resources(self) -> list[dict[str, Any]]:
        return [wire(each) for each in await self._client.list_resources()]

    async def templates(self) -> list[dict[str, Any]]:
        return [wire(each) for each in await self._client.list_resource_templates()]

    async def read(self, uri: str) -> dict[str, Any]:
        return wire(await self._client.read_resource_mcp(uri))

    async def prompts(self) -> list[dict[str, Any]]:
        return [wire(each) for each in await self._client.list_prompts()]

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return wire(await self._client.get_prompt_mcp(name, arguments))

    async def complete(
        self, ref: dict[str, str], argument: str, typed: str, before: dict[str, str]
    ) -> dict[str, Any]:
        kinds = {"ref/prompt": types.PromptReference}
        kind = kinds.get(ref["type"], types.ResourceTemplateReference)
        typing = {"name": argument, "value": typed}
        return wire(await self._client.complete_mcp(kind.model_validate(ref), typing, before))

    @asynccontextmanager
    async def watching(self, uri: str) -> AsyncGenerator[None, None]:
        if not self._is_modern:
            await self._client.session.subscribe_resource(uri)
            yield
            return
        async with listen(
            self._client.session,
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=[uri],
        ) as changes:
            listening = asyncio.create_task(self._listen(changes))
            yield
            listening.cancel()

    async def _listen(self, changes: Any) -> None:
        async for change in changes:
            if isinstance(change, ResourceUpdated):
                self.heard.add(change.uri)
            else:
                self.heard.add(type(change).__name__.removesuffix("ListChanged").lower())


@asynccontextmanager
async def connect(era: str, target: list[str]) -> AsyncGenerator[FastMcp4, None]:
    heard = Heard()

    async def sample(_messages: Any, _params: Any, _context: Any) -> types.CreateMessageResult:
        return types.CreateMessageResult.model_validate(SAMPLED)

    async def elicit(_message: str, _kind: Any, _params: Any, _context: Any) -> Any:
        return ElicitResult(action="accept", content=FORM)

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        heard.logs.append([params.level, params.logger, params.data])

    async def note(message: Any) -> None:
        if not isinstance(message, Exception):
            heard.add_notification(message.method, getattr(message.params, "uri", None))

    if len(target) > 1:
        transport: Any = StdioTransport(target[0], target[1:], keep_alive=False)
    else:
        over = SSETransport if target[0].endswith("/sse") else StreamableHttpTransport
        transport = over(target[0])
    async with Client(
        transport,
        mode=era,
        roots=ROOTS,
        sampling_handler=sample,
        elicitation_handler=elicit,
        log_handler=log,
        message_handler=note,
        timeout=20,
    ) as client:
        if (client.protocol_version or "") < "2026":
            await client.set_logging_level("info")
            await client.ping()
        yield FastMcp4(client, heard)


if __name__ == "__main__":
    main(connect)
