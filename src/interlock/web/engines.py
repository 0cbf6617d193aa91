"""What answers the messages of a chat: our agent, or a graph of LangGraph."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from interlock.agent import Agent, AgentEvent, ApprovalAsked
from interlock.calls import Call, Caller, Entry, Outcome
from interlock.errors import CallRefused, UnknownConversation
from interlock.messages import AssistantMessage, Message, ToolMessage, UserMessage
from interlock.models import Model
from interlock.store import ConversationStore
from interlock.toolbox import Toolbox
from interlock.types import JsonObject
from interlock.web.turns import Turn

LONGEST_TITLE = 80  # characters
APPROVAL_SECONDS = 86_400

Approve = Callable[[Caller, Entry, JsonObject], str | None]


class AgentEngine:
    """Answers with `Agent`; conversations are kept in a store.

    Args:
        model: The model.
        toolbox: An open toolbox; None for a chat without tools.
        store: Where conversations are kept.
        approve: Returns why a person must allow a call, or None if none has to.
    """

    def __init__(
        self,
        model: Model,
        toolbox: Toolbox | None,
        store: ConversationStore,
        *,
        approve: Approve | None = None,
    ) -> None:
        self._model = model
        self._toolbox = toolbox
        self._store = store
        self._approve = approve

    async def open(self, owner: str, conversation: str | None, title: str) -> str:
        """See `Engine.open`."""
        store = self._store.owned_by(owner)
        if conversation is None:
            shown = " ".join(title.split())[:LONGEST_TITLE]
            return (await store.create(shown, self._model.name)).id
        found = await store.resolve(conversation)
        if found.id != conversation:  # the beginning of an id is not enough
            raise UnknownConversation("no such conversation")
        return found.id

    async def messages(self, owner: str, conversation: str) -> list[JsonObject]:
        """See `Engine.messages`."""
        await self.open(owner, conversation, "")
        found = await self._store.owned_by(owner).messages(conversation)
        return [shown for each in found if (shown := _shown(each))]

    async def run(self, turn: Turn, content: str) -> AsyncGenerator[AgentEvent, None]:
        """See `Engine.run`."""
        store = self._store.owned_by(turn.owner)
        messages = await store.resume(turn.conversation)
        question = UserMessage(content)
        messages.append(question)
        await store.append(turn.conversation, question)

        async def record(added: Any) -> None:
            await store.append(turn.conversation, *added)

        toolbox = self._toolbox
        if toolbox is not None and self._approve is not None:
            toolbox = cast("Toolbox", _AskingToolbox(toolbox, turn, self._approve))
        agent = Agent(self._model, toolbox, record=record, caller=turn.caller, progress=True)
        async with aclosing(agent.stream(messages)) as events:
            async for event in events:
                yield event

    async def resume(
        self,
        turn: Turn,  # noqa: ARG002
        decisions: dict[str, JsonObject],  # noqa: ARG002
    ) -> AsyncGenerator[AgentEvent, None]:
        """See `Engine.resume`. Nothing is left to do: a call waits in its own task."""
        return
        yield

    async def stopped(self, turn: Turn) -> None:
        """Do nothing: the agent has left the conversation valid."""


class _AskingToolbox:
    """A toolbox whose calls wait for a person where that is needed."""

    def __init__(self, toolbox: Toolbox, turn: Turn, approve: Approve) -> None:
        self._toolbox = toolbox
        self._turn = turn
        self._approve = approve

    def __getattr__(self, name: str) -> Any:
        return getattr(self._toolbox, name)

    async def handle(self, call: Call) -> Outcome:
        """Call a tool, after a person has allowed it."""
        reason = self._approve(call.caller, cast("Entry", call.entry), call.arguments)
        if reason is not None:
            await self._ask(call, reason)
        return await self._toolbox.handle(call)

    async def _ask(self, call: Call, reason: str) -> None:
        address = cast("Entry", call.entry).address
        shown = msgspec.json.encode([address, call.arguments], order="sorted")
        expires = datetime.now(UTC) + timedelta(seconds=APPROVAL_SECONDS)
        approval = ApprovalAsked(
            id=f"a_{secrets.token_urlsafe(12)}",
            tool_call_id=self._turn.tool_call_of(call.id),
            address=address,
            arguments=call.arguments,
            reason=reason,
            expires=expires.isoformat(timespec="seconds").replace("+00:00", "Z"),
            hash=hashlib.sha256(shown).hexdigest(),
        )
        try:
            async with asyncio.timeout(APPROVAL_SECONDS):
                decided = await self._turn.ask(approval)
        except TimeoutError:
            raise CallRefused("the time to allow this call is over", "approval_expired") from None
        if decided["decision"] != "allow":
            raise CallRefused("a person denied this call", "approval_denied")


def _shown(message: Message) -> JsonObject | None:
    if isinstance(message, UserMessage):
        return {"role": "user", "content": message.content}
    if isinstance(message, AssistantMessage):
        return {"role": "assistant", "content": message.content} if message.content else None
    if isinstance(message, ToolMessage):
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
    return None
