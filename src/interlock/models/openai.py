"""Models from OpenAI and DeepSeek, and any server with OpenAI's chat completions API.

A model that chat completions refuse is used through the Responses API; see `responses`.

Servers differ in how they stream tool calls: in fragments, whole, without ids, without indexes.
`_Calls` has the rules for all of them. A server's reasoning is shown and stored, but sent back to
the same server only.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

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
from interlock.models.model import (
    ModelEvent,
    Notice,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolDefinition,
)
from interlock.models.responses import ResponseBuilder, response_request
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
    from openai import AsyncOpenAI

OPENAI_URL = "https://api.openai.com/v1"
DEEPSEEK_URL = "https://api.deepseek.com"
_KEYS = {"openai": "OPENAI_API_KEY", "deepseek": "DEEPSEEK_API_KEY", "ollama": "OLLAMA_API_KEY"}
_STOP_REASONS = {"length": "length", "content_filter": "refusal"}
_FAILED = {"error", "insufficient_system_resource"}  # finish reasons of an incomplete answer
_REASONING = ("reasoning_content", "reasoning")  # DeepSeek and llama.cpp; Ollama and vLLM
# A refusal with one of these words is about stored reasoning that the API cannot decrypt.
_ITEM_REFUSALS = ("encrypted", "reasoning", "item")
_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_FILES = IMAGES | DOCUMENTS | _SOUNDS.keys()
_NONE: frozenset[str] = frozenset()
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
_LONGEST_DESCRIPTION = 1024  # characters; OpenAI refuses the whole request above this


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
        self._readable = _FILES if provider != "deepseek" else _NONE  # media types
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
        try:
            answer, opened = await self._ask(connection, messages, tools)
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
    ) -> tuple[ReplyBuilder | ResponseBuilder, Any]:
        if learned.fact(self.name).responses:
            return await self._ask_responses(connection, messages, tools)
        builder = ReplyBuilder(self.name, f"{self._provider}{self._at}")
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
            self._readable = self._readable - _SOUNDS.keys() if "input_audio" in kinds else _NONE
            return True
        return False

    async def _ask_responses(
        self,
        connection: _Connection,
        messages: Sequence[Message],
        tools: Sequence[ToolDefinition],
    ) -> tuple[ResponseBuilder, Any]:
        provider = f"responses:{self.name}"
        builder = ResponseBuilder(self.name, provider)
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


# Outgoing


def wire_messages(messages: Sequence[Message], *, provider: str) -> list[dict[str, Any]]:
    """Return a conversation in the format of the chat completions API.

    Args:
        messages: The conversation; assistant messages without text and calls are omitted.
        provider: The provider whose reasoning is included; that of others is omitted.
    """
    wire: list[dict[str, Any]] = []
    files: list[Attachment] = []  # the files of the results so far
    for message in messages:
        if isinstance(message, ToolMessage):
            files += message.attachments
        elif files:
            wire.append(_files_of_results(files))
            files = []
        if written := _wire_message(message, provider):
            wire.append(written)
    return [*wire, _files_of_results(files)] if files else wire


def _files_of_results(files: Sequence[Attachment]) -> dict[str, Any]:
    # Messages with the role "tool" can have only text, so the files follow in a user message.
    text = {"type": "text", "text": "The files of the results above:"}
    return {"role": "user", "content": [text, *map(_file_part, files)]}


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
    if not message.attachments:
        return {"role": "user", "content": message.content}
    parts = [_file_part(each) for each in message.attachments]
    return {"role": "user", "content": [*parts, {"type": "text", "text": message.content}]}


def _file_part(file: Attachment) -> dict[str, Any]:
    url = f"data:{file.media_type};base64,{base64.b64encode(file.data).decode()}"
    if file.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if sound := _SOUNDS.get(file.media_type):
        data = base64.b64encode(file.data).decode()
        return {"type": "input_audio", "input_audio": {"data": data, "format": sound}}
    return {"type": "file", "file": {"filename": file.name or "file", "file_data": url}}


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
        # DeepSeek refuses a conversation with tools if a message lacks reasoning, as messages from
        # other models do. It also refuses it if all messages have the same text as reasoning.
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


def wire_tool(tool: ToolDefinition) -> dict[str, Any]:
    """Return a tool in the format of the chat completions API."""
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
    message: _Delta | None = None  # only if the answer is not streamed


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


class ReplyBuilder:
    """Assembles one answer from its chunks."""

    def __init__(self, name: str, provider: str) -> None:
        self._name = name
        self._provider = provider
        self._size = AnswerSize(name)
        self._text: list[str] = []
        self._reasoning: dict[str, list[str]] = {}  # by the name of its field
        self._calls = _Calls(self._size)
        self._refused = False
        self._finish_reason: str | None = None
        self._usage = Usage()

    def add(self, data: Any) -> list[ModelEvent]:
        """Add one decoded chunk; return the resulting events.

        Raises:
            msgspec.ValidationError: The chunk is not a chunk of a chat completion.
            ModelInterrupted: The answer is too long.
        """
        return self._add(msgspec.convert(data, _Chunk))

    def _add(self, chunk: _Chunk) -> list[ModelEvent]:
        if chunk.usage:
            self._usage = chunk.usage.as_usage()
        pieces: list[ModelEvent] = []
        for choice in chunk.choices or []:
            self._finish_reason = choice.finish_reason or self._finish_reason
            if choice.delta:
                pieces += self._extend(choice.delta)
        return pieces

    def add_whole(self, answer: Any) -> list[ModelEvent]:
        """Add an answer that is not streamed. Some servers cannot stream tool calls.

        Raises:
            msgspec.ValidationError: The answer is not a chat completion.
            ModelInterrupted: The answer is too long.
        """
        whole = msgspec.convert(answer, _Chunk)
        for choice in whole.choices or []:
            choice.delta, choice.finish_reason = choice.message, choice.finish_reason or "stop"
        return self._add(whole)

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
        self._by_index: dict[int, _OpenCall] = {}  # the last call with each index
        self._by_id: dict[str, _OpenCall] = {}

    def add(self, fragment: _Fragment) -> None:
        function = fragment.function or _Function()
        call = self._find(fragment, function)
        if call is None:
            self._size.add_call()
            call = _OpenCall(fragment.index)
            self._calls.append(call)
            if fragment.index is not None:
                self._by_index[fragment.index] = call
        if not call.id and fragment.id:
            self._size.add(fragment.id)
            call.id = fragment.id
            self._by_id[call.id] = call
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
        if fragment.index is not None:
            call = self._by_index.get(fragment.index)
        elif fragment.id:
            call = self._by_id.get(fragment.id)
        else:
            call = self._calls[-1] if self._calls and not function.name else None
        other = call and fragment.id and call.id and fragment.id != call.id
        return None if other and function.name else call

    def finish(self, *, cut: bool) -> tuple[ToolCall, ...]:
        """Return the calls in order. With `cut`, the last call may be incomplete."""
        if cut and self._calls and not "".join(self._calls[-1].arguments).strip():
            # The token limit came before the first argument, so the call is dropped.
            self._calls.pop()
        return unique_ids([tool_call(c.id, c.name, "".join(c.arguments)) for c in self._calls])
