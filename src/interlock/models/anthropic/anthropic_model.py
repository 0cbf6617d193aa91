"""Anthropic's models, through the vendor's own package.

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
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from interlock.errors import MissingExtra, ModelInterrupted, ModelUnavailable
from interlock.messages import (
    Message,
    SystemMessage,
)
from interlock.models import learned
from interlock.models.anthropic.messages_answer import MessagesAnswer
from interlock.models.anthropic.messages_request import text_blocks, wire_messages
from interlock.models.model import ModelEvent, ToolDefinition
from interlock.models.vendors import (
    ModelEndpoint,
    event_fields,
    whole_answer,
)
from interlock.models.wire_tools import WireTools
from interlock.text import urls

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic

_PROVIDER = "anthropic"
_LONGEST_WAIT = (
    60  # seconds; if the server asks for a longer wait before a retry, the request fails
)
# "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for MODEL"
_OUTPUT_LIMIT = re.compile(r"max_tokens: \d+ > (\d+)")


class AnthropicModel:
    """A model that is used through the Messages API.

    The first request imports the vendor's package and creates the client.
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
        self._opening = asyncio.Lock()
        self._connection: _Connection | None = None

    @property
    def name(self) -> str:
        address = f"@{urls.display(self._base_url)}" if self._base_url else ""
        return f"{_PROVIDER}:{self._model}{address}"

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        connection = await self._open()
        answer = MessagesAnswer(self.name)
        wire = WireTools(tools)
        try:
            async with await self._ask(connection, wire.sent(messages), wire.definitions) as events:
                answer.started = True
                if await whole_answer(events.response, connection.endpoint) is not None:
                    raise ModelInterrupted(
                        f"{connection.endpoint.host} did not stream the answer of {self.name}"
                    )
                async for event in events:
                    for piece in answer.add(event_fields(event)):
                        yield piece
        except connection.failures as error:
            raise connection.endpoint.explain(error, started=answer.started) from error
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
                key = self._api_key or os.environ.get("ANTHROPIC_API_KEY")
                token = None if key else os.environ.get("ANTHROPIC_AUTH_TOKEN")
                if not (key or token):
                    raise ModelUnavailable(
                        f"no key for {self.name}: set ANTHROPIC_API_KEY in the environment"
                    )
                # The import takes most of a second, which would block the event loop.
                self._connection = await asyncio.to_thread(self._connect, key, token)
            return self._connection

    def _connect(self, key: str | None, token: str | None) -> _Connection:
        try:
            import anthropic
            import httpx2
        except ImportError as error:
            raise MissingExtra("Anthropic models", "anthropic") from error
        client = anthropic.AsyncAnthropic(
            api_key=key or None,
            auth_token=token,
            base_url=self._base_url,
            http_client=anthropic.DefaultAsyncHttpxClient(
                event_hooks={"response": [_refuse_long_waits]}
            ),
        )
        endpoint = ModelEndpoint(
            name=self.name,
            model=self._model,
            host=client.base_url.netloc.decode(),
            key=key or token or "",
            variable="ANTHROPIC_API_KEY" if key else "ANTHROPIC_AUTH_TOKEN",
        )
        failures = (anthropic.AnthropicError, httpx2.HTTPError, ValueError)
        return _Connection(
            client, client.messages.create, endpoint, failures, anthropic.BadRequestError
        )

    async def _ask(
        self,
        connection: _Connection,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition],
    ) -> Any:
        request = self._request(messages, tools, signed=True)
        create = connection.create
        try:
            return await create(**request, stream=True)
        except connection.bad_request as error:
            if not (await self._learn_limit(str(error)) or self._learn_marks(str(error))):
                plain = self._request(messages, tools, signed=False)
                if "thinking" not in str(error) or plain == request:
                    raise
                return await create(**plain, stream=True)
        return await self._ask(connection, messages, tools)

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
            "messages": wire_messages(messages, signed=signed),
        }
        system = [m.content for m in messages if isinstance(m, SystemMessage) and m.content.strip()]
        if system:
            request["system"] = text_blocks("\n\n".join(system))
        if self._options:
            request["extra_body"] = self._options
        if tools:
            request["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": msgspec.json.decode(tool.input_schema),
                }
                for tool in tools
            ]
        if self._takes_marks:
            _mark(request)
        return request


def _mark(request: dict[str, Any]) -> None:
    """Mark the ends of the tools, instructions and messages for the prompt cache."""
    conversation = request["messages"][-1]["content"] if request["messages"] else []
    for blocks in (request.get("tools"), request.get("system"), conversation):
        if blocks and blocks[-1].get("type") not in ("thinking", "redacted_thinking"):
            blocks[-1] = {**blocks[-1], "cache_control": {"type": "ephemeral"}}


async def _refuse_long_waits(response: httpx2.Response) -> None:
    # The package would wait as long as the server demands, even a day.
    wait = response.headers.get("retry-after", "")
    if wait.isdigit() and int(wait) > _LONGEST_WAIT:
        response.headers["x-should-retry"] = "false"


class _Connection(NamedTuple):
    client: AsyncAnthropic
    create: Callable[
        ..., Any
    ]  # looked up with the client, because the look-up imports more modules
    endpoint: ModelEndpoint
    failures: tuple[type[Exception], ...]  # errors that the package raises, also while decoding
    bad_request: type[Exception]
