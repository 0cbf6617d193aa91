"""OpenAI's models, DeepSeek's, and any server that speaks OpenAI's chat completions.

Servers differ in how they stream tool calls: in fragments, whole, without ids, without indexes.
`_Calls` holds the rules for all of them. A server's reasoning is shown and stored. It is sent back
to the same server only.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from interlock import urls
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
from interlock.models.answer_size import AnswerSize
from interlock.models.vendors import (
    ModelEndpoint,
    call_id,
    call_name,
    event_fields,
    object_schema,
    tool_call,
    unique_ids,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OPENAI_URL = "https://api.openai.com/v1"
DEEPSEEK_URL = "https://api.deepseek.com"
_KEYS = {"openai": "OPENAI_API_KEY", "deepseek": "DEEPSEEK_API_KEY", "ollama": "OLLAMA_API_KEY"}
_STOP_REASONS = {"length": "length", "content_filter": "refusal"}
_FAILED = {"error", "insufficient_system_resource"}  # finish reasons of an incomplete answer
_REASONING = ("reasoning_content", "reasoning")  # DeepSeek and llama.cpp; Ollama and vLLM
_LONGEST_DESCRIPTION = 1024  # characters; OpenAI refuses the whole request above this


class OpenAIModel:
    """A model behind a chat completions API.

    The first request imports the vendor's package and makes the client.
    """

    def __init__(
        self,
        model: str,
        *,
        provider: str = "openai",
        api_key: str | None = None,
        base_url: str | None = None,
    ) -> None:
        """Store the settings; nothing is sent yet.

        Args:
            model: As the provider calls it.
            provider: "openai", "deepseek" or "ollama".
            api_key: Else `OPENAI_API_KEY`, `DEEPSEEK_API_KEY` or `OLLAMA_API_KEY`; "" sends none.
                Only OpenAI's and DeepSeek's own servers require one.
            base_url: Up to and including "/v1"; else the provider's `OPENAI_BASE_URL` or
                `OLLAMA_HOST`, else the provider's own URL.

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

    @property
    def name(self) -> str:
        """Provider and model, as in `--model`."""
        return f"{self._provider}:{self._model}{self._at}"

    @property
    def _at(self) -> str:
        return f"@{urls.display(self._base_url)}" if self._base_url else ""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        """Ask the model; yield pieces as they arrive, then one `Reply`."""
        connection = await self._open()
        answer = _ReplyBuilder(self.name, f"{self._provider}{self._at}")
        try:
            async with await self._ask(connection, messages, tools) as chunks:
                answer.started = True
                async for chunk in chunks:
                    for piece in answer.add(event_fields(chunk)):
                        yield piece
        except connection.failures as error:
            raise connection.endpoint.explain(error, started=answer.started) from error
        yield answer.reply()

    async def close(self) -> None:
        """Close the connections. Closing twice is allowed; the next request opens them again."""
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
        is_here = urls.is_loopback(urlsplit(address).hostname or "")  # needs no proxy
        client = openai.AsyncOpenAI(
            api_key=key or "none",  # the package requires one; servers without keys ignore it
            base_url=address,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False) if is_here else None,
        )
        endpoint = ModelEndpoint(
            name=self.name,
            model=self._model,
            host=client.base_url.netloc.decode(),
            key=key,
            variable=_KEYS[self._provider],
        )
        failures = (openai.OpenAIError, ValueError)
        return _Connection(
            client, client.chat.completions.create, endpoint, failures, openai.BadRequestError
        )

    async def _ask(
        self,
        connection: _Connection,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition],
    ) -> Any:
        request = self._request(messages, tools)
        create = connection.create
        try:
            return await create(**request)
        except connection.bad_request as error:
            # Some OpenAI models accept tools in this API only without reasoning.
            if getattr(error, "param", None) != "reasoning_effort" or not tools or self._effort:
                raise
        self._effort = "none"
        return await create(**request, reasoning_effort=self._effort)

    def _request(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self._model,
            "messages": wire_messages(messages, provider=f"{self._provider}{self._at}"),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if tools:
            request["tools"] = [_wire_tool(tool) for tool in tools]
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
    """Return the base URL of the Ollama that `OLLAMA_HOST` names, else of the one on this host."""
    host = os.environ.get("OLLAMA_HOST", "").strip().rstrip("/") or "127.0.0.1"
    scheme, found, address = host.rpartition("://")
    # The variable also sets the address the server listens on; clients cannot connect to 0.0.0.0.
    address = re.sub(r"^0\.0\.0\.0(?=:|$)", "127.0.0.1", address)
    if ":" not in address.rpartition("]")[2]:
        address = f"{address}:11434"
    return f"{scheme if found else 'http'}://{address}/v1"


class _Connection(NamedTuple):
    client: AsyncOpenAI
    create: Callable[..., Any]  # looked up with the client, since that imports the rest
    endpoint: ModelEndpoint
    failures: tuple[type[Exception], ...]  # of the package, and of decoding what it returned
    bad_request: type[Exception]


# Outgoing


def wire_messages(messages: Sequence[Message], *, provider: str) -> list[dict[str, Any]]:
    """Return a conversation in the format of the chat completions API.

    Args:
        messages: The conversation; assistant messages without text and calls are left out.
        provider: The provider whose reasoning is included; that of others is left out.
    """
    return [wire for message in messages if (wire := _wire_message(message, provider))]


def _wire_message(message: Message, provider: str) -> dict[str, Any] | None:
    if isinstance(message, SystemMessage):
        return {"role": "system", "content": message.content}
    if isinstance(message, AssistantMessage):
        return _wire_assistant(message, provider)
    if isinstance(message, ToolMessage):
        # The API has no field for a failure, so the text states it.
        failed = message.is_error and not message.content.lower().startswith("error")
        content = f"Error: {message.content}" if failed else message.content
        return {"role": "tool", "tool_call_id": call_id(message.tool_call_id), "content": content}
    return {"role": "user", "content": message.content}


def _wire_assistant(message: AssistantMessage, provider: str) -> dict[str, Any] | None:
    if not (message.content or message.tool_calls):
        return None
    wire: dict[str, Any] = {"role": "assistant", "content": message.content or None}
    if message.tool_calls:
        wire["tool_calls"] = [_wire_call(call) for call in message.tool_calls]
    data = message.provider_data or {}
    if data.get("provider") == provider:
        wire |= {field: data[field] for field in _REASONING if isinstance(data.get(field), str)}
    if provider.startswith("deepseek") and not wire.get("reasoning_content"):
        # DeepSeek refuses a conversation with tools if a message lacks reasoning, as those of
        # other models do. It also refuses the same text in every message.
        wire["reasoning_content"] = _made_up_reasoning(message)
    return wire


def _made_up_reasoning(message: AssistantMessage) -> str:
    if message.tool_calls:
        return f"Next: call {', '.join(call_name(call.name) for call in message.tool_calls)}."
    return f"Answer: {message.content[:80]}"


def _wire_call(call: ToolCall) -> dict[str, Any]:
    arguments = msgspec.json.encode(call.input).decode()
    function = {"name": call_name(call.name), "arguments": arguments}
    return {"id": call_id(call.id), "type": "function", "function": function}


def _wire_tool(tool: ToolDefinition) -> dict[str, Any]:
    description = tool.description
    if len(description) > _LONGEST_DESCRIPTION:
        description = f"{description[: _LONGEST_DESCRIPTION - 1]}…"
    function = {
        "name": tool.name,
        "description": description,
        "parameters": object_schema(tool.input_schema),
    }
    return {"type": "function", "function": function}


# Incoming


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Fragment(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Fragment] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(Struct):
    cached_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek

    def as_usage(self) -> Usage:
        details = self.prompt_tokens_details or _Details()
        cached = details.cached_tokens or self.prompt_cache_hit_tokens or 0
        return Usage(self.prompt_tokens or 0, self.completion_tokens or 0, cached)


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


class _ReplyBuilder:
    """Assembles the chunks of one answer."""

    def __init__(self, name: str, provider: str) -> None:
        self.started = False
        self._name = name
        self._provider = provider
        self._size = AnswerSize(name)
        self._text: list[str] = []
        self._reasoning: dict[str, list[str]] = {}  # by the field it came in
        self._calls = _Calls(self._size)
        self._refused = False
        self._finish_reason: str | None = None
        self._usage = Usage()

    def add(self, data: Any) -> list[ModelEvent]:
        """Add one decoded chunk; return the events it holds.

        Raises:
            msgspec.ValidationError: It is not a chunk of a chat completion.
            ModelInterrupted: The answer is too long.
        """
        chunk = msgspec.convert(data, _Chunk)
        if chunk.usage:
            self._usage = chunk.usage.as_usage()
        pieces: list[ModelEvent] = []
        for choice in chunk.choices or []:
            self._finish_reason = choice.finish_reason or self._finish_reason
            if choice.delta:
                pieces += self._extend(choice.delta)
        return pieces

    def reply(self) -> Reply:
        """Return the whole answer.

        Raises:
            ModelInterrupted: The stream ended before the answer did.
        """
        if self._finish_reason is None:
            raise ModelInterrupted(
                f"the answer of {self._name} was cut off: the stream ended early"
            )
        if self._finish_reason in _FAILED:
            raise ModelInterrupted(
                f"the answer of {self._name} was cut off: the server says {self._finish_reason!r}"
            )
        stop_reason = _STOP_REASONS.get(self._finish_reason, "end")
        calls = self._calls.finish(cut=stop_reason == "length")
        if stop_reason == "end" and (calls or self._refused):
            stop_reason = "tool_calls" if calls else "refusal"
        data = None
        if self._reasoning:
            joined = {field: "".join(parts) for field, parts in self._reasoning.items()}
            data = {"provider": self._provider, **joined}
        return Reply(AssistantMessage("".join(self._text), calls, data), self._usage, stop_reason)

    def _extend(self, delta: _Delta) -> list[ModelEvent]:
        pieces: list[ModelEvent] = []
        for field in _REASONING:
            thought = getattr(delta, field)
            if thought:
                self._size.add(thought)
                self._reasoning.setdefault(field, []).append(thought)
                pieces.append(ReasoningDelta(thought))
        self._refused = self._refused or bool(delta.refusal)
        for text in (delta.content, delta.refusal):
            if text:
                self._size.add(text)
                self._text.append(text)
                pieces.append(TextDelta(text))
        for fragment in delta.tool_calls or []:
            self._calls.add(fragment)
        return pieces


class _OpenCall(Struct):
    """A call whose arguments are still arriving."""

    index: int | None
    id: str = ""
    name: str = ""
    arguments: list[str] = []


class _Calls:
    """Assembles the fragments of tool calls.

    Rule 1: A fragment belongs to the call with its index; without an index to the call with its
        id; with neither to the last call.
    Rule 2: A fragment with a name and another id starts a call, whatever its index: some servers
        send whole calls, all with index 0.
    Rule 3: The id and the name come from the first fragment that has them.
    """

    def __init__(self, size: AnswerSize) -> None:
        self._size = size
        self._calls: list[_OpenCall] = []

    def add(self, fragment: _Fragment) -> None:
        """Add a fragment to the call it belongs to, or start a call."""
        function = fragment.function or _Function()
        call = self._find(fragment, function)
        if call is None:
            self._size.add_call()
            call = _OpenCall(fragment.index)
            self._calls.append(call)
        if not call.id and fragment.id:
            self._size.add(fragment.id)
            call.id = fragment.id
        if not call.name and function.name:
            self._size.add(function.name)
            call.name = function.name
        arguments = function.arguments or ""
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        if arguments:
            self._size.add(arguments)
            call.arguments.append(arguments)

    def _find(self, fragment: _Fragment, function: _Function) -> _OpenCall | None:
        for call in reversed(self._calls):
            if fragment.index is None:
                same = call.id == fragment.id if fragment.id else not function.name
            else:
                same = call.index == fragment.index
            if same:
                other = fragment.id and call.id and fragment.id != call.id
                return None if other and function.name else call
        return None

    def finish(self, *, cut: bool) -> tuple[ToolCall, ...]:
        """Return the calls in order. `cut`: the last one may be incomplete."""
        if cut and self._calls and not "".join(self._calls[-1].arguments).strip():
            # The token limit came before the first argument, so the call is dropped.
            self._calls.pop()
        return unique_ids([tool_call(c.id, c.name, "".join(c.arguments)) for c in self._calls])
