"""The embedded model: Gemma 3 270M in this process, without a key and without the network.

It is a default that lets a newcomer see everything work, and tests meet a real model; it is not
clever, so it is asked for nothing that it cannot do. It was measured as a judge of which tool is
meant, as a writer under a grammar and by the likelihood of tool or request, and spoiled several
choices for each one that it mended. Therefore:

1. `ranking` chooses the tool: by the words of the request and by the values in it.
2. `filling` takes the arguments from the request. What is missing is asked for.
3. A tool's result is the answer, never in the model's words.
4. When no tool is meant, the model answers; but not about files, addresses or sums.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import platformdirs

from interlock.errors import ModelUnavailable
from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from interlock.models import ModelEvent, Reply, TextDelta, ToolDefinition, Usage
from interlock.models.local.answers import told
from interlock.models.local.engine import Engine, Text
from interlock.models.local.filling import fill
from interlock.models.local.prompts import chat_prompt
from interlock.models.local.ranking import LONGEST, Catalogue
from interlock.models.local.spans import find_spans
from interlock.models.local.weights import weights_file
from interlock.models.local.words import bag

__all__ = ["LocalModel"]

MAX_TOKENS = 128  # of an answer
ENOUGH_TOKENS = 40  # after which it ends with the sentence: the longer, the less it is worth
SURE = 0.8  # score from which a tool is meant
FAR = 0.3  # scores this far apart leave no doubt
CLEAR = 1.35  # ... even though a required argument is missing
# What the model would only make up.
UNFIT = (
    "None of my tools seems to fit this. Name the thing as the tool does, or ask a larger model."
)
TOOLLESS = "I have no tools, and without one I cannot know this."
_OUTSIDE = bag("path url email sql hash expression")
_FOLLOWS = re.compile(r"(?:and|or|now|then|what about|how about|same)\b.{1,60}$", re.IGNORECASE)


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
    ) -> AsyncGenerator[ModelEvent, None]:
        """Call a tool, tell its result, or answer in words. See `Model.stream`.

        One tool at most is called for one thing a person says: when results are the newest
        messages, they are the answer.
        """
        if self._closed:
            raise ModelUnavailable(f"{self.name} has been closed")
        if results := _last_results(messages):
            yield TextDelta(text := told(results))
            yield Reply(AssistantMessage(text))
            return
        decision = await asyncio.to_thread(self._decide, messages, tools)
        if isinstance(decision, ToolCall):
            yield Reply(AssistantMessage(tool_calls=(decision,)), stop_reason="tool_calls")
        elif decision:
            yield TextDelta(decision)
            yield Reply(AssistantMessage(decision))
        else:
            async with aclosing(self._talk(messages, tools)) as answer:
                async for event in answer:
                    yield event

    async def close(self) -> None:
        """Free the memory, after the answer that is being written. Closing twice is fine."""
        async with self._turn:
            self._closed = True
            engine, self._engine = self._engine, None
            if engine is not None:
                await asyncio.to_thread(engine.close)

    # Choosing

    def _decide(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> ToolCall | str | None:
        """A tool to call, or what to ask the person, or None when it is for the model."""
        catalogue = self._catalogue
        if [entry.definition for entry in catalogue.entries] != list(tools):
            self._catalogue = catalogue = Catalogue(tools)
        request = _last_request(messages)
        ranked = catalogue.rank(request)
        ready = next((c for c in ranked if c.score >= SURE and not c.filling.missing), None)
        wanted = max(ranked, key=lambda c: c.wanted, default=None)
        missed = wanted if wanted and wanted.filling.missing and wanted.wanted >= CLEAR else None
        if ready and not (missed and missed.wanted > ready.score + FAR):
            return _call(ready.entry.definition.name, ready.filling.arguments)
        if call := _again(catalogue, messages, request):
            return call
        if missed:
            needs = " and ".join(parameter.name for parameter in missed.filling.missing)
            return f"For {missed.entry.title} I also need: {needs}."
        if _about_the_outside(request):
            return UNFIT if tools else TOOLLESS
        return None

    # Talking

    async def _talk(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> AsyncGenerator[ModelEvent, None]:
        prompt = chat_prompt(messages, tools)
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def write(go_on: Callable[[], bool]) -> Text:
            tokens = itertools.count(1)

            def receive(piece: str) -> bool:
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
                ends = piece.endswith((".", "!", "?"))
                return go_on() and not (next(tokens) >= ENOUGH_TOKENS and ends)

            try:
                return engine.write(
                    prompt, max_tokens=MAX_TOKENS, stop=("\nQ:", "\n\n"), on_text=receive
                )
            finally:
                loop.call_soon_threadsafe(pieces.put_nowait, None)

        async with self._turn:
            engine = await self._loaded()
            writing = asyncio.create_task(_in_thread(write))
            text = ""
            try:
                while (piece := await pieces.get()) is not None:
                    piece = piece if text else piece.lstrip()
                    text += piece
                    if piece:
                        yield TextDelta(piece)
                written = await writing
            finally:
                writing.cancel()
                await asyncio.wait([writing])
        if not text:
            text = "I have no answer to that."
            yield TextDelta(text)
        yield Reply(
            AssistantMessage(text),
            Usage(written.input_tokens, written.output_tokens),
            "end" if written.complete or written.output_tokens < MAX_TOKENS else "length",
        )

    async def _loaded(self) -> Engine:
        if self._closed:
            raise ModelUnavailable(f"{self.name} has been closed")
        if self._engine is None:
            weights = await asyncio.to_thread(weights_file, self._cache)
            self._engine = await asyncio.to_thread(Engine, weights)
        return self._engine


async def _in_thread(write: Callable[[Callable[[], bool]], Text]) -> Text:
    """Run `write` in a thread. Cancelled, it is told to stop, and waited for.

    Args:
        write: Is given a function that says whether to go on.
    """
    stopped = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(write, lambda: not stopped.is_set()))
    try:
        return await asyncio.shield(work)
    finally:
        stopped.set()
        if not work.done():
            await asyncio.wait([work])


def _again(catalogue: Catalogue, messages: Sequence[Message], request: str) -> ToolCall | None:
    """The call before with a new value: "and in Paris?" after the time in Tokyo."""
    calls = [c for m in messages if isinstance(m, AssistantMessage) for c in m.tool_calls]
    if not calls or not _FOLLOWS.match(request):
        return None
    before = calls[-1]
    for entry in catalogue.entries:
        if entry.definition.name == before.name:
            filling = fill(request, find_spans(request), entry.parameters)
            unsaid = {
                p.name for p in entry.parameters if filling.arguments.get(p.name) == p.default
            }
            unsaid |= {p.name for p in filling.assumed}
            new = {k: v for k, v in filling.arguments.items() if k not in unsaid}
            if filling.value and new:
                return _call(before.name, {**before.input, **new})
    return None


def _about_the_outside(request: str) -> bool:
    """Whether the request names things that only a tool can look at."""
    spans = find_spans(request[:LONGEST])
    return any(
        span.kind in _OUTSIDE or (span.kind == "zone" and "/" in request[span.start : span.end])
        for span in spans
    )


def _call(name: str, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(f"call_{uuid.uuid4().hex[:12]}", name, arguments)


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
