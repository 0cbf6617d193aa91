"""An agent whose loop is a LangGraph graph, with our messages and models.

It records the conversation in the same way as `Agent`, so the graph needs no checkpointer.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage

from interlock.agent import (
    Agent,
    AgentEvent,
    Compacted,
    Done,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from interlock.agent.tool_results import files_of
from interlock.calls import Call, CallHandler, Outcome
from interlock.config import ToolSearch
from interlock.langgraph.chat_model import InterlockChatModel
from interlock.langgraph.conversion import Files, from_langchain, to_langchain
from interlock.langgraph.graph import chat_graph
from interlock.langgraph.nodes import MAX_ROUNDS
from interlock.langgraph.state import ChatContext
from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    ToolCall,
    ToolMessage,
    interrupted,
)
from interlock.models import Notice, ReasoningDelta, TextDelta, Usage
from interlock.toolbox import Tools

_SHOWN = (TextDelta, ReasoningDelta, Notice, Compacted, ToolStarted, ToolProgress, ToolFinished)


def agent_graph(max_rounds: int = MAX_ROUNDS, *, tool_search: ToolSearch | str = "auto") -> Any:
    """Compile a graph that any number of `GraphAgent` objects can share."""
    return chat_graph(
        lambda context: context.data.model,
        lambda context: context.data.toolbox,
        max_rounds=max_rounds,
        tool_search=tool_search,
    )


class GraphAgent(Agent):
    """An `Agent` whose answers come from a chat graph.

    Args:
        model: See `Agent`.
        tools: See `Agent`.
        graph: A result of `agent_graph`.
        options: Options of `Agent`, without `max_rounds`.
    """

    def __init__(
        self, model: Any = None, tools: Tools | None = None, *, graph: Any, **options: Any
    ) -> None:
        super().__init__(model, tools, **options)
        self._graph = graph

    async def _stream(self, messages: list[Message]) -> AsyncGenerator[AgentEvent, None]:
        model = await self._ready()
        files: dict[str, tuple[Attachment, ...]] = {}
        shown = _Shown(files)
        context = ChatContext(
            caller=self._caller,
            streams=True,
            begins_at=len(messages),
            around=shown.around,
            data=_Run(InterlockChatModel(model, files), self._toolbox),
        )
        given = {"messages": [to_langchain(each) for each in messages]}
        parts = self._graph.astream(given, context=context, stream_mode=["custom", "updates"])
        turn = _Turn(files)
        try:
            async with aclosing(parts):
                async for mode, part in parts:
                    if mode == "custom":
                        if isinstance(part, ToolFinished):
                            turn.finish(part)
                        if self._is_shown(part, turn):
                            yield part
                        if isinstance(part, ToolStarted):
                            shown.deliver(part.call_id)
                        continue
                    if new := turn.add(part):
                        await self._add(messages, new)
        finally:
            if left := turn.take_results():
                await self._add(messages, left)
        yield Done(turn.answer, turn.used, turn.stop_reason)

    def _is_shown(self, event: object, turn: _Turn) -> bool:
        if isinstance(event, Compacted):  # report it to the user only once
            turn.is_compacted, was_compacted = True, turn.is_compacted
            return not was_compacted
        return isinstance(event, _SHOWN) and (self._progress or not isinstance(event, ToolProgress))


@dataclass(frozen=True)
class _Run:
    """The data of one answer, which the shared graph's functions return."""

    model: BaseChatModel
    toolbox: Tools | None


class _Shown:
    """A layer that delays each call until its `ToolStarted` has been yielded.

    LangGraph runs calls while its events are still being read. Without this layer, a question
    about a call could reach the user before the call itself.

    Args:
        files: Receives the images and sounds of results, by call id, because the graph's messages
            have only text.
    """

    def __init__(self, files: dict[str, tuple[Attachment, ...]]) -> None:
        self._files = files
        self._delivered: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def deliver(self, call_id: str) -> None:
        """Allow the call with this audit id to run."""
        self._delivered[call_id].set()

    def around(self, handle: CallHandler) -> CallHandler:
        async def call_once_shown(call: Call) -> Outcome:
            await self._delivered[call.id].wait()
            del self._delivered[call.id]
            outcome = await handle(call)
            if files := files_of(outcome.result):
                self._files[call.id] = files
            return outcome

        return call_once_shown


class _Turn:
    """Collects the messages of one answer in the order that a conversation requires."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.answer = AssistantMessage()
        self.used = Usage()
        self.stop_reason = "end"
        self.is_compacted = False
        self._results: dict[str, ToolMessage] = {}
        self._finished: dict[str, ToolFinished] = {}  # ended calls that have no message yet

    def finish(self, event: ToolFinished) -> None:
        """Note that a call ended, in case the answer is stopped before the call's message comes."""
        self._finished[event.id] = event

    def add(self, update: dict[str, Any]) -> list[Message]:
        """Add the messages from one step of the graph; return the messages to record now."""
        for node in ("model", "tool"):
            messages: list[AnyMessage] = (update.get(node) or {}).get("messages", [])
            for each in messages:
                if new := self._add(each):
                    return new
        return []

    def _add(self, message: AnyMessage) -> list[Message]:
        ours = from_langchain(message, self._files)
        if isinstance(ours, ToolMessage):
            self._results[ours.tool_call_id] = ours
            has_all = len(self._results) == len(self.answer.tool_calls)
            return self.take_results() if has_all else []
        if isinstance(ours, AssistantMessage) and isinstance(message, AIMessage):
            self.answer = ours
            self.used = self.used.plus(ours.usage or Usage())
            self.stop_reason = message.response_metadata.get("finish_reason", "end")
            self._results, self._finished = {}, {}
            return [ours]
        return []

    def take_results(self) -> list[Message]:
        calls, self.answer = self.answer.tool_calls, _without_calls(self.answer)
        return [self._results.get(each.id) or self._result(each) for each in calls]

    def _result(self, call: ToolCall) -> ToolMessage:
        event = self._finished.get(call.id)
        if event is None:
            return interrupted(call)
        return ToolMessage(call.id, event.result, call.name, event.is_error)


def _without_calls(answer: AssistantMessage) -> AssistantMessage:
    return AssistantMessage(answer.content) if answer.tool_calls else answer
