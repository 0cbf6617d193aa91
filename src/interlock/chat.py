"""A chat: a model, tools, and a conversation that is stored message by message.

Rules:

1. Servers, model and database are opened concurrently. The database of a new conversation is opened
   when the first answer begins: it takes as long to import as everything before the request.
2. A database error is reported once and does not stop an answer. Messages that could not be
   stored are stored with the next ones. A conversation that is continued by its id is the
   exception: it must exist and accept the first new message.
3. The user's message stays in the conversation when the model fails or is stopped, and so does the
   text of the answer, as an unfinished answer. A killed program loses at most a second of it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
)
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from interlock import store
from interlock.agent import Agent, AgentEvent, Done
from interlock.agent.agent import Record
from interlock.attachments import TEXT, block
from interlock.calls import Caller
from interlock.client import ClientOptions
from interlock.config import ServerConfig
from interlock.config.settings import Settings
from interlock.errors import (
    CapabilityError,
    MissingExtra,
    ModelUnavailable,
    StoreError,
    UnknownConversation,
)
from interlock.layers.results import ResultBudget
from interlock.layers.stack import AroundCalls
from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    Unfinished,
    Usage,
    UserMessage,
)
from interlock.models import Model, TextDelta, choosing, claude_code
from interlock.models.anthropic import AnthropicModel
from interlock.models.openai import OpenAIModel
from interlock.streamed_answer import StreamedAnswer, ended
from interlock.toolbox import Toolbox
from interlock.toolbox.pins import PinKeeper
from interlock.transports import InProcessServer
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.store import Conversation, ConversationStore

__all__ = [
    "Chat",
    "ConversationLog",
    "open_chat",
]

CHAT = Caller(surface="chat")
LONGEST_TITLE = 80  # characters

_Opened: TypeAlias = "tuple[ConversationLog, list[Message]]"
_OpenStore: TypeAlias = "Callable[[], Awaitable[ConversationStore | None]]"


class ConversationLog:
    """Stores the messages of one conversation. Without a store it does nothing.

    Attributes:
        conversation: The stored conversation; None until it exists in the store.
    """

    def __init__(
        self,
        store: ConversationStore | None,
        conversation: Conversation | None = None,
        *,
        warn: Callable[[str], None],
        opens: _OpenStore | None = None,
    ) -> None:
        """Take the store, or a function that opens it.

        Args:
            store: The store; None stores nothing.
            conversation: A stored conversation that is continued.
            warn: Called with a line for the user when messages cannot be stored.
            opens: Opens the store when it is first needed.
        """
        self._opens = opens
        self._opening = asyncio.Lock()
        self.conversation = conversation
        self._warn = warn
        self._store = store
        self._unsaved: list[Message] = []
        self._draft: int | None = None  # the position of a draft of the first unsaved message
        self._title = ""
        self._model = ""
        self._last_warning = ""
        self._must_succeed = conversation is not None

    async def begin(self, title: str, model: str, messages: Sequence[Message]) -> None:
        """Store the first messages, or keep them for `open` if the store is not yet open.

        Raises:
            StoreError: A continued conversation does not accept its first new message.
        """
        if self._opens is not None:
            self._title, self._model = self._title or title, model
            self._unsaved += messages
            return
        await self.create(title, model)
        await self.append(messages)

    async def open(self) -> None:
        """Open the store if that is still to be done, and store the messages so far."""
        async with self._opening:
            if self._opens is None:
                return
            self._store = await self._opens()
            self._opens = None
            if self._unsaved:
                await self.create(self._title, self._model)
                await self._append((), None)

    async def create(self, title: str, model: str) -> None:
        """Create the conversation in the store, unless it exists."""
        if self._store is None or self.conversation is not None:
            return
        self._title = self._title or title  # of the first message, even if that was not stored
        try:
            self.conversation = await self._store.create(self._title, model)
        except StoreError as error:
            self._warn_once(error)

    async def keep_file(self, file: Attachment) -> str:
        """Store a file for the chat page to show; return its id."""
        await self.open()
        if self._store is not None:
            try:
                kept = await self._store.files.add(file.name, file.media_type, file.data)
            except StoreError as error:
                self._warn_once(error)
            else:
                return kept.id
        return f"f_{secrets.token_urlsafe(12)}"

    async def append(self, messages: Sequence[Message], draft: int | None = None) -> int | None:
        """Store messages, after any earlier messages that could not be stored.

        Args:
            messages: The messages.
            draft: The position of a draft of the first message, which the message replaces.

        Returns:
            The position of the last message; None if it was not stored.

        Raises:
            StoreError: A continued conversation does not accept its first new message.
        """
        await self.open()
        return await self._append(messages, draft)

    async def _append(self, messages: Sequence[Message], draft: int | None) -> int | None:
        if self._store is None:
            return None
        if self._unsaved:
            draft = self._draft
        unsaved = [*self._unsaved, *messages]
        last = unsaved[-1] if unsaved else None
        is_draft = isinstance(last, AssistantMessage) and last.is_draft
        if self.conversation is None:
            if not is_draft:
                self._unsaved, self._draft = unsaved, draft
            return None
        try:
            position = await self._store.append(self.conversation.id, *unsaved, draft=draft)
        except StoreError as error:
            if self._must_succeed:
                raise
            self._warn_once(error)
            if is_draft:
                return draft
            self._unsaved, self._draft = unsaved, draft
            return None
        self._unsaved = []
        self._must_succeed = False
        return position

    async def note_setting(self, name: str, value: JsonObject) -> None:
        await self.open()
        if self._store is None or self.conversation is None:
            return
        settings = {**self.conversation.settings, name: value}
        try:
            await self._store.update(self.conversation.id, settings=settings)
        except StoreError as error:
            self._warn_once(error)
        else:
            self.conversation = replace(self.conversation, settings=settings)

    async def note_model(self, model: str) -> None:
        if self._store is None or self.conversation is None or self.conversation.model == model:
            return
        try:
            await self._store.update(self.conversation.id, model=model)
        except StoreError as error:
            self._warn_once(error)

    async def copied(self, messages: Sequence[Message], count: int) -> ConversationLog:
        """Return a log for a copy of the conversation; the original is not changed.

        Args:
            messages: All messages of the conversation.
            count: Number of messages to copy.
        """
        if self._store is not None and self.conversation is not None and count:
            try:
                known = await self._store.resolve(self.conversation.id)
                if known.message_count == len(messages):
                    copy = await self._store.fork(known.id, count)
                    return ConversationLog(self._store, copy, warn=self._warn)
            except StoreError as error:
                self._warn_once(error)
        log = self.successor()
        log._unsaved = list(messages[:count])  # stored with the next message
        return log

    def successor(self) -> ConversationLog:
        """Return a log for a new conversation in the same store."""
        return ConversationLog(self._store, warn=self._warn, opens=self._opens)

    def _warn_once(self, error: StoreError) -> None:
        if str(error) != self._last_warning:
            self._last_warning = str(error)
            self._warn(f"conversation not stored: {error}")


class OtherAgent(Protocol):
    """An external agent, such as Claude Code, that answers in a chat instead of `Agent`."""

    def stream(self, messages: list[Message], record: Record) -> AsyncGenerator[AgentEvent, None]:
        """Answer the last message; extend `messages` and record the additions, as `Agent` does."""
        ...

    async def change_model(self, name: str) -> None:
        """Use another model from now on; raise an error if that is not possible."""
        ...

    async def begin(self, log: ConversationLog) -> None:
        """Leave the conversation; the next message begins a new conversation in `log`."""
        ...


# Opens an agent. Arguments: model name, tools, the conversation's log, its messages, instructions.
OpenAgent = Callable[
    [str, "Toolbox | None", ConversationLog, Sequence[Message], str],
    AbstractAsyncContextManager[OtherAgent],
]


class Chat:
    """An open chat. `messages` is valid for every provider unless an answer is in progress."""

    def __init__(
        self,
        model: Model,
        toolbox: Toolbox | None,
        log: ConversationLog,
        messages: list[Message],
        *,
        system: str = "",
        caller: Caller = CHAT,
        wishes: ModelWishes | None = None,
        agent: OtherAgent | None = None,
    ) -> None:
        self.model = model
        self._agent = agent
        self._wishes = wishes or ModelWishes()
        self._system = system
        self.toolbox = toolbox
        self.log = log
        self.messages = messages
        self.caller = caller

    async def ask(
        self, text: str, files: Sequence[Attachment] = ()
    ) -> AsyncGenerator[AgentEvent, None]:
        """Send the user's message to the model; yield events until the answer is complete.

        Args:
            text: The message.
            files: The message's files. A text file becomes part of the message's text.

        Raises:
            StoreError: A continued conversation does not accept the message.
            ModelError: The model failed.
            StepLimit: The model was still calling tools after the last round.
        """
        new: list[Message] = [await self._message(text, files)]
        if self._system and not self.messages:
            new.insert(0, SystemMessage(self._system))
        await self.log.begin(_title(text), self.model.name, new)
        self.messages += new
        answer, opening, is_done = StreamedAnswer(self.log.append), None, False
        why = Unfinished("stopped")
        try:
            async with aclosing(self._answer(answer)) as events:
                async for event in events:
                    if isinstance(event, TextDelta) and not event.agent:
                        answer.add(event.text)
                    is_done = isinstance(event, Done)
                    opening = opening or asyncio.create_task(self.log.open())
                    yield event
        except Exception as error:
            why = Unfinished("failed", str(error))
            raise
        finally:
            await self.log.open()
            if not is_done:
                ended(self.messages, await answer.end(why))

    def _answer(self, answer: StreamedAnswer) -> AsyncGenerator[AgentEvent, None]:
        if self._agent is not None:
            return self._agent.stream(self.messages, answer.record)
        agent = Agent(
            self.model,
            self.toolbox,
            record=answer.record,
            caller=self.caller,
            progress=True,
            conversation=lambda: stored.id if (stored := self.log.conversation) else "",
            tool_search=self._wishes.settings.tool_search,
        )
        return agent.stream(self.messages)

    async def _message(self, text: str, files: Sequence[Attachment]) -> UserMessage:
        parts = [text]
        for file in files:
            if file.media_type == TEXT:
                id = await self.log.keep_file(file)
                body = file.data.decode()
                parts.append(block(id, TEXT, len(file.data), file.name, body))
        media = tuple(each for each in files if each.media_type != TEXT)
        return UserMessage("\n\n".join(each for each in parts if each), media)

    def cost(self, usage: Usage) -> float | None:
        """Return the cost of the tokens; None if the user has not set the model's price."""
        price = self._wishes.settings.price_of(self.model.name)
        return None if price is None else price.cost(usage)

    async def change_model(self, name: str) -> None:
        """Continue with another model.

        Raises:
            ModelUnavailable: The model does not exist, or its key is not set; the old model stays.
            MissingExtra: The model needs a package that is not installed; the old model stays.
        """
        name = self._wishes.settings.name_of(name)
        if self._agent is not None:
            await self._agent.change_model(name)
        new = await self._wishes.open(name)
        if self._agent is None and new.name.partition(":")[0] == claude_code.PROVIDER:
            raise ModelUnavailable(
                "Claude Code cannot continue a conversation of another model; leave the chat and "
                f"start another one with --model {name}"
            )
        if isinstance(new, OpenAIModel | AnthropicModel):
            await new.prepare()
        old, self.model = self.model, new
        await old.close()
        await self.log.note_model(new.name)

    @property
    def last_question(self) -> UserMessage | None:
        """The user's last message; None if there is none."""
        found = (each for each in reversed(self.messages) if isinstance(each, UserMessage))
        return next(found, None)

    async def undo(self) -> None:
        """Remove the user's last message and everything after it, in a copy of the conversation.

        Raises:
            CapabilityError: The chat is answered by an agent that keeps its own conversation.
        """
        if self._agent is not None:
            raise CapabilityError(
                f"{self.model.name} cannot take back a message; /new starts again"
            )
        last = self.last_question
        if last is not None:
            place = next(
                place for place, each in reversed(list(enumerate(self.messages))) if each is last
            )
            self.log = await self.log.copied(self.messages, place)
            self.messages = self.messages[:place]

    async def start_conversation(self) -> None:
        self.log = self.log.successor()
        self.messages = []
        if self._agent is not None:
            await self._agent.begin(self.log)


