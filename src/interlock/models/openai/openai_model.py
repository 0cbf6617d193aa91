"""Models from OpenAI and DeepSeek, and any server with OpenAI's chat completions API.

A model that chat completions refuse is used through the Responses API. A server's reasoning is
shown and stored, but sent back to the same server only.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from interlock.errors import MissingExtra, ModelUnavailable
from interlock.messages import (
    Message,
)
from interlock.models import learned
from interlock.models.model import (
    ModelEvent,
    Notice,
    ToolDefinition,
)
from interlock.models.openai.chat_answer import ChatAnswer
from interlock.models.openai.chat_request import FILES, SOUNDS, wire_messages, wire_tool
from interlock.models.openai.responses_answer import ResponsesAnswer
from interlock.models.openai.responses_request import response_request
from interlock.models.vendors import (
    ModelEndpoint,
    event_fields,
    whole_answer,
    without_files,
)
from interlock.models.wire_tools import WireTools
from interlock.text import urls

if TYPE_CHECKING:
    from openai import AsyncOpenAI

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

    The first request imports the vendor's package and creates the client.
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
        self._opening = asyncio.Lock()
        self._connection: _Connection | None = None
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
        connection = await self._open()
        started = False
        wire = WireTools(tools, self._model)
        try:
            answer, opened = await self._ask(connection, wire.sent(messages), wire.definitions)
            async with opened as chunks:
                started = True
                if self._notice:
                    notice, self._notice = self._notice, ""
                    yield Notice(notice)
                whole = await whole_answer(chunks.response, connection.endpoint)
                if whole is not None:
                    for piece in answer.add_whole(whole):
                        yield piece
                else:
                    async for chunk in chunks:
                        for piece in answer.add(event_fields(chunk)):
                            yield piece
        except connection.failures as error:
            raise connection.endpoint.explain(error, started=started) from error
        yield wire.received(answer.reply())

    async def prepare(self) -> None:
        """Import the vendor's package and create the client, so that the first request is fast.

        Raises:
            ModelUnavailable: The key is not set.
            MissingExtra: The package is not installed.
        """
        await self._open()

    async def close(self) -> None:
        """Close the connections. Closing twice is allowed, and the next request reopens them."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.client.close()

    async def _open(self) -> _Connection:
        async with self._opening:
            if self._connection is None:
                variable = _KEYS[self._provider]
                key = os.environ.get(variable, "") if self._api_key is None else self._api_key
                address = self._base_url or _address(self._provider)
                if not key and address in (OPENAI_URL, DEEPSEEK_URL):
                    raise ModelUnavailable(
                        f"no key for {self.name}: set {variable} in the environment"
                    )
                # The import takes most of a second, which would block the event loop.
                self._connection = await asyncio.to_thread(self._connect, address, key)
            return self._connection

    def _connect(self, address: str, key: str) -> _Connection:
        try:
            import openai
        except ImportError as error:
            raise MissingExtra("OpenAI and compatible models", "openai") from error
        http_client = None
        if urls.is_loopback(urlsplit(address).hostname or ""):
            # No proxy; certificates still come from SSL_CERT_FILE, which this context reads.
            http_client = openai.DefaultAsyncHttpxClient(
                trust_env=False, verify=ssl.create_default_context()
            )
        client = openai.AsyncOpenAI(
            api_key=key or "none",  # the package requires one; servers without keys ignore it
            base_url=address,
            http_client=http_client,
        )
        endpoint = ModelEndpoint(
            name=self.name,
            model=self._model,
            host=client.base_url.netloc.decode(),
            key=key,
            variable=_KEYS[self._provider],
        )
        failures = (openai.OpenAIError, ValueError)
        refused = (openai.BadRequestError, openai.NotFoundError)
        return _Connection(
            client,
            client.chat.completions.create,
            client.responses.create,
            endpoint,
            failures,
            refused,
        )

    async def _ask(
        self,
        connection: _Connection,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition],
    ) -> tuple[ChatAnswer | ResponsesAnswer, Any]:
        if learned.fact(self.name).responses:
            return await self._ask_responses(connection, messages, tools)
        builder = ChatAnswer(self.name, f"{self._provider}{self._at}")
        while True:
            request = self._request(messages, tools)
            try:
                return builder, await connection.create(**request)
            except connection.refused as error:
                if "v1/responses" in str(error):
                    await asyncio.to_thread(learned.note, self.name, responses=True)
                    return await self._ask_responses(connection, messages, tools)
                if not self._learn(error, request):
                    raise

    def _learn(self, error: Exception, request: dict[str, Any]) -> bool:
        """Stop using a feature that a refusal shows to be missing; return whether to retry."""
        detail = str(error)
        if "tools" in request and self._takes_tools and _TOOL_REFUSAL.search(detail):
            self._takes_tools = False
            self._notice = f"{self.name} cannot use tools; it answers without them"
            return True
        # Some OpenAI models accept tools in this API only without reasoning.
        unset = not (self._effort or "reasoning_effort" in self._options)
        if getattr(error, "param", None) == "reasoning_effort" and "tools" in request and unset:
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
        self,
        connection: _Connection,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition],
    ) -> tuple[ResponsesAnswer, Any]:
        provider = f"responses:{self.name}"
        builder = ResponsesAnswer(self.name, provider)
        arguments = (self._model, messages, tools, self._options)
        signed = response_request(*arguments, provider=provider)
        try:
            return builder, await connection.respond(**signed)
        except connection.refused as error:
            plain = response_request(*arguments, provider=provider, signed=False)
            if plain == signed or not any(word in str(error) for word in _ITEM_REFUSALS):
                raise
        return builder, await connection.respond(**plain)

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "messages": wire_messages(
                without_files(messages, self._readable),
                provider=f"{self._provider}{self._at}",
            ),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._options:
            request["extra_body"] = self._options
        if tools and self._takes_tools:
            request["tools"] = [wire_tool(tool) for tool in tools]
            if self._effort:
                request["reasoning_effort"] = self._effort
        return request


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


class _Connection(NamedTuple):
    client: AsyncOpenAI
    create: Callable[..., Any]  # methods of the client; looking them up imports much
    respond: Callable[..., Any]
    endpoint: ModelEndpoint
    failures: tuple[type[Exception], ...]  # errors of the package, and of decoding its results
    refused: tuple[type[Exception], ...]
