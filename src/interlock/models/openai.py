"""OpenAI's models, DeepSeek's, and any server that speaks OpenAI's chat completions.

Servers differ in how they stream tool calls: in fragments, whole, without ids, without indexes.
`_Calls` holds the rules for all of them. What a server streams as its reasoning is shown, kept
and sent back to the same server, and to no other.
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
    from openai import AsyncOpenAI

OPENAI_URL = "https://api.openai.com/v1"
DEEPSEEK_URL = "https://api.deepseek.com"
_KEYS = {"openai": "OPENAI_API_KEY", "deepseek": "DEEPSEEK_API_KEY", "ollama": "OLLAMA_API_KEY"}
_STOP_REASONS = {"length": "length", "content_filter": "refusal"}
_HERE = ("localhost", "127.0.0.1", "::1")  # where no proxy of the environment leads
_FAILED = {"error", "insufficient_system_resource"}  # finish reasons of an answer that broke off
_REASONING = ("reasoning_content", "reasoning")  # DeepSeek and llama.cpp; Ollama and vLLM
_LONGEST_DESCRIPTION = 1024  # characters; OpenAI refuses the whole request beyond


class OpenAIModel:
    """A model behind a chat completions API.

    The vendor's package is imported, and the client made, when the first question is asked.
    """

    def __init__(
        self,
        model: str,
        *,
        provider: str = "openai",
        api_key: str | None = None,
        base_url: str | None = None,
    ) -> None:
        """Remember whom to ask.

        Args:
            model: As the provider calls it.
            provider: "openai", "deepseek" or "ollama".
            api_key: Else `OPENAI_API_KEY`, `DEEPSEEK_API_KEY` or `OLLAMA_API_KEY`; "" sends none.
                Only OpenAI's and DeepSeek's own servers insist on one.
            base_url: Up to and including "/v1"; else what `OPENAI_BASE_URL` or `OLLAMA_HOST`
                says for that provider, else the provider's own.

        Raises:
            ValueError: Nobody knows this provider.
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
        return f"@{shown_url(self._base_url)}" if self._base_url else ""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        """Ask the model; yield pieces as they come, then one `Reply`."""
        connection = await self._open()
        answer = _Answer(self.name, f"{self._provider}{self._at}")
        try:
            async with await self._ask(connection, messages, tools) as chunks:
                answer.started = True
                async for chunk in chunks:
                    for piece in answer.take(event_fields(chunk)):
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
                variable = _KEYS[self._provider]
                key = os.environ.get(variable, "") if self._api_key is None else self._api_key
                address = self._base_url or _address(self._provider)
                if not key and address in (OPENAI_URL, DEEPSEEK_URL):
                    raise ModelUnavailable(
                        f"no key for {self.name}: set {variable} in the environment"
                    )
                # The import takes most of a second, and must not stop the loop for so long.
                self._connection = await asyncio.to_thread(self._connect, address, key)
            return self._connection

    def _connect(self, address: str, key: str) -> _Connection:
        try:
            import openai
        except ImportError as error:
            raise MissingExtra("OpenAI and compatible models", "openai") from error
        is_here = urlsplit(address).hostname in _HERE
        client = openai.AsyncOpenAI(
            api_key=key or "none",  # the package insists on one; who wants none ignores it
            base_url=address,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=False) if is_here else None,
        )
        endpoint = Endpoint(
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
            # Some of OpenAI's models take tools here only when they do not reason.
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
    # The variable also tells the server where to listen, and nobody can connect to "everywhere".
    address = re.sub(r"^0\.0\.0\.0(?=:|$)", "127.0.0.1", address)
    if ":" not in address.rpartition("]")[2]:
        address = f"{address}:11434"
    return f"{scheme if found else 'http'}://{address}/v1"


class _Connection(NamedTuple):
    client: AsyncOpenAI
    create: Callable[..., Any]  # looked up with the client, since that imports the rest
    endpoint: Endpoint
    failures: tuple[type[Exception], ...]  # of the package, and of reading what it returned
    bad_request: type[Exception]


# Outgoing


def wire_messages(messages: Sequence[Message], *, provider: str) -> list[dict[str, Any]]:
    """Write a conversation as the chat completions API wants it.

    Args:
        messages: The conversation; assistant messages without text and calls are left out.
        provider: Whose reasoning may go along; that of others is left out.
    """
    return [wire for message in messages if (wire := _wire_message(message, provider))]


def _wire_message(message: Message, provider: str) -> dict[str, Any] | None:
    if isinstance(message, SystemMessage):
        return {"role": "system", "content": message.content}
    if isinstance(message, AssistantMessage):
        return _wire_assistant(message, provider)
    if isinstance(message, ToolMessage):
        # The API has no mark for a failure, so the text must say it.
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
        # DeepSeek refuses a conversation with tools when a message lacks its reasoning, and has
        # none of what another model said. It wants words, and not the same ones every time.
        wire["reasoning_content"] = _said_instead(message)
    return wire


def _said_instead(message: AssistantMessage) -> str:
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


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


class _Answer:
    """Puts the chunks of one answer together."""

    def __init__(self, name: str, provider: str) -> None:
        self.started = False
        self._name = name
        self._provider = provider
        self._text: list[str] = []
        self._reasoning: dict[str, str] = {}  # by the field it came in
        self._calls = _Calls()
        self._refused = False
        self._finish_reason: str | None = None
        self._usage = Usage()

    def take(self, data: Any) -> list[ModelEvent]:
        """Take one chunk of the wire; return what can be shown of it.

        Raises:
            msgspec.ValidationError: It is not a chunk of a chat completion.
        """
        chunk = msgspec.convert(data, _Chunk)
        if chunk.usage:
            self._usage = Usage(chunk.usage.prompt_tokens or 0, chunk.usage.completion_tokens or 0)
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
        data = {"provider": self._provider, **self._reasoning} if self._reasoning else None
        return Reply(AssistantMessage("".join(self._text), calls, data), self._usage, stop_reason)

    def _extend(self, delta: _Delta) -> list[ModelEvent]:
        pieces: list[ModelEvent] = []
        for field in _REASONING:
            thought = getattr(delta, field)
            if thought:
                self._reasoning[field] = self._reasoning.get(field, "") + thought
                pieces.append(ReasoningDelta(thought))
        self._refused = self._refused or bool(delta.refusal)
        for text in (delta.content, delta.refusal):
            if text:
                self._text.append(text)
                pieces.append(TextDelta(text))
        for fragment in delta.tool_calls or []:
            self._calls.add(fragment)
        return pieces


class _Open(Struct):
    """A call that is still being written."""

    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""


class _Calls:
    """Puts the fragments of tool calls together.

    Rule 1: A fragment belongs to the call with its index; without an index to that with its id;
        with neither to the last one.
    Rule 2: A fragment with a name and another id begins a call, whatever its index: some servers
        send whole calls, all with index 0.
    Rule 3: An id and a name are taken from the first fragment that has them, late or not.
    """

    def __init__(self) -> None:
        self._calls: list[_Open] = []

    def add(self, fragment: _Fragment) -> None:
        """Add a fragment to the call it belongs to, or begin one."""
        function = fragment.function or _Function()
        call = self._find(fragment, function)
        if call is None:
            call = _Open(fragment.index)
            self._calls.append(call)
        call.id = call.id or fragment.id or ""
        call.name = call.name or function.name or ""
        arguments = function.arguments or ""
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        call.arguments += arguments

    def _find(self, fragment: _Fragment, function: _Function) -> _Open | None:
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
        """Return the calls in order. `cut`: the last one may lack its end."""
        if cut and self._calls and not self._calls[-1].arguments.strip():
            # The limit came before the first argument: nothing was asked for yet.
            self._calls.pop()
        return unique_ids([tool_call(c.id, c.name, c.arguments) for c in self._calls])
