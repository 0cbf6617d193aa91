"""What `chat` works on: a model, tools, and a conversation that is kept as things happen.

Rules:

1. Servers, model and database are got ready at the same time.
2. Trouble with the database is told once and never stops an answer; messages that could not be
   kept are tried again with the next ones. Only a conversation that was asked for by its id must
   be there, and take the next message.
3. What the person said stays in the conversation when the model fails or is stopped: the next
   message follows it, and every provider accepts that.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeAlias

from interlock import store
from interlock.agent import Agent, AgentEvent
from interlock.config import ServerConfig
from interlock.errors import MissingExtra, StoreError
from interlock.messages import Message, UserMessage
from interlock.models import Model, choose
from interlock.toolbox import Toolbox

if TYPE_CHECKING:
    from interlock.store import Conversation, ConversationStore

LONGEST_TITLE = 80  # characters

_Opened: TypeAlias = "tuple[ConversationLog, list[Message]]"


class ConversationLog:
    """A conversation's place in the store, if there is a store.

    Attributes:
        conversation: None until the first message has been kept.
    """

    def __init__(
        self,
        store: ConversationStore | None,
        conversation: Conversation | None = None,
        *,
        warn: Callable[[str], None],
    ) -> None:
        self.conversation = conversation
        self._warn = warn
        self._store = store
        self._unsaved: list[Message] = []
        self._title = ""
        self._told = ""
        self._must_work = conversation is not None

    async def begin(self, title: str, model: str) -> None:
        """Make a place for a new conversation; does nothing when there is one."""
        if self._store is None or self.conversation is not None:
            return
        self._title = self._title or title  # of the first message, even if it had no place
        try:
            self.conversation = await self._store.create(self._title, model)
        except StoreError as error:
            self._tell(error)

    async def record(self, messages: Sequence[Message]) -> None:
        """Keep messages, and those that could not be kept before.

        Raises:
            StoreError: A conversation that was to be continued does not take the first one.
        """
        if self._store is None:
            return
        unsaved = [*self._unsaved, *messages]
        if self.conversation is None:
            self._unsaved = unsaved
            return
        try:
            await self._store.append(self.conversation.id, *unsaved)
        except StoreError as error:
            if self._must_work:
                raise
            self._unsaved = unsaved
            self._tell(error)
        else:
            self._unsaved = []
            self._must_work = False

    async def note_model(self, model: str) -> None:
        """Keep which model the conversation goes on with."""
        if self._store is None or self.conversation is None or self.conversation.model == model:
            return
        try:
            await self._store.update(self.conversation.id, model=model)
        except StoreError as error:
            self._tell(error)

    def renewed(self) -> ConversationLog:
        """Return the place for another conversation in the same store."""
        return ConversationLog(self._store, warn=self._warn)

    def _tell(self, error: StoreError) -> None:
        if str(error) != self._told:
            self._told = str(error)
            self._warn(f"conversation not kept: {error}")


class Chat:
    """An open chat. `messages` is valid for every provider whenever no answer is under way."""

    def __init__(
        self, model: Model, toolbox: Toolbox | None, kept: ConversationLog, messages: list[Message]
    ) -> None:
        self.model = model
        self.toolbox = toolbox
        self.kept = kept
        self.messages = messages

    async def ask(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        """Say something to the model and tell what happens."""
        await self.kept.begin(_title(text), self.model.name)
        self.messages.append(UserMessage(text))
        try:
            await self.kept.record(self.messages[-1:])
        except StoreError:
            self.messages.pop()
            raise
        agent = Agent(self.model, self.toolbox, record=self.kept.record)
        async with aclosing(agent.stream(self.messages)) as events:
            async for event in events:
                yield event

    async def change_model(self, name: str) -> None:
        """Go on with another model.

        Raises:
            ModelUnavailable: There is no such model; the old one stays.
            MissingExtra: It needs a package that is not installed; the old one stays.
        """
        new = await choose.choose(name)
        old, self.model = self.model, new
        await old.close()
        await self.kept.note_model(new.name)

    def begin_anew(self) -> None:
        """Leave the conversation and begin another one."""
        self.kept = self.kept.renewed()
        self.messages = []


@asynccontextmanager
async def open_chat(
    servers: Mapping[str, ServerConfig] | None,
    *,
    model: str | None,
    conversation: str | None,
    warn: Callable[[str], None],
) -> AsyncIterator[Chat]:
    """Open a chat; everything is closed on the way out.

    Args:
        servers: By name; None for no tools at all.
        model: As for `choose`; None takes the conversation's own first.
        conversation: The id, or the beginning of it, of one to continue.
        warn: Called with a line for the user when the conversation cannot be stored.

    Raises:
        InterlockError: There is no model, or the conversation cannot be continued.
    """
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(_open_kept(stack, conversation, warn))
                choosing = group.create_task(_choose(model, keeping))
                toolbox = None
                if servers is not None:
                    toolbox = Toolbox(servers)
                    stack.push_async_callback(toolbox.close)
                    await toolbox.open()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        kept, messages = keeping.result()
        chat = Chat(choosing.result(), toolbox, kept, messages)
        stack.push_async_callback(lambda: chat.model.close())
        await kept.note_model(chat.model.name)
        yield chat


async def _open_kept(stack: AsyncExitStack, id: str | None, warn: Callable[[str], None]) -> _Opened:
    try:
        # The import takes half a second that the servers use for their start.
        kind = await asyncio.to_thread(lambda: store.ConversationStore)
        opened = await stack.enter_async_context(kind.open())
    except (MissingExtra, StoreError) as error:
        if id is not None:
            raise
        warn(f"conversation not kept: {error}")
        return ConversationLog(None, warn=warn), []
    if id is None:
        return ConversationLog(opened, warn=warn), []
    conversation = await opened.resolve(id)
    return ConversationLog(opened, conversation, warn=warn), await opened.resume(conversation.id)


async def _choose(name: str | None, keeping: asyncio.Task[_Opened]) -> Model:
    remembered = name is None
    if name is None:
        kept, _ = await asyncio.shield(keeping)
        name = kept.conversation.model if kept.conversation else None
    model = await choose.choose(name or None, remembered=remembered)
    for provider in choose.PROVIDERS:
        if model.name.startswith(f"{provider.name}:") and find_spec(provider.package):
            # A second or so; later it would stand between the question and the answer.
            await asyncio.to_thread(import_module, provider.package)
    return model


def _title(text: str) -> str:
    return " ".join(text.split())[:LONGEST_TITLE]
