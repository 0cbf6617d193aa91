"""The client of `mcp` 2, in both eras: see `story.main`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.subscriptions import ResourceUpdated
from story import FORM, ROOTS, SAMPLED, Heard, Progress, main, wire


class Mcp2:
    def __init__(self, client: Client, heard: Heard) -> None:
        self._client = client
        self.heard = heard

    @property
    def _is_modern(self) -> bool:
        return self._client.protocol_version >= "2026"

    async def about(self) -> dict[str, Any]:
        info = self._client.server_info
        return {
            "revision": self._client.protocol_version,
            "name": info and info.name,
            "instructions": self._client.instructions,
        }

    async def tools(self) -> list[dict[str, Any]]:
        return wire(await self._client.list_tools())["tools"]

    async def call(
        self, name: str, arguments: dict[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        async def step(done: float, total: float | None, message: str | None) -> None:
            progress(done, total, message)

        callback = step if progress else None
        return wire(await self._client.call_tool(name, arguments, progress_callback=callback))

    async def resources(self) -> list[dict[str, Any]]:
        return wire(await self._client.list_resources())["resources"]

    async def templates(self) -> list[dict[str, Any]]:
        return wire(await self._client.list_resource_templates())["resourceTemplates"]

    async def read(self, uri: str) -> dict[str, Any]:
        return wire(await self._client.read_resource(uri))

    async def prompts(self) -> list[dict[str, Any]]:
        return wire(await self._client.list_prompts())["prompts"]

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return wire(await self._client.get_prompt(name, arguments))

    async def complete(
        self, ref: dict[str, str], argument: str, typed: str, before: dict[str, str]
    ) -> dict[str, Any]:
        kinds = {"ref/prompt": types.PromptReference}
        kind = kinds.get(ref["type"], types.ResourceTemplateReference)
        typing = {"name": argument, "value": typed}
        return wire(await self._client.complete(kind.model_validate(ref), typing, before))

    @asynccontextmanager
    async def watching(self, uri: str) -> AsyncGenerator[None, None]:
        if not self._is_modern:
            await self._client.subscribe_resource(uri)
            yield
            return
        async with self._client.listen(
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
async def connect(era: str, target: list[str]) -> AsyncGenerator[Mcp2, None]:
    heard = Heard()

    async def sample(_context: Any, _params: Any) -> types.CreateMessageResult:
        return types.CreateMessageResult.model_validate(SAMPLED)

    async def elicit(_context: Any, _params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content=FORM)

    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=each) for each in ROOTS])

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        heard.logs.append([params.level, params.logger, params.data])

    async def note(message: Any) -> None:
        if not isinstance(message, Exception):
            heard.add_notification(message.method, getattr(message.params, "uri", None))

    if len(target) > 1:
        server: Any = StdioServerParameters(command=target[0], args=target[1:])
    else:
        server = sse_client(target[0]) if target[0].endswith("/sse") else target[0]
    async with Client(
        server,
        mode=era,
        sampling_callback=sample,
        elicitation_callback=elicit,
        list_roots_callback=roots,
        logging_callback=log,
        log_level="info",
        message_handler=note,
        read_timeout_seconds=20,
    ) as client:
        if client.protocol_version < "2026":
            await client.set_logging_level("info")
            await client.send_ping()
        yield Mcp2(client, heard)


if __name__ == "__main__":
    main(connect)
