"""Runs a model from any GGUF file with llama.cpp, in this process.

The model gets the conversation in its own chat template, with the tools in the format that it was
trained on. If the template does not support tools, `tool_format` is used. A grammar restricts calls
to the names and schemas of the tools. A file without a template gets ChatML, whose turns are
`<|im_start|>ROLE`, the text, and `<|im_end|>`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from interlock.errors import ConfigError, ModelUnavailable
from interlock.messages import Message
from interlock.models.gguf.header import Header, read_header
from interlock.models.gguf.markers import Markers
from interlock.models.gguf.schemas import grammar_schema
from interlock.models.gguf.tool_format import MARKERS, CallReader, grammar, plain_messages
from interlock.models.llama import LoadedModel, free_memory
from interlock.models.model import ModelEvent, Reply, ToolDefinition
from interlock.models.openai.chat_answer import ChatAnswer
from interlock.models.openai.chat_request import wire_messages, wire_tool
from interlock.models.vendors import unread_files, without_files
from interlock.models.wire_tools import WireTools

_CHATML = ("<|im_end|>", "<|im_start|>")
_MAX_TOKENS = 4096  # tokens of an answer, unless the user sets another limit
_SMALLEST_CONTEXT = 2048
_STEP = 256  # a context is a multiple of this
_FOR_CONTEXT = 0.5  # the context may use this part of the memory that the weights leave
OPTIONS = frozenset(
    (
        *("context", "frequency_penalty", "max_tokens", "min_p", "presence_penalty"),
        *("repeat_penalty", "seed", "temperature", "top_k", "top_p"),
    )
)


class GgufModel:
    """A model in a GGUF file. The first request loads the file; requests run one at a time."""

    def __init__(self, path: str | Path, *, options: Mapping[str, Any] | None = None) -> None:
        """Store the settings and read the file's header.

        Args:
            path: The file.
            options: Options in `OPTIONS`, named as in llama.cpp. "context" limits the tokens of
                prompt and answer; the default is as many as the model and the memory allow.

        Raises:
            ModelUnavailable: The file is missing, is not a model, or needs more memory
                than is free.
            ConfigError: An option is unknown.
        """
        self._path = Path(path).expanduser().absolute()
        self._options = dict(options or {})
        if unknown := self._options.keys() - OPTIONS:
            raise ConfigError(
                f"unknown option {min(unknown)!r} of a GGUF model; "
                f"the options are {', '.join(sorted(OPTIONS))}"
            )
        self._header = read_header(self._path)
        self._context = _context(self._path, self._header, self._options.pop("context", None))
        markers = self._header.markers | MARKERS
        self._markers = Markers(markers if self._header.template else markers.union(_CHATML))
        self._lock = asyncio.Lock()
        self._engine: LoadedModel | None = None
        self._closed = False

    @property
    def name(self) -> str:
        return f"local:{self._path}"

    @property
    def context(self) -> int:
        """The maximum tokens of prompt and answer together."""
        return self._context

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        async with self._lock:
            engine = await self._loaded()
            for unread in unread_files(self.name, messages):
                yield unread
            wire = WireTools(tools)
            messages = self._markers.messages(without_files(wire.sent(messages)))
            tools = self._markers.tools(wire.definitions)
            own_format = bool(tools) and not engine.template.supports_tools
            request = self._request(engine, messages, tools)
            answer = ChatAnswer(self.name, self.name)
            calls = _Calls() if own_format else None
            async with aclosing(_chunks(engine, request, calls)) as chunks:
                async for chunk in chunks:
                    for piece in answer.add(chunk):
                        yield piece
        reply = answer.reply()
        original = tuple(map(self._markers.original, reply.message.tool_calls))
        message = msgspec.structs.replace(reply.message, tool_calls=original)
        yield wire.received(Reply(message, reply.usage, reply.stop_reason))

    async def close(self) -> None:
        """Free the memory once the current answer is complete. Closing twice is allowed."""
        async with self._lock:
            self._closed = True
            engine, self._engine = self._engine, None
            if engine is not None:
                await asyncio.to_thread(engine.close)

    async def _loaded(self) -> LoadedModel:
        if self._closed:
            raise ModelUnavailable(f"{self.name} has been closed")
        if self._engine is None:
            self._engine = await asyncio.to_thread(LoadedModel, self._path, self._context)
        return self._engine

    def _request(
        self, engine: LoadedModel, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> dict[str, Any]:
        template = engine.template
        request: dict[str, Any] = {"max_tokens": _MAX_TOKENS, **self._options}
        if not self._header.template:
            request["stop"] = list(_CHATML)
        if template.supports_tools:
            reduced = [
                msgspec.structs.replace(
                    tool, input_schema=msgspec.json.encode(grammar_schema(tool.input_schema))
                )
                for tool in tools
            ]
            request["messages"] = wire_messages(messages, provider=self.name)
            if tools:
                request |= {"tools": list(map(wire_tool, reduced)), "parallel_tool_calls": True}
            return request
        request["messages"] = plain_messages(
            messages, tools, system_role=template.supports_system_role
        )
        if tools:
            request["grammar"] = grammar(tools)
        return request


def _context(path: Path, header: Header, wished: int | None) -> int:
    """Return the size of the context in tokens: as many as the model and the memory allow."""
    memory = free_memory()
    least = header.size + _SMALLEST_CONTEXT * header.token_bytes
    if least > memory:
        raise ModelUnavailable(
            f"{path} needs {least / 2**30:.1f} GiB of memory ({memory / 2**30:.1f} GiB are free); "
            "use a smaller or more strongly quantised model"
        )
    fits = int((memory - header.size) * _FOR_CONTEXT) // max(header.token_bytes, 1)
    tokens = min(each for each in (wished, header.context, fits) if each)
    return max(tokens // _STEP * _STEP, _STEP)


async def _chunks(
    engine: LoadedModel, request: dict[str, Any], calls: _Calls | None
) -> AsyncGenerator[dict[str, Any], None]:
    """Run a request in a thread; yield the answer's chunks. Closing the generator stops it."""
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    stopped = threading.Event()

    def receive(chunk: dict[str, Any]) -> bool:
        for each in calls.add(chunk) if calls else (chunk,):
            loop.call_soon_threadsafe(arrived.put_nowait, each)
        return not (stopped.is_set() or (calls is not None and calls.reader.ended))

    def run() -> None:
        try:
            engine.chat(request, receive)
        finally:
            loop.call_soon_threadsafe(arrived.put_nowait, None)

    work = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        while (chunk := await arrived.get()) is not None:
            yield chunk
        await work
    finally:
        stopped.set()
        await asyncio.wait([work])


class _Calls:
    """Converts an answer in `tool_format` to chunks with tool calls."""

    def __init__(self) -> None:
        self.reader = CallReader()
        self._count = 0

    def add(self, chunk: dict[str, Any]) -> list[dict[str, Any]]:
        choices = chunk.get("choices") or [{}]
        delta = choices[0].get("delta") or {}
        text, calls = self.reader.add(delta.pop("content", None) or "")
        finish = choices[0].get("finish_reason")
        if finish:
            rest, cut = self.reader.finish()
            text, calls = text + rest, calls + cut
        if self.reader.ended:
            counts = chunk.get("timings") or {}
            cached = counts.get("cache_n", 0)
            chunk["usage"] = {
                "prompt_tokens": counts.get("prompt_n", 0) + cached,
                "completion_tokens": counts.get("predicted_n", 0),
                "prompt_tokens_details": {"cached_tokens": cached},
            }
            choices[0]["finish_reason"] = "stop"
        if text:
            delta["content"] = text
        if calls:
            delta["tool_calls"] = [self._fragment(*call) for call in calls]
        return [chunk]

    def _fragment(self, name: str, arguments: str) -> dict[str, Any]:
        self._count += 1
        return {"index": self._count, "function": {"name": name, "arguments": arguments}}
