"""The engines that answer the messages of a chat, and the stores of their conversations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from interlock.agent import Agent, AgentEvent, ToolFinished
from interlock.config import ToolSearch
from interlock.errors import UnknownConversation
from interlock.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    Unfinished,
    UserMessage,
)
from interlock.models import Model, TextDelta
from interlock.store import ConversationStore
from interlock.store.chat.chat_calls import ChatCall
from interlock.streamed_answer import StreamedAnswer
from interlock.text.timestamps import now_micros
from interlock.toolbox import Toolbox
from interlock.types import JsonObject
from interlock.web.chat.attachments import with_files
from interlock.web.chat.model_choice import ModelChoice
from interlock.web.chat.turn import Turn
from interlock.web.chat.turn_toolbox import Approve, MayUse, TurnToolbox

LONGEST_TITLE = 80  # characters


def agents_of(engine: str, tool_search: ToolSearch | str = "auto") -> Callable[..., Agent]:
    """Return the function that constructs a configured engine's agents.

    Args:
        engine: "agent", or "graph" for agents whose loop is a LangGraph graph.
        tool_search: Whether models search for tools.

    Raises:
        MissingExtra: LangGraph is not installed.
    """
    if engine == "agent":
        return partial(Agent, tool_search=tool_search)
    from interlock.langgraph.agent import GraphAgent, agent_graph

    return partial(GraphAgent, graph=agent_graph(tool_search=tool_search))


class AgentEngine:
    """Answers messages with an agent, and keeps the conversations in a store.

    Args:
        model: The model, or a `ModelChoice` if users may choose among models.
        toolbox: An open toolbox; None for a chat without tools.
        store: The store of the conversations.
        may_use, approve, asks_people, built_in: See `TurnToolbox`.
        system: Instructions for the model at the start of each conversation.
        agent: Creates the agent for each message; called with the arguments of `Agent`.
    """

    def __init__(
        self,
        model: Model | ModelChoice,
        toolbox: Toolbox | None,
        store: ConversationStore,
        *,
        may_use: MayUse | None = None,
        approve: Approve | None = None,
        asks_people: bool = False,
        built_in: bool = False,
        system: str = "",
        agent: Callable[..., Agent] = Agent,
    ) -> None:
        self.models = model if isinstance(model, ModelChoice) else ModelChoice.of(model)
        self.toolbox = toolbox
        self.store = store
        self.may_use = may_use
        self._tools_of = partial(
            TurnToolbox,
            may_use=may_use,
            approve=approve,
            asks_people=asks_people,
            built_in=built_in,
        )
        self._system = system
        self._agent = agent

    async def open(self, owner: str, conversation: str | None, title: str) -> str:
        store = self.store.owned_by(owner)
        if conversation is None:
            shown = " ".join(title.split())[:LONGEST_TITLE]
            return (await store.create(shown, self.models.default)).id
        found = await store.resolve(conversation)
        if found.id != conversation:  # `resolve` also accepts the beginning of an id
            raise UnknownConversation("no such conversation")
        return found.id

    async def messages(self, owner: str, conversation: str) -> list[JsonObject]:
        await self.open(owner, conversation, "")
        found = await self.store.owned_by(owner).messages(conversation)
        return [shown for each in found if (shown := _shown(each))]

    async def branch(self, owner: str, conversation: str, count: int) -> str:
        return (await self.store.owned_by(owner).fork(conversation, max(0, count))).id

    async def run(self, turn: Turn, content: str) -> AsyncGenerator[AgentEvent, None]:
        store = self.store.owned_by(turn.owner)
        conversation = await store.resolve(turn.conversation)
        name = self.models.pick(turn.asked.model or conversation.model)
        model = await self.models.get(name)
        turn.price = self.models.settings.price_of(name)
        if name != conversation.model:
            await store.update(conversation.id, model=name)
        messages = await self._begun(store, turn, content)

        async def append(added: Sequence[Message], draft: int | None) -> int:
            return await store.append(conversation.id, *added, model=name, draft=draft)

        turn.streamed = answer = StreamedAnswer(append)
        turn.tool_states = dict(conversation.settings.get("tools", {}))
        tools = None if self.toolbox is None else self._tools_of(self.toolbox, turn)
        agent = self._agent(
            model,
            tools,
            record=answer.record,
            caller=turn.caller,
            progress=True,
            conversation=lambda: conversation.id,
        )
        async with aclosing(agent.stream(messages)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    answer.add(event.text)
                elif isinstance(event, ToolFinished):
                    await self._keep(turn, tools, event)
                yield event

    async def _begun(self, store: ConversationStore, turn: Turn, content: str) -> list[Message]:
        """Store the user's message; return the conversation up to it, for the model."""
        if turn.asked.continues:
            messages = await store.resume(turn.conversation)
            turn.first = len(messages)
            return messages
        asked = await with_files(store.files, content, turn.asked.files)
        while True:  # until no other gateway adds messages between the two statements
            count = (await store.resolve(turn.conversation)).message_count
            messages = await store.resume(turn.conversation)
            is_first = not messages and bool(self._system)
            new: list[Message] = [*[SystemMessage(self._system)] * is_first, asked]
            position = await store.append_after(turn.conversation, count, *new)
            if position is not None:
                turn.first, turn.position = len(messages), position
                return [*messages, *new]

    async def _keep(self, turn: Turn, tools: TurnToolbox | None, event: ToolFinished) -> None:
        await self.store.owned_by(turn.owner).calls.add(
            ChatCall(
                event.call_id,
                turn.conversation,
                event.id,
                event.address,
                event.arguments,
                event.ending,
                event.reason,
                event.duration,
                now_micros(),
                turn.decided.get(event.id),
                None if tools is None else tools.results.pop(event.call_id, None),
            )
        )

    async def resume(
        self,
        turn: Turn,  # noqa: ARG002
        decisions: dict[str, JsonObject],  # noqa: ARG002
    ) -> AsyncGenerator[AgentEvent, None]:
        """Do nothing: with an agent, a call waits for its decision in its own task."""
        return
        yield

    async def broken_off(self, turn: Turn, why: Unfinished) -> None:
        """Store the text so far. The agent keeps the conversation valid."""
        if turn.streamed is not None and why.reason != "storage_full":
            await turn.streamed.end(why)


def _shown(message: Message) -> JsonObject | None:
    if isinstance(message, UserMessage):
        return {"role": "user", "content": message.content}
    if isinstance(message, AssistantMessage):
        shown: JsonObject = {"role": "assistant", "content": message.content}
        if message.is_draft:
            shown["draft"] = True
        return shown if message.content else None
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    return None
