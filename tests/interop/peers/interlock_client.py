"""The client of interlock, in both eras: see `story.main`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from story import FORM, ROOTS, SAMPLED, Heard, Progress, main

from interlock import Client
from interlock.revisions import NEWEST_LEGACY
from interlock.types import (
    CreateMessageResult,
    ElicitResult,
    LogMessage,
    PromptReference,
    ResourceTemplateReference,
)


class Ours:
    def __init__(self, client: Client, heard: Heard) -> None:
        self._client = client
        self.heard = heard

    async def about(self) -> dict[str, Any]:
        return {
            "revision": self._client.revision,
            "name": self._client.server_info.name,
            "instructions": self._client.instructions,
        }

    async def tools(self) -> list[dict[str, Any]]:
        return msgspec.to_builtins(await self._client.list_tools())

    async def call(
        self, name: str, arguments: dict[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        def step(told: Any) -> None:
            progress(told.progress, told.total, told.message)

        callback = step if progress else None
        return msgspec.to_builtins(
            await self._client.call_tool(name, arguments, timeout=20, progress=callback)
        )

    async def resources(self) -> list[dict[str, Any]]:
        return msgspec.to_builtins(await self._client.list_resources())

    async def templates(self) -> list[dict[str, Any]]:
        return msgspec.to_builtins(await self._client.list_resource_templates())

    async def read(self, uri: str) -> dict[str, Any]:
        return msgspec.to_builtins(await self._client.read_resource(uri))

    async def prompts(self) -> list[dict[str, Any]]:
        return msgspec.to_builtins(await self._client.list_prompts())

    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]:
        return msgspec.to_builtins(await self._client.get_prompt(name, arguments))

    async def complete(
        self, ref: dict[str, str], argument: str, typed: str, before: dict[str, str]
    ) -> dict[str, Any]:
        kinds = PromptReference | ResourceTemplateReference
        reference = msgspec.convert(ref, kinds)
        completion = await self._client.complete(reference, argument, typed, context=before)
        return {"completion": msgspec.to_builtins(completion)}

    @asynccontextmanager
    async def watching(self, uri: str) -> AsyncGenerator[None, None]:
        await self._client.subscribe(uri)
        yield
        await self._client.unsubscribe(uri)


@asynccontextmanager
async def connect(era: str, target: list[str]) -> AsyncGenerator[Ours, None]:
    heard = Heard()

    async def sample(_params: Any) -> CreateMessageResult:
        return msgspec.convert(SAMPLED, CreateMessageResult)

    async def elicit(params: Any) -> ElicitResult:
        fields = params.requested_schema["properties"]
        content = {name: value for name, value in FORM.items() if name in fields}
        return ElicitResult(action="accept", content=content)

    def log(message: LogMessage) -> None:
        heard.logs.append([message.level, message.logger, message.data])

    over = Client.stdio if len(target) > 1 else Client.http
    async with over(
        *target,
        revision="auto" if era == "auto" else NEWEST_LEGACY,
        roots=ROOTS,
        sampling=sample,
        elicitation=elicit,
        on_log=log,
        on_list_changed=heard.add,
        on_resource_updated=heard.add,
    ) as client:
        await client.set_log_level("info")
        await client.ping()
        yield Ours(client, heard)


if __name__ == "__main__":
    main(connect)
