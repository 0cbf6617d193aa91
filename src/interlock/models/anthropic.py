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
import base64
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from interlock.errors import MissingExtra, ModelInterrupted, ModelUnavailable
from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
)
from interlock.models import learned
from interlock.models.answer_size import AnswerSize
from interlock.models.model import ModelEvent, ReasoningDelta, Reply, TextDelta, ToolDefinition
from interlock.models.vendors import (
    DOCUMENTS,
    IMAGES,
    ModelEndpoint,
    call_id,
    call_name,
    event_fields,
    object_schema,
    tool_call,
    unique_ids,
    whole_answer,
    without_files,
)
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
_STOP_REASONS = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


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
        answer = _ReplyBuilder(self.name)
        try:
            async with await self._ask(connection, messages, tools) as events:
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
        yield answer.reply()

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
            request["system"] = _text_blocks("\n\n".join(system))
        if self._options:
            request["extra_body"] = self._options
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


# Outgoing


def wire_messages(messages: Sequence[Message], *, signed: bool = True) -> list[dict[str, Any]]:
    """Convert a conversation to the format of the Messages API, without its system messages.

    Args:
        messages: The conversation; empty messages are omitted, because the API refuses them.
        signed: Whether to send the API's own blocks, such as signed thinking, back unchanged.
    """
    wire: list[dict[str, Any]] = []
    for message in without_files(messages, IMAGES | DOCUMENTS):
        role, blocks = _blocks(message, signed)
        if not blocks:
            continue
        if wire and wire[-1]["role"] == role:
            wire[-1]["content"] += blocks
        else:
            wire.append({"role": role, "content": blocks})
    return wire


def _blocks(message: Message, signed: bool) -> tuple[str, list[dict[str, Any]]]:
    if isinstance(message, SystemMessage):
        return "system", []
    if isinstance(message, AssistantMessage):
        return "assistant", (signed and _signed_blocks(message)) or _assistant_blocks(message)
    if isinstance(message, ToolMessage):
        result = {
            "type": "tool_result",
            "tool_use_id": call_id(message.tool_call_id),
            "content": message.content,
            "is_error": message.is_error,
        }
        if message.attachments:
            files = [_file_block(each) for each in message.attachments]
            result["content"] = [*_text_blocks(message.content), *files]
        return "user", [result]
    files = [_file_block(each) for each in message.attachments]
    return "user", [*files, *_text_blocks(message.content)] or _text_blocks("(empty message)")


def _file_block(file: Attachment) -> dict[str, Any]:
    source = {
        "type": "base64",
        "media_type": file.media_type,
        "data": base64.b64encode(file.data).decode(),
    }
    kind = "image" if file.media_type.startswith("image/") else "document"
    return {"type": kind, "source": source}


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


def _signed_blocks(message: AssistantMessage) -> list[dict[str, Any]]:
    data = message.provider_data or {}
    blocks = data.get("content")
    if data.get("provider") != _PROVIDER or not isinstance(blocks, list):
        return []
    if not all(isinstance(block, dict) for block in blocks):
        return []
    asked = [block.get("id") for block in blocks if block.get("type") == "tool_use"]
    if asked != [call.id for call in message.tool_calls]:
        return []  # the message was changed, so its stored blocks are outdated
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


class _ReplyBuilder:
    """Assembles one answer from its events."""

    def __init__(self, name: str) -> None:
        self.started = False
        self._name = name
        self._blocks: dict[int, dict[str, Any]] = {}  # by index, in the form to send back
        self._pieces: dict[int, dict[str, list[str]]] = {}  # by index and field of the block
        self._arguments: dict[
            int, list[str]
        ] = {}  # pieces of each tool_use block's arguments, by index
        self._size = AnswerSize(name)
        self._usage = _Usage()
        self._stop_reason: str | None = None
        self._complete = False

    def add(self, data: Any) -> list[ModelEvent]:
        """Add one decoded event; return the resulting model events."""
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
        self._size.add_json(block)
        self._blocks[index] = block
        self._pieces[index] = {}
        if block.get("type") == "tool_use":
            self._size.add_call()
            self._arguments[index] = []
        if block.get("type") != "text":
            return []
        block["text"] = str(block.get("text") or "")
        return [TextDelta(block["text"])] if block["text"] else []

    def _extend_block(self, index: int, delta: _Delta) -> list[ModelEvent]:
        if index not in self._blocks:
            raise ValueError(f"a piece of block {index}, which has not started")
        if delta.type == "input_json_delta" and index in self._arguments:
            self._size.add(delta.partial_json)
            self._arguments[index].append(delta.partial_json)
        elif delta.type == "text_delta" and delta.text:
            self._add_piece(index, "text", delta.text)
            return [TextDelta(delta.text)]
        elif delta.type == "thinking_delta" and delta.thinking:
            self._add_piece(index, "thinking", delta.thinking)
            return [ReasoningDelta(delta.thinking)]
        elif delta.type == "signature_delta":
            self._size.add(delta.signature)
            self._blocks[index]["signature"] = delta.signature
        return []

    def _add_piece(self, index: int, field: str, text: str) -> None:
        self._size.add(text)
        self._pieces[index].setdefault(field, []).append(text)

    def _finish_blocks(self, *, cut: bool) -> None:
        last = max(self._blocks, default=-1)
        if cut and last in self._arguments and not "".join(self._arguments[last]):
            # The token limit came before the first argument, so the call is dropped.
            del self._arguments[last], self._blocks[last]
        for index, block in list(self._blocks.items()):
            for field, pieces in self._pieces[index].items():
                block[field] = str(block.get(field) or "") + "".join(pieces)
            if block.get("type") == "text" and not str(block.get("text", "")).strip():
                del self._blocks[
                    index
                ]  # the API sends empty text blocks, but refuses them in requests

    def _calls(self) -> list[ToolCall]:
        calls = []
        for index, pieces in sorted(self._arguments.items()):
            arguments = "".join(pieces)
            block = self._blocks[index]
            call = tool_call(str(block.get("id", "")), str(block.get("name", "")), arguments)
            if not arguments and isinstance(block.get("input"), dict):
                call = msgspec.structs.replace(call, input=block["input"])
            block["input"] = call.input
            calls.append(call)
        return calls

    def _provider_data(self, blocks: list[dict[str, Any]]) -> dict[str, Any] | None:
        # The message itself has text and calls, so only answers with other blocks need storing.
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
        cached = usage.cache_read_input_tokens or 0
        written = usage.cache_creation_input_tokens or 0
        read = (usage.input_tokens or 0) + written + cached
        return Usage(read, usage.output_tokens or 0, cached, written)
