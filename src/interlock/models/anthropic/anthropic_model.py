"""Anthropic's models, and any server with Anthropic's Messages API.

Rules for writing a conversation in the format of the Messages API:

1. System messages become the one `system` text.
2. Consecutive messages with the same role become one message, in which tool results come first.
3. Signed blocks, such as thinking, are sent back unchanged. If the API refuses them because the
   tools or the model have changed, the request is repeated without them.
4. The ends of the tools, the instructions and the conversation are marked for the prompt cache, so
   that the next request reads them from the cache. If a server refuses the marks, none are sent.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from interlock.errors import ModelInterrupted, ModelUnavailable
from interlock.messages import (
    Message,
    SystemMessage,
)
from interlock.models import learned
from interlock.models.anthropic.messages_answer import MessagesAnswer
from interlock.models.anthropic.messages_request import (
    FILES,
    LARGEST_IMAGE,
    text_blocks,
    wire_messages,
)
from interlock.models.http import AnswerStream, ApiRefusal, ModelApi, ModelEndpoint
from interlock.models.model import ModelEvent, ToolDefinition
from interlock.models.vendors import object_schema, unread_files
from interlock.text import urls

ANTHROPIC_URL = "https://api.anthropic.com"
_PROVIDER = "anthropic"
_VERSION = "2023-06-01"  # of the API, in a header of each request
# "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for MODEL"
_OUTPUT_LIMIT = re.compile(r"max_tokens: \d+ > (\d+)")


class AnthropicModel:
    """A model that is used through the Messages API.

    The first request opens the connections.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = 32_000,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the settings; nothing is sent yet.

        Args:
            model: The provider's name of the model.
            api_key: The API key; None uses `ANTHROPIC_API_KEY`, else `ANTHROPIC_AUTH_TOKEN`.
            base_url: The API's URL; None uses `ANTHROPIC_BASE_URL`, else Anthropic's own URL.
            max_tokens: The maximum tokens of one answer, thinking included. If the API refuses the
                number as too high, the model's own limit is used.
            options: Members to add to each request, such as {"temperature": 0.2}. "effort" is sent
                in `output_config`.
        """
        self._model = model
        self._api_key = api_key
        self._base_url = base_url
        self._options = dict(options or {})
        wanted = self._options.pop("max_tokens", max_tokens)
        self._max_tokens = min(wanted, learned.fact(self.name).output_limit or wanted)
        if effort := self._options.pop("effort", None):
            self._options.setdefault("output_config", {"effort": effort})
        self._takes_marks = True
        self._api: ModelApi | None = None

    @property
    def name(self) -> str:
        address = f"@{urls.display(self._base_url)}" if self._base_url else ""
        return f"{_PROVIDER}:{self._model}{address}"

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        api = await self._open()
        answer = MessagesAnswer(self.name)
        try:
            opened = await self._ask(api, messages, tools)
        except ApiRefusal as refusal:
            raise api.endpoint.explain(refusal) from refusal
        async with opened as events:
            for unread in unread_files(self.name, messages, FILES, largest=LARGEST_IMAGE):
                yield unread
            try:
                if events.whole is not None:
                    for piece in answer.add_whole(events.whole):
                        yield piece
                async for event in events:
                    for piece in answer.add(event):
                        yield piece
            except ValueError as error:
                raise api.endpoint.cut_off(str(error)) from error
            except ModelInterrupted:
                if not answer.is_stated:
                    raise
        yield answer.reply(marked=events.marked)

    async def prepare(self) -> None:
        """Import the HTTP client, so that the first request is fast.

        Raises:
            ModelUnavailable: The key is not set.
        """
        await (await self._open()).open()

    async def close(self) -> None:
        """Close the connections. Closing twice is allowed, and the next request reopens them."""
        if self._api is not None:
            await self._api.close()

    async def _open(self) -> ModelApi:
        if self._api is None:
            key = (self._api_key or os.environ.get("ANTHROPIC_API_KEY") or "").strip()
            token = "" if key else os.environ.get("ANTHROPIC_AUTH_TOKEN", "").strip()
            if not (key or token):
                raise ModelUnavailable(
                    f"no key for {self.name}: set ANTHROPIC_API_KEY in the environment"
                )
            url = self._base_url or os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL
            host = urlsplit(url).netloc.rpartition("@")[2]
            variable = "ANTHROPIC_API_KEY" if key else "ANTHROPIC_AUTH_TOKEN"
            endpoint = ModelEndpoint(self.name, self._model, host, key or token, variable)
            sent = {"X-Api-Key": key} if key else {"Authorization": f"Bearer {token}"}
            self._api = ModelApi(endpoint, url, {**sent, "Anthropic-Version": _VERSION})
        return self._api

    async def _ask(
        self, api: ModelApi, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> AnswerStream:
        request = self._request(messages, tools, signed=True)
        try:
            return await api.post("/v1/messages", request)
        except ApiRefusal as refusal:
            reason = refusal.reason
            if refusal.status != 400:
                raise
            if not (await self._learn_limit(reason) or self._learn_marks(reason)):
                plain = self._request(messages, tools, signed=False)
                if "thinking" not in reason or plain == request:
                    raise
                return await api.post("/v1/messages", plain)
        return await self._ask(api, messages, tools)

    async def _learn_limit(self, refusal: str) -> bool:
        """Lower `max_tokens` to the limit that a refusal states; return whether it stated one."""
        found = _OUTPUT_LIMIT.search(refusal)
        if found is None or not 0 < int(found[1]) < self._max_tokens:
            return False
        self._max_tokens = int(found[1])
        await asyncio.to_thread(learned.note, self.name, output_limit=self._max_tokens)
        return True

    def _learn_marks(self, refusal: str) -> bool:
        if "cache_control" not in refusal or not self._takes_marks:
            return False
        self._takes_marks = False
        return True

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], *, signed: bool
    ) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "max_tokens": self._max_tokens,
            "messages": wire_messages(messages, provider=self.name if signed else ""),
            "stream": True,
        }
        system = [m.content for m in messages if isinstance(m, SystemMessage) and m.content.strip()]
        if system:
            request["system"] = text_blocks("\n\n".join(system))
        if tools:
            request["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": object_schema(tool.input_schema),
                }
                for tool in tools
            ]
        if self._takes_marks:
            _mark(request)
        return request | self._options


def _mark(request: dict[str, Any]) -> None:
    """Mark the ends of the tools, instructions and messages for the prompt cache."""
    conversation = request["messages"][-1]["content"] if request["messages"] else []
    for blocks in (request.get("tools"), request.get("system"), conversation):
        if blocks and blocks[-1].get("type") not in ("thinking", "redacted_thinking"):
            blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}
