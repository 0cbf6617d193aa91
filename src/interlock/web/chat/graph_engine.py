"""The engine that answers with a LangGraph graph."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from langgraph.types import Command

from interlock.agent import AgentEvent
from interlock.errors import UnknownConversation
from interlock.langchain.history import STOPPED
from interlock.langgraph import ChatContext, close_open_calls, stream
from interlock.langgraph.conversion import blocks_of
from interlock.messages import Unfinished
from interlock.store import ConversationStore
from interlock.types import JsonObject
from interlock.web.chat.attachments import with_files
from interlock.web.chat.engines import LONGEST_TITLE
from interlock.web.chat.errors import TurnError
from interlock.web.chat.turn import Turn

_ROLES = {"human": "user", "ai": "assistant", "tool": "tool"}


class GraphEngine:
    """Answers messages with a LangGraph graph, whose checkpointer stores the messages.

    Args:
        graph: A graph made by `chat_graph`, with a checkpointer.
        store: Stores the owner of each conversation.
        context: Returns the context of a run; with None, the context has only the caller.
    """

    def __init__(
        self,
        graph: Any,
        store: ConversationStore,
        context: Callable[[Turn], ChatContext] | None = None,
    ) -> None:
        self._graph = graph
        self._store = store
        self._context = context or _context_of

    async def open(self, owner: str, conversation: str | None, title: str) -> str:
        store = self._store.owned_by(owner)
        if conversation is None:
            return (await store.create(" ".join(title.split())[:LONGEST_TITLE])).id
        if (await store.resolve(conversation)).id != conversation:
            raise UnknownConversation("no such conversation")
        return conversation

    async def messages(self, owner: str, conversation: str) -> list[JsonObject]:
        await self.open(owner, conversation, "")
        config = {"configurable": {"thread_id": conversation}}
        values = (await self._graph.aget_state(config)).values
        return [_shown(each) for each in values.get("messages", ()) if each.type in _ROLES]

    async def branch(self, owner: str, conversation: str, count: int) -> str:  # noqa: ARG002
        """Refuse to copy a conversation: the checkpointer, which stores the messages, cannot."""
        raise TurnError("bad_message", "conversations of this chat cannot be copied")

    async def run(self, turn: Turn, content: str) -> AsyncGenerator[AgentEvent, None]:
        given: str | list[JsonObject] = content
        if turn.asked.files:
            files = self._store.owned_by(turn.owner).files
            given = blocks_of(await with_files(files, content, turn.asked.files))
            await files.use(turn.conversation, turn.asked.files)
        async with aclosing(self._stream(turn, given)) as events:
            async for event in events:
                yield event

    async def resume(
        self, turn: Turn, decisions: dict[str, JsonObject]
    ) -> AsyncGenerator[AgentEvent, None]:
        async with aclosing(self._stream(turn, Command(resume=decisions))) as events:
            async for event in events:
                yield event

    async def broken_off(self, turn: Turn, why: Unfinished) -> None:  # noqa: ARG002
        config = {"configurable": {"thread_id": turn.conversation}}
        await close_open_calls(self._graph, config, STOPPED)

    def _stream(self, turn: Turn, content: Any) -> AsyncGenerator[AgentEvent, None]:
        return stream(
            self._graph,
            content,
            thread=turn.conversation,
            user=turn.owner,
            context=self._context(turn),
        )


def _context_of(turn: Turn) -> ChatContext:
    return ChatContext(user=turn.owner, caller=turn.caller)


def _shown(message: Any) -> JsonObject:
    shown: JsonObject = {"role": _ROLES[message.type], "content": str(message.text)}
    return shown | {"tool_call_id": message.tool_call_id} if message.type == "tool" else shown
