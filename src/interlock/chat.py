"""A chat: a model, tools, and a conversation that is stored while it happens.

Rules:

1. Servers, model and database are opened concurrently.
2. A database error is reported once and does not stop an answer. Messages that could not be
   stored are stored with the next ones. A conversation that is continued by its id is the
   exception: it must exist and accept the first new message.
3. The user's message stays in the conversation when the model fails or is stopped. The next
   message follows it, which every provider accepts.
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
from interlock.calls import Around, Caller
from interlock.calls.results import ResultBudget
from interlock.client import ClientOptions
from interlock.config import ServerConfig
from interlock.errors import MissingExtra, StoreError, UnknownConversation
from interlock.messages import Message, SystemMessage, UserMessage
from interlock.models import Model, choose
from interlock.toolbox import Toolbox
from interlock.toolbox.pins import PinKeeper
from interlock.transports import InProcessServer

if TYPE_CHECKING:
    from interlock.store import Conversation, ConversationStore

CHAT = Caller(surface="chat")
LONGEST_TITLE = 80  # characters

_Opened: TypeAlias = "tuple[ConversationLog, list[Message]]"


class ConversationLog:
    """Stores the messages of one conversation. Without a store it does nothing.

    Attributes:
        conversation: None until the conversation exists in the store.
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
        self._last_warning = ""
        self._must_succeed = conversation is not None

    async def create(self, title: str, model: str) -> None:
        """Create the conversation in the store, unless it exists."""
        if self._store is None or self.conversation is not None:
            return
        self._title = self._title or title  # of the first message, even if it was not stored
        try:
            self.conversation = await self._store.create(self._title, model)
        except StoreError as error:
            self._warn_once(error)

    async def record(self, messages: Sequence[Message]) -> None:
        """Store messages, after those that could not be stored before.

        Raises:
            StoreError: A continued conversation does not accept its first new message.
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
            if self._must_succeed:
                raise
            self._unsaved = unsaved
            self._warn_once(error)
        else:
            self._unsaved = []
            self._must_succeed = False

    async def note_model(self, model: str) -> None:
        """Store the name of the model that continues the conversation."""
        if self._store is None or self.conversation is None or self.conversation.model == model:
            return
        try:
            await self._store.update(self.conversation.id, model=model)
        except StoreError as error:
            self._warn_once(error)

    def successor(self) -> ConversationLog:
        """Return a log for another conversation in the same store."""
        return ConversationLog(self._store, warn=self._warn)

    def _warn_once(self, error: StoreError) -> None:
        if str(error) != self._last_warning:
            self._last_warning = str(error)
            self._warn(f"conversation not stored: {error}")


class Chat:
    """An open chat. `messages` is valid for every provider while no answer is in progress."""

    def __init__(
        self,
        model: Model,
        toolbox: Toolbox | None,
        log: ConversationLog,
        messages: list[Message],
        *,
        system: str = "",
        caller: Caller = CHAT,
    ) -> None:
        self.model = model
        self._system = system
        self.toolbox = toolbox
        self.log = log
        self.messages = messages
        self._caller = caller

    async def ask(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        """Send the user's message to the model; yield what happens until the answer is complete.

        Raises:
            StoreError: A continued conversation does not accept the message.
            ModelError: The model failed.
            StepLimit: The model was still calling tools after the last round.
        """
        await self.log.create(_title(text), self.model.name)
        new: list[Message] = [UserMessage(text)]
        if self._system and not self.messages:
            new.insert(0, SystemMessage(self._system))
        await self.log.record(new)
        self.messages += new
        agent = Agent(self.model, self.toolbox, record=self.log.record, caller=self._caller)
        async with aclosing(agent.stream(self.messages)) as events:
            async for event in events:
                yield event

    async def change_model(self, name: str) -> None:
        """Continue with another model.

        Raises:
            ModelUnavailable: The model does not exist; the old one stays.
            MissingExtra: It needs a package that is not installed; the old one stays.
        """
        new = await choose.choose(name)
        old, self.model = self.model, new
        await old.close()
        await self.log.note_model(new.name)

    def start_conversation(self) -> None:
        """Leave this conversation and start another one."""
        self.log = self.log.successor()
        self.messages = []


@asynccontextmanager
async def open_chat(
    servers: Mapping[str, ServerConfig | InProcessServer] | None,
    *,
    model: str | None,
    conversation: str | None = None,
    latest: bool = False,
    system: str = "",
    warn: Callable[[str], None],
    around: Sequence[Around] = (),
    handlers: Callable[[str], ClientOptions] | None = None,
    results: ResultBudget | None = None,
    pins: PinKeeper | None = None,
    caller: Caller = CHAT,
) -> AsyncIterator[Chat]:
    """Open a chat; close the servers, the model and the store at the end.

    Args:
        servers: By name; None for a chat without tools.
        model: As for `choose`; None uses the conversation's model, if it has one.
        conversation: Id, or the beginning of an id, of a conversation to continue.
        latest: Continue the conversation that changed last.
        system: Instructions to the model, at the start of each new conversation.
        warn: Called with a line for the user when the conversation cannot be stored.
        around: The layers of every tool call, as for `Toolbox`.
        handlers: Returns the handlers for what a server asks, as for `Toolbox`.
        results: The budget of results, as for `Toolbox`.
        pins: Which definitions are accepted, as for `Toolbox`.
        caller: On whose behalf the model calls tools.

    Raises:
        InterlockError: No model is available, or the conversation cannot be continued.
    """
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.TaskGroup() as group:
                opening = group.create_task(_open_log(stack, conversation, latest, warn))
                choosing = group.create_task(_choose(model, opening))
                toolbox = None
                if servers is not None:
                    toolbox = Toolbox(
                        servers, around=around, handlers=handlers, results=results, pins=pins
                    )
                    stack.push_async_callback(toolbox.close)
                    await toolbox.open()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        log, messages = opening.result()
        chat = Chat(choosing.result(), toolbox, log, messages, system=system, caller=caller)
        stack.push_async_callback(lambda: chat.model.close())
        await log.note_model(chat.model.name)
        yield chat


async def _open_log(
    stack: AsyncExitStack, id: str | None, latest: bool, warn: Callable[[str], None]
) -> _Opened:
    try:
        # The import takes half a second, during which the servers can start.
        kind = await asyncio.to_thread(lambda: store.ConversationStore)
        opened = await stack.enter_async_context(kind.open())
    except (MissingExtra, StoreError) as error:
        if id is not None or latest:
            raise
        warn(f"conversation not stored: {error}")
        return ConversationLog(None, warn=warn), []
    if latest:
        found = await opened.list(1)
        if not found:
            raise UnknownConversation("no conversation exists that could continue")
        id = found[0].id
    if id is None:
        return ConversationLog(opened, warn=warn), []
    conversation = await opened.resolve(id)
    return ConversationLog(opened, conversation, warn=warn), await opened.resume(conversation.id)


async def _choose(name: str | None, opening: asyncio.Task[_Opened]) -> Model:
    remembered = name is None
    if name is None:
        log, _ = await asyncio.shield(opening)
        name = log.conversation.model if log.conversation else None
    model = await choose.choose(name or None, remembered=remembered)
    for provider in choose.PROVIDERS:
        if model.name.startswith(f"{provider.name}:") and find_spec(provider.package):
            # Takes about a second, which the first answer need not wait for.
            await asyncio.to_thread(import_module, provider.package)
    return model


def _title(text: str) -> str:
    return " ".join(text.split())[:LONGEST_TITLE]
