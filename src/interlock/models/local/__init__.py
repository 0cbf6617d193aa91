"""The embedded model: Gemma 3 270M in this process, without a key and without the network.

It is a default that lets a newcomer see everything work, and tests meet a real model; it is not
clever. So it is not asked for more than it can do:

1. Which tool: `ranking` weighs every tool by the words of the request and by the values in it.
2. Which arguments: `filling` takes them from the request.
3. What is left open by these (a close race, a missing text) is decided by the model, which can
   only write what a grammar made from the tools allows.
4. A tool's result is shown as it is; the model may put a sentence before it, if that sentence
   holds nothing that is not in the result or the request.
5. Without a tool, the model answers in its own words.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import platformdirs

from interlock.errors import ModelUnavailable
from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from interlock.models import ModelEvent, Reply, TextDelta, ToolDefinition, Usage
from interlock.models.local.answers import told
from interlock.models.local.engine import Engine, Text
from interlock.models.local.prompts import chat_prompt
from interlock.models.local.ranking import Candidate, Catalogue
from interlock.models.local.weights import weights_file

__all__ = ["LocalModel"]

MAX_TOKENS = 256
SURE = 0.9  # score from which a tool is meant


class LocalModel:
    """Gemma 3 270M behind the `Model` protocol.

    Nothing is loaded before the first question that needs the model itself. Questions wait for
    each other: one is answered at a time.

    Args:
        cache: Folder for the weights (253 MB); the user's cache folder when None.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self._cache = cache or Path(platformdirs.user_cache_dir("interlock"))
        self._turn = asyncio.Lock()
        self._engine: Engine | None = None
        self._catalogue = Catalogue(())
        self._closed = False

    @property
    def name(self) -> str:
        """Provider and model, as in `--model`."""
        return "local:gemma-3-270m"

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncIterator[ModelEvent]:
        """Choose a tool, tell a tool's result, or answer in words. See `Model.stream`."""
        request = _last_request(messages)
        results = _last_results(messages)
        if results:
            text = told(results)
            yield TextDelta(text)
            yield Reply(AssistantMessage(text))
            return
        choice = self._choose(request, tools)
        if choice is not None:
            call = ToolCall(
                f"call_{uuid.uuid4().hex[:12]}",
                choice.entry.definition.name,
                choice.filling.arguments,
            )
            yield Reply(AssistantMessage(tool_calls=(call,)), stop_reason="tool_calls")
            return
        async for event in self._talk(messages, tools):
            yield event

    async def close(self) -> None:
        """Free the memory, after the answer that is being written. Closing twice is fine."""
        async with self._turn:
            self._closed = True
            engine, self._engine = self._engine, None
            if engine is not None:
                await asyncio.to_thread(engine.close)

    # Choosing

    def _choose(self, request: str, tools: Sequence[ToolDefinition]) -> Candidate | None:
        if [entry.definition for entry in self._catalogue.entries] != list(tools):
            self._catalogue = Catalogue(tools)
        candidates = self._catalogue.rank(request)
        return candidates[0] if candidates and candidates[0].score >= SURE else None

    # Talking

    async def _talk(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> AsyncIterator[ModelEvent]:
        prompt = chat_prompt(messages, tools)
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        stopped = threading.Event()

        def receive(piece: str) -> bool:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)
            return not stopped.is_set()

        async with self._turn:
            engine = await self._loaded()
            work = asyncio.create_task(
                asyncio.to_thread(
                    engine.write,
                    prompt,
                    max_tokens=MAX_TOKENS,
                    stop=("\nQ:", "\n\n"),
                    on_text=receive,
                )
            )
            work.add_done_callback(lambda _: pieces.put_nowait(None))
            text = ""
            try:
                while (piece := await pieces.get()) is not None:
                    piece = piece if text else piece.lstrip()
                    text += piece
                    if piece:
                        yield TextDelta(piece)
            finally:
                stopped.set()
                written: Text = await asyncio.shield(work)
        yield Reply(
            AssistantMessage(text.rstrip()),
            Usage(written.input_tokens, written.output_tokens),
            "end" if written.complete else "length",
        )

    async def _loaded(self) -> Engine:
        if self._closed:
            raise ModelUnavailable(f"{self.name} has been closed")
        if self._engine is None:
            weights = await asyncio.to_thread(weights_file, self._cache)
            self._engine = await asyncio.to_thread(Engine, weights)
        return self._engine


def _last_request(messages: Sequence[Message]) -> str:
    users = (m.content for m in reversed(messages) if isinstance(m, UserMessage))
    return next(users, "")


def _last_results(messages: Sequence[Message]) -> list[ToolMessage]:
    results: list[ToolMessage] = []
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        results.insert(0, message)
    return results