class ModelWishes(Struct, frozen=True):
    """The user's choices about models: the settings file, and options that override it.

    Attributes:
        settings: The user's settings file.
        options: Members to add to each request to a model.
    """

    settings: Settings = Settings()
    options: Mapping[str, Any] = {}

    async def open(self, name: str | None, *, remembered: bool = False) -> Model:
        """Return a model with its options. The arguments are the same as for `choose`."""
        trusted = self.settings.models_named
        model = await choosing.choose(
            name, remembered=remembered, trusted=trusted, options=self.options
        )
        options = {**self.settings.options_of(model.name), **self.options}
        if options == self.options:
            return model
        await model.close()  # only its name was needed, to find its options
        by_chance = name is None
        return await choosing.choose(
            name or model.name,
            remembered=remembered or by_chance,
            trusted=trusted,
            options=options,
        )

    async def preferred(self) -> Model:
        """Return the model from INTERLOCK_MODEL or the settings, else the first available model."""
        name = os.environ.get("INTERLOCK_MODEL") or self.settings.model
        return await self.open(self.settings.name_of(name) or None)


@asynccontextmanager
async def open_chat(
    servers: Mapping[str, ServerConfig | InProcessServer] | None,
    *,
    model: str | None,
    conversation: str | None = None,
    latest: bool = False,
    system: str = "",
    warn: Callable[[str], None],
    around: AroundCalls = (),
    handlers: Callable[[str], ClientOptions] | None = None,
    results: ResultBudget | None = None,
    pins: PinKeeper | None = None,
    caller: Caller = CHAT,
    wishes: ModelWishes | None = None,
    agents: Mapping[str, OpenAgent] | None = None,
) -> AsyncIterator[Chat]:
    """Open a chat; close the servers, the model and the store at the end.

    Args:
        servers: Configured servers by name; None for a chat without tools.
        model: A name for `choose`, or an alias; None uses the conversation's model if there is one.
        conversation: Id, or the beginning of an id, of a conversation to continue.
        latest: Continue the conversation that changed last.
        system: Instructions to the model, at the start of each new conversation.
        warn: Called with a line for the user when the conversation cannot be stored.
        around: The layers of every tool call; see `Toolbox`.
        handlers: Returns the handlers for requests of a server; see `Toolbox`.
        results: The budget of results; see `Toolbox`.
        pins: The accepted definitions of tools; see `Toolbox`.
        caller: The caller on whose behalf the model calls tools.
        wishes: The user's choices for models.
        agents: Agents that answer instead of a model, by the prefix of the model name.

    Raises:
        InterlockError: No model is available, or the conversation cannot be continued.
    """
    wishes = wishes or ModelWishes()
    toolbox = None
    if servers is not None:
        toolbox = Toolbox(servers, around=around, handlers=handlers, results=results, pins=pins)
    async with AsyncExitStack() as stack:
        opening = _open_log(stack, conversation, latest, warn)
        parts = await _open_together(stack, toolbox, opening, model, wishes)
        agent = await _open_agent(stack, agents or {}, *parts, system)
        chat = Chat(*parts, system=system, caller=caller, wishes=wishes, agent=agent)
        stack.push_async_callback(lambda: chat.model.close())
        await chat.log.note_model(chat.model.name)
        yield chat


