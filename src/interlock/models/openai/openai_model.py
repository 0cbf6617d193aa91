"""Models from OpenAI and DeepSeek, and any server with OpenAI's chat completions API.

A model that chat completions refuse is used through the Responses API. A server's reasoning is
shown and stored, but sent back to the same server only.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from interlock.errors import ModelInterrupted, ModelUnavailable
from interlock.messages import Message
from interlock.models import learned
from interlock.models.http import AnswerStream, ApiRefusal, ModelApi, ModelEndpoint
from interlock.models.model import (
    ModelEvent,
    Notice,
    ToolDefinition,
)
from interlock.models.openai.chat_answer import ChatAnswer
from interlock.models.openai.chat_request import FILES, SOUNDS, wire_messages, wire_tool
from interlock.models.openai.responses_answer import ResponsesAnswer
from interlock.models.openai.responses_request import response_request
from interlock.models.vendors import unread_files, without_files
from interlock.text import urls

OPENAI_URL = "https://api.openai.com/v1"
DEEPSEEK_URL = "https://api.deepseek.com"
_KEYS = {"openai": "OPENAI_API_KEY", "deepseek": "DEEPSEEK_API_KEY", "ollama": "OLLAMA_API_KEY"}
# Words in the refusal of reasoning that the API cannot decrypt, or of items without it.
_ITEM_REFUSALS = ("encrypted", "reasoning", "item")
_NO_FILES: frozenset[str] = frozenset()
# Words in the refusal of a file by a model that reads only text.
_FILE_REFUSAL = re.compile(
    r"image|audio|multimodal|vision|mmproj|modalit|content (part|type)|expected a string|"
    r"file_data|must be a string",
    re.IGNORECASE,
)
# Words with which Ollama, vLLM and other servers refuse tools for a model without tools.
_TOOL_REFUSAL = re.compile(
    r"does not support tools|tools? (is|are) not supported|enable-auto-tool-choice|"
    r"does not support (function|tool) call|no endpoints found that support tool use",
    re.IGNORECASE,
)


class OpenAIModel:
    """A model that is used through a chat completions API.

    The first request opens the connections.
    """

    def __init__(
        self,
        model: str,
        *,
        provider: str = "openai",
        api_key: str | None = None,
        base_url: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Store the settings; nothing is sent yet.

        Args:
            model: The provider's name of the model.
            provider: "openai", "deepseek" or "ollama".
            api_key: The key; None for `OPENAI_API_KEY`, `DEEPSEEK_API_KEY` or `OLLAMA_API_KEY`,
                and "" for no key. Only OpenAI's and DeepSeek's own servers require a key.
            base_url: The URL up to and including "/v1"; None for the provider's `OPENAI_BASE_URL`
                or `OLLAMA_HOST`, else the provider's own URL.
            options: Members to add to each request, such as {"temperature": 0.2}. "effort" is sent
                as "reasoning_effort".

        Raises:
            ValueError: The provider is unknown.
        """
        if provider not in _KEYS:
            raise ValueError(f"provider {provider!r} is not one of {', '.join(_KEYS)}")
        self._model = model
        self._provider = provider
        self._api_key = api_key
        self._base_url = base_url
        self._api: ModelApi | None = None
        self._effort: str | None = None
        self._takes_tools = True
        self._notice = ""  # a notice for the user, shown once
        self._readable = FILES if provider != "deepseek" else _NO_FILES  # media types
        self._options = dict(options or {})
        if "effort" in self._options:
            self._options.setdefault("reasoning_effort", self._options.pop("effort"))
        if "max_tokens" in self._options and (base_url or _address(provider)) == OPENAI_URL:
            # OpenAI's own models refuse "max_tokens", the only name that other servers accept.
            self._options["max_completion_tokens"] = self._options.pop("max_tokens")

    @property
    def name(self) -> str:
        return f"{self._provider}:{self._model}{self._at}"

    @property
    def _at(self) -> str:
        return f"@{urls.display(self._base_url)}" if self._base_url else ""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        api = await self._open()
        try:
            answer, opened = await self._ask(api, messages, tools)
        except ApiRefusal as refusal:
            raise api.endpoint.explain(refusal) from refusal
        async with opened as events:
            if self._notice:
                notice, self._notice = self._notice, ""
                yield Notice(notice)
            for unread in unread_files(self.name, messages, self._readable):
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
            variable = _KEYS[self._provider]
            key = os.environ.get(variable, "") if self._api_key is None else self._api_key
            key = key.strip()
            address = self._base_url or _address(self._provider)
            if not key and address in (OPENAI_URL, DEEPSEEK_URL):
                raise ModelUnavailable(f"no key for {self.name}: set {variable} in the environment")
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            host = urlsplit(address).netloc.rpartition("@")[2]
            endpoint = ModelEndpoint(self.name, self._model, host, key, variable)
            self._api = ModelApi(endpoint, address, headers)
        return self._api

    async def _ask(
        self, api: ModelApi, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> tuple[ChatAnswer | ResponsesAnswer, AnswerStream]:
        if learned.fact(self.name).responses:
            return await self._ask_responses(api, messages, tools)
        builder = ChatAnswer(self.name, self.name)
        while True:
            request = self._request(messages, tools)
            try:
                return builder, await api.post("/chat/completions", request)
            except ApiRefusal as refusal:
                if "v1/responses" in refusal.reason:
                    await asyncio.to_thread(learned.note, self.name, responses=True)
                    return await self._ask_responses(api, messages, tools)
                if not self._learn(refusal, request):
                    raise

    def _learn(self, error: ApiRefusal, request: dict[str, Any]) -> bool:
        """Stop using a feature that a refusal shows to be missing; return whether to retry."""
        detail = error.reason
        if "tools" in request and self._takes_tools and _TOOL_REFUSAL.search(detail):
            self._takes_tools = False
            self._notice = f"{self.name} cannot use tools; it answers without them"
            return True
        # Some OpenAI models accept tools in this API only without reasoning.
        unset = not (self._effort or "reasoning_effort" in self._options)
        if error.param == "reasoning_effort" and "tools" in request and unset:
            self._effort = "none"
            return True
        contents = [each["content"] for each in request["messages"]]
        kinds = {part["type"] for each in contents if isinstance(each, list) for part in each}
        if kinds and _FILE_REFUSAL.search(detail):
            # Many models cannot process sound, but can process images.
            self._readable = self._readable - SOUNDS.keys() if "input_audio" in kinds else _NO_FILES
            return True
        return False

    async def _ask_responses(
        self, api: ModelApi, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> tuple[ResponsesAnswer, AnswerStream]:
        provider = f"responses:{self.name}"
        builder = ResponsesAnswer(self.name, provider)
        arguments = (self._model, messages, tools, self._options)
        signed = response_request(*arguments, provider=provider)
        try:
            return builder, await api.post("/responses", signed)
        except ApiRefusal as refusal:
            plain = response_request(*arguments, provider=provider, signed=False)
            if plain == signed or not any(word in refusal.reason for word in _ITEM_REFUSALS):
                raise
        return builder, await api.post("/responses", plain)

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "messages": wire_messages(
                without_files(messages, self._readable),
                provider=self.name,
            ),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools and self._takes_tools:
            request["tools"] = [wire_tool(tool) for tool in tools]
            if self._effort:
                request["reasoning_effort"] = self._effort
        return request | self._options


def _address(provider: str) -> str:
    if provider == "deepseek":
        return DEEPSEEK_URL
    if provider == "ollama":
        return ollama_url()
    return os.environ.get("OPENAI_BASE_URL") or OPENAI_URL


def ollama_url() -> str:
    """Return Ollama's base URL: from `OLLAMA_HOST`, else the default URL on this machine."""
    host = os.environ.get("OLLAMA_HOST", "").strip().rstrip("/") or "127.0.0.1"
    scheme, found, address = host.rpartition("://")
    # The variable also sets the address the server listens on; clients cannot connect to 0.0.0.0.
    address = re.sub(r"^0\.0\.0\.0(?=:|$)", "127.0.0.1", address)
    if ":" not in address.rpartition("]")[2]:
        address = f"{address}:11434"
    return f"{scheme if found else 'http'}://{address}/v1"
