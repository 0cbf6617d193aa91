"""Anthropic's models over the vendor's own package.

How a conversation is written for the Messages API:

1. System messages become the one `system` text.
2. Messages of one role in a row become one message; tool results come first in it.
3. What the API signed, thinking above all, goes back word for word. Should the API refuse it,
   since the tools or the model have changed meanwhile, the request is made again without it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from interlock.errors import MissingExtra, ModelInterrupted, ModelUnavailable
from interlock.messages import AssistantMessage, Message, SystemMessage, ToolCall, ToolMessage
from interlock.models import (
    ModelEvent,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolDefinition,
    Usage,
)
from interlock.models.vendors import (
    Endpoint,
    call_id,
    call_name,
    event_fields,
    object_schema,
    shown_url,
    tool_call,
    unique_ids,
)

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic

_PROVIDER = "anthropic"
_LONGEST_WAIT = 60  # seconds before a retry; an error that says so is better than more
_STOP_REASONS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


class AnthropicModel:
    """A model behind the Messages API.

    The vendor's package is imported, and the client made, when the first question is asked.
    """

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        max_tokens: int = 32_000,
    ) -> None:
        """Remember whom to ask.

        Args:
            model: As the provider calls it.
            api_key: Else `ANTHROPIC_API_KEY`, else `ANTHROPIC_AUTH_TOKEN`.
            base_url: Else `ANTHROPIC_BASE_URL`, else Anthropic's own.
            max_tokens: Most tokens of one answer, thinking included.
        """
        self._model = model
        self._api_key = api_key
        self._base_url = base_url
        self._max_tokens = max_tokens
        self._opening = asyncio.Lock()
        self._connection: _Connection | None = None

    @property
    def name(self) -> str:
        """Provider and model, as in `--model`."""
        address = f"@{shown_url(self._base_url)}" if self._base_url else ""
        return f"{_PROVIDER}:{self._model}{address}"

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        """Ask the model; yield pieces as they come, then one `Reply`."""
        connection = await self._open()
        answer = _Answer(self.name)
        try:
            async with await self._ask(connection, messages, tools) as events:
                answer.started = True
                async for event in events:
                    for piece in answer.take(event_fields(event)):
                        yield piece
        except connection.failures as error:
            raise connection.endpoint.explain(error, started=answer.started) from error
        yield answer.reply()

    async def close(self) -> None:
        """Let the connections go. Closing twice is fine; asking again opens them again."""
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
                # The import takes most of a second, and must not stop the loop for so long.
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
        endpoint = Endpoint(
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
        request = self._request(messages, tools, kept=True)
        create = connection.create
        try:
            return await create(**request, stream=True)
        except connection.bad_request as error:
            plain = self._request(messages, tools, kept=False)
            if "thinking" not in str(error) or plain == request:
                raise
        return await create(**plain, stream=True)

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition], *, kept: bool
    ) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "max_tokens": self._max_tokens,
            "messages": wire_messages(messages, kept=kept),
        }
        system = [m.content for m in messages if isinstance(m, SystemMessage) and m.content.strip()]
        if system:
            request["system"] = "\n\n".join(system)
        if tools:
            request["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": object_schema(tool.input_schema),
                }
                for tool in tools
            ]
        return request


async def _refuse_long_waits(response: httpx2.Response) -> None:
    # The package waits for as long as the server says, be it a day.
    wait = response.headers.get("retry-after", "")
    if wait.isdigit() and int(wait) > _LONGEST_WAIT:
        response.headers["x-should-retry"] = "false"


class _Connection(NamedTuple):
    client: AsyncAnthropic
    create: Callable[..., Any]  # looked up with the client, since that imports the rest
    endpoint: Endpoint
    failures: tuple[type[Exception], ...]  # of the package, and of reading what it returned
    bad_request: type[Exception]


# Outgoing


def wire_messages(messages: Sequence[Message], *, kept: bool = True) -> list[dict[str, Any]]:
    """Write a conversation as the Messages API wants it, without its system messages.

    Args:
        messages: The conversation; empty ones are left out, since the API refuses them.
        kept: Use the blocks that were kept word for word, where there are any.
    """
    wire: list[dict[str, Any]] = []
    for message in messages:
        role, blocks = _blocks(message, kept)
        if not blocks:
            continue
        if wire and wire[-1]["role"] == role:
            wire[-1]["content"] += blocks
        else:
            wire.append({"role": role, "content": blocks})
    return wire


def _blocks(message: Message, kept: bool) -> tuple[str, list[dict[str, Any]]]:
    if isinstance(message, SystemMessage):
        return "system", []
    if isinstance(message, AssistantMessage):
        return "assistant", (kept and _kept_blocks(message)) or _assistant_blocks(message)
    if isinstance(message, ToolMessage):
        result = {
            "type": "tool_result",
            "tool_use_id": call_id(message.tool_call_id),
            "content": message.content,
            "is_error": message.is_error,
        }
        return "user", [result]
    return "user", _text_blocks(message.content) or _text_blocks("(empty message)")


def _assistant_blocks(message: AssistantMessage) -> list[dict[str, Any]]:
    return _text_blocks(message.content) + [
        {
            "type": "tool_use",
            "id": call_id(call.id),
            "name": call_name(call.name),
            "input": call.input,
        }
        for call in message.tool_calls
    ]


def _kept_blocks(message: AssistantMessage) -> list[dict[str, Any]]:
    data = message.provider_data or {}
    blocks = data.get("content")
    if data.get("provider") != _PROVIDER or not isinstance(blocks, list):
        return []
    if not all(isinstance(block, dict) for block in blocks):
        return []
    asked = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    if asked != [call.id for call in message.tool_calls]:
        return []  # the message was changed since, and the old calls must not come back
    return [
        {**block, "id": call_id(block["id"])} if block.get("type") == "tool_use" else block
        for block in blocks
    ]


def _text_blocks(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text.strip() else []


# Incoming


class _Delta(Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _Started(Struct):
    usage: _Usage | None = None


class _Event(Struct):
    type: str = ""
    index: int = -1
    message: _Started | None = None
    content_block: dict[str, Any] | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None


class _Answer:
    """Puts the events of one answer together."""

    def __init__(self, name: str) -> None:
        self.started = False
        self._name = name
        self._blocks: dict[int, dict[str, Any]] = {}  # by index, as they are sent back
        self._arguments: dict[int, str] = {}  # of each tool_use block, as the model wrote them
        self._usage = _Usage()
        self._stop_reason: str | None = None
        self._complete = False

    def take(self, data: Any) -> list[ModelEvent]:
        """Take one event of the wire; return what can be shown of it.

        Raises:
            msgspec.ValidationError: It is not an event of the Messages API.
        """
        event = msgspec.convert(data, _Event)
        if event.type == "message_start" and event.message:
            self._count(event.message.usage)
        elif event.type == "content_block_start" and event.content_block:
            return self._start_block(event.index, event.content_block)
        elif event.type == "content_block_delta" and event.delta:
            return self._extend_block(event.index, event.delta)
        elif event.type == "message_delta":
            self._count(event.usage)
            self._stop_reason = event.delta.stop_reason if event.delta else None
        elif event.type == "message_stop":
            self._complete = True
        return []

    def reply(self) -> Reply:
        """Return the whole answer.

        Raises:
            ModelInterrupted: The stream ended before the answer did.
        """
        if not self._complete:
            raise ModelInterrupted(
                f"the answer of {self._name} was cut off: the stream ended early"
            )
        stop_reason = _STOP_REASONS.get(self._stop_reason or "", "end")
        self._finish_blocks(cut=stop_reason == "length")
        blocks = [block for _, block in sorted(self._blocks.items())]
        calls = unique_ids(self._calls())
        text = "".join(block["text"] for block in blocks if block.get("type") == "text")
        message = AssistantMessage(text, calls, self._provider_data(blocks))
        if calls and stop_reason == "end":
            stop_reason = "tool_calls"
        return Reply(message, self._total(), stop_reason)

    def _start_block(self, index: int, block: dict[str, Any]) -> list[ModelEvent]:
        self._blocks[index] = block
        if block.get("type") == "tool_use":
            self._arguments[index] = ""
        if block.get("type") != "text":
            return []
        block["text"] = str(block.get("text") or "")
        return [TextDelta(block["text"])] if block["text"] else []

    def _extend_block(self, index: int, delta: _Delta) -> list[ModelEvent]:
        block = self._blocks.get(index)
        if block is None:
            raise ValueError(f"a piece of block {index}, which was never begun")
        if delta.type == "input_json_delta" and index in self._arguments:
            self._arguments[index] += delta.partial_json
        elif delta.type == "text_delta":
            block["text"] = str(block.get("text", "")) + delta.text
            return [TextDelta(delta.text)] if delta.text else []
        elif delta.type == "thinking_delta":
            block["thinking"] = str(block.get("thinking", "")) + delta.thinking
            return [ReasoningDelta(delta.thinking)] if delta.thinking else []
        elif delta.type == "signature_delta":
            block["signature"] = delta.signature
        return []

    def _finish_blocks(self, *, cut: bool) -> None:
        last = max(self._blocks, default=-1)
        if cut and self._arguments.get(last) == "":
            # The limit came before the first argument: nothing was asked for yet.
            del self._arguments[last], self._blocks[last]
        for index, block in list(self._blocks.items()):
            if block.get("type") == "text" and not str(block.get("text", "")).strip():
                del self._blocks[index]  # the API sends empty text, and refuses it

    def _calls(self) -> list[ToolCall]:
        calls = []
        for index, arguments in sorted(self._arguments.items()):
            block = self._blocks[index]
            call = tool_call(str(block.get("id", "")), str(block.get("name", "")), arguments)
            if not arguments and isinstance(block.get("input"), dict):
                call = msgspec.structs.replace(call, input=block["input"])
            block["input"] = call.input
            calls.append(call)
        return calls

    def _provider_data(self, blocks: list[dict[str, Any]]) -> dict[str, Any] | None:
        # Text and calls say it all themselves; anything else has to go back as it came.
        if all(block.get("type") in ("text", "tool_use") for block in blocks):
            return None
        return {"provider": _PROVIDER, "content": blocks}

    def _count(self, usage: _Usage | None) -> None:
        for field in _Usage.__struct_fields__:
            value = getattr(usage, field, None)
            if value is not None:
                setattr(self._usage, field, value)

    def _total(self) -> Usage:
        usage = self._usage
        cached = (usage.cache_creation_input_tokens or 0) + (usage.cache_read_input_tokens or 0)
        return Usage((usage.input_tokens or 0) + cached, usage.output_tokens or 0)