async def _open_together(
    stack: AsyncExitStack,
    toolbox: Toolbox | None,
    log: Coroutine[Any, Any, _Opened],
    model: str | None,
    wishes: ModelWishes,
) -> tuple[Model, Toolbox | None, ConversationLog, list[Message]]:
    """Start the servers while the model and the conversation are opened."""
    try:
        async with asyncio.TaskGroup() as group:
            opening = group.create_task(log)
            choosing = group.create_task(_choose(model, opening, wishes))
            if toolbox is not None:
                stack.push_async_callback(toolbox.close)
                await toolbox.open()
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return choosing.result(), toolbox, *opening.result()


async def _open_agent(
    stack: AsyncExitStack,
    agents: Mapping[str, OpenAgent],
    model: Model,
    toolbox: Toolbox | None,
    log: ConversationLog,
    messages: list[Message],
    system: str,
) -> OtherAgent | None:
    opens = agents.get(model.name.partition(":")[0])
    if opens is None:
        return None
    return await stack.enter_async_context(opens(model.name, toolbox, log, messages, system))


async def _open_log(
    stack: AsyncExitStack, id: str | None, latest: bool, warn: Callable[[str], None]
) -> _Opened:
    async def opens() -> ConversationStore | None:
        try:
            return await _open_store(stack)
        except (MissingExtra, StoreError) as error:
            warn(f"conversation not stored: {error}")
            return None

    if id is None and not latest:
        return ConversationLog(None, warn=warn, opens=opens), []
    opened = await _open_store(stack)
    if latest:
        found = await opened.list(1)
        if not found:
            raise UnknownConversation("no conversation found to continue")
        id = found[0].id
    conversation = await opened.resolve(id or "")
    return ConversationLog(opened, conversation, warn=warn), await opened.resume(conversation.id)


async def _open_store(stack: AsyncExitStack) -> ConversationStore:
    # The import takes half a second, during which the servers can start.
    kind = await asyncio.to_thread(lambda: store.ConversationStore)
    return await stack.enter_async_context(kind.open())


async def _choose(name: str | None, opening: asyncio.Task[_Opened], wishes: ModelWishes) -> Model:
    log = None
    if name is None:
        log, _ = await asyncio.shield(opening)
    if name:
        model = await wishes.open(wishes.settings.name_of(name))
    elif log is not None and log.conversation is not None and log.conversation.model:
        model = await wishes.open(log.conversation.model, remembered=True)
    else:
        model = await wishes.preferred()
    if isinstance(model, OpenAIModel | AnthropicModel):
        # Importing the HTTP client takes time, so do it before the first answer needs it.
        await model.prepare()
    return model


def _title(text: str) -> str:
    return " ".join(text.split())[:LONGEST_TITLE]
