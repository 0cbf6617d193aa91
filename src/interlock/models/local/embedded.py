"""The embedded model: Gemma 3 270M in this process, without an API key or a network.

It shows a new user a working chat, and tests can use a real model. It is too small to choose
tools: in measurements it spoiled several choices for each one it improved, whether it judged the
tools, wrote under a grammar, or compared likelihoods. Therefore:

1. `ranking` chooses the tool by the words and the values of the request.
2. `filling` takes the arguments from the request. The user is asked for missing ones.
3. A tool's result is the answer; the model does not rephrase it.
4. If no tool fits with certainty, the answer is a fixed sentence. The model itself only answers
   small talk and makes up texts on request, because it invents the facts in all other answers.
5. Without the packages of its weights, the rules alone answer: `local:rules`.
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
from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage, Usage, UserMessage
from interlock.models.llama import LoadedModel, Text
from interlock.models.local.answers import format_results
from interlock.models.local.filling import fill
from interlock.models.local.prompts import abilities, chat_prompt
from interlock.models.local.ranking import LONGEST, ToolRanking
from interlock.models.local.spans import find_spans
from interlock.models.local.talk import is_about_the_model, is_talk
from interlock.models.local.weights import weights_file
from interlock.models.local.words import bag
from interlock.models.model import ModelEvent, Reply, TextDelta, ToolDefinition
from interlock.models.vendors import unread_files

GEMMA, RULES = "local:gemma-3-270m", "local:rules"
NAMES = frozenset(("local", GEMMA, RULES))
INTRODUCTION = (
    "I am the embedded model, a small one that runs on your own computer. I pick tools by the "
    "words of a request, and I know no facts."
)
NO_MODEL = "No model is installed, so rules pick a tool by the words of a request."
MAX_TOKENS = 128  # tokens of an answer
ENOUGH_TOKENS = 40  # after this many tokens, stop at the end of the sentence: longer is worse
SURE = 0.8  # the minimum score of a tool to be called
FAR = 0.3  # a tool that lacks an argument is preferred only if its score is higher by this much
CLEAR = 1.35  # the minimum score of a tool for the user to be asked for a missing argument
# The fixed answers to requests for facts, which the model would invent.
_LARGER = (
    "use a larger model: interlock chat --model anthropic:…, openai:…, ollama:… or local:FILE.gguf"
)
UNFIT = (
    "None of my tools seems to fit this, and I am too small a model to know facts. Name the tool's "
    f"subject and its values, or {_LARGER}"
)
TOOLLESS = (
    "I have no tools, and I am too small a model to know facts. Add tools by `interlock servers "
    f"add` or `interlock servers import`, or {_LARGER}"
)
_OUTSIDE = bag("path url email sql hash expression")
_FOLLOWS = re.compile(r"(?:and|or|now|then|what about|how about|same)\b.{1,60}$", re.IGNORECASE)


class LocalModel:
    """Gemma 3 270M behind the `Model` protocol.

    The weights are loaded by the first request that needs the model itself. Requests are
    answered one at a time.

    Args:
        cache: Folder for the weights (253 MB); the user's cache folder if None.
        has_weights: Whether the weights are installed; without them, rules alone answer.
    """

    selects_tools = True  # from all definitions

    def __init__(self, cache: Path | None = None, *, has_weights: bool = True) -> None:
        self._has_weights = has_weights
        self._cache = cache or Path(platformdirs.user_cache_dir("interlock"))
        self._lock = asyncio.Lock()
        self._engine: LoadedModel | None = None
        self._index = ToolRanking(())
        self._closed = False

    @property
    def name(self) -> str:
        return GEMMA if self._has_weights else RULES

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        """Call a tool, return its result, or answer in words. See `Model.stream`.

        One user message leads to calls of at most one tool: if the last messages are results, the
        results are the answer.
        """
        if self._closed:
            raise ModelUnavailable(f"{self.name} has been closed")
        for unread in unread_files(self.name, messages):
            yield unread
        if results := _last_results(messages):
            yield TextDelta(text := format_results(results, _calls_of(messages)))
            yield Reply(AssistantMessage(text))
            return
        decision = await asyncio.to_thread(self._decide, messages, tools)
        if isinstance(decision, tuple):
            yield Reply(AssistantMessage(tool_calls=decision), stop_reason="tool_calls")
        elif decision:
            yield TextDelta(decision)
            yield Reply(AssistantMessage(decision))
        else:
            async with aclosing(self._talk(_last_request(messages))) as answer:
                async for event in answer:
                    yield event

    async def close(self) -> None:
        """Free the memory once the current answer is complete. Closing twice is allowed."""
        async with self._lock:
            self._closed = True
            engine, self._engine = self._engine, None
            if engine is not None:
                await asyncio.to_thread(engine.close)

    # Choosing

    def _decide(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition]
    ) -> tuple[ToolCall, ...] | str | None:
        """Return tool calls, or a text for the user, or None if the model should answer."""
        index = self._index
        if [tool.definition for tool in index.tools] != list(tools):
            self._index = index = ToolRanking(tools)
        request = _last_request(messages)
        ranked = index.rank(request)
        ready = next((c for c in ranked if c.score >= SURE and not c.filling.missing), None)
        best = max(ranked, key=lambda c: c.full_score, default=None)
        lacking = best if best and best.filling.missing and best.full_score >= CLEAR else None
        if ready and not (lacking and lacking.full_score > ready.score + FAR):
            name, filling = ready.tool.definition.name, ready.filling
            return tuple(_call(name, each) for each in (filling.arguments, *filling.further))
        if call := _repeat_call(index, messages, request):
            return (call,)
        if lacking:
            needs = " and ".join(parameter.name for parameter in lacking.filling.missing)
            return f"For {lacking.tool.title} I also need: {needs}."
        if is_about_the_model(request):
            return f"{INTRODUCTION if self._has_weights else NO_MODEL} {abilities(tools)}"
        if is_talk(request) and not _about_the_outside(request):
            return None if self._has_weights else f"{NO_MODEL} {abilities(tools)}"
        return UNFIT if tools else TOOLLESS

    # Talking

    async def _talk(self, request: str) -> AsyncGenerator[ModelEvent, None]:
        prompt = chat_prompt(request)
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

        async with self._lock:
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

    async def _loaded(self) -> LoadedModel:
        if self._closed:
            raise ModelUnavailable(f"{self.name} has been closed")
        if self._engine is None:
            weights = await asyncio.to_thread(weights_file, self._cache)
            self._engine = await asyncio.to_thread(LoadedModel, weights)
        return self._engine


async def _in_thread(write: Callable[[Callable[[], bool]], Text]) -> Text:
    """Run `write` in a thread. If this task is cancelled, stop `write` and wait for its end.

    Args:
        write: Called with a function that returns whether to continue.
    """
    stopped = threading.Event()
    work = asyncio.ensure_future(asyncio.to_thread(write, lambda: not stopped.is_set()))
    try:
        return await asyncio.shield(work)
    finally:
        stopped.set()
        if not work.done():
            await asyncio.wait([work])


def _repeat_call(index: ToolRanking, messages: Sequence[Message], request: str) -> ToolCall | None:
    """Return the previous call with a new value: "and in Paris?" after the time in Tokyo."""
    calls = _calls_of(messages)
    if not calls or not _FOLLOWS.match(request):
        return None
    previous = calls[-1]
    for tool in index.tools:
        if tool.definition.name == previous.name:
            filling = fill(request, find_spans(request), tool.parameters)
            defaults = {
                p.name for p in tool.parameters if filling.arguments.get(p.name) == p.default
            }
            defaults |= {p.name for p in filling.assumed}
            new = {k: v for k, v in filling.arguments.items() if k not in defaults}
            if filling.value and new:
                return _call(previous.name, {**previous.input, **new})
    return None


def _about_the_outside(request: str) -> bool:
    spans = find_spans(request[:LONGEST])
    return any(
        span.kind in _OUTSIDE or (span.kind == "zone" and "/" in request[span.start : span.end])
        for span in spans
    )


def _calls_of(messages: Sequence[Message]) -> list[ToolCall]:
    return [c for m in messages if isinstance(m, AssistantMessage) for c in m.tool_calls]


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
