"""Claude Code as the agent of a chat: `interlock chat --model claude-code`.

Rules:

1. Claude Code keeps the conversation in its own session. The chat also stores the messages, as it
   does for every model, together with the session's id.
2. No other model can answer in the conversation, because the session would lack its messages. So
   a conversation continues only if the session has seen all stored messages.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from msgspec import Struct, ValidationError, convert, to_builtins

from interlock import agent
from interlock.agent import AgentEvent, ToolFinished, ToolStarted
from interlock.agent.agent import Record
from interlock.chat import ConversationLog
from interlock.claude.claude_code import ClaudeCode, Prompt
from interlock.claude.decisions import allow_all
from interlock.claude.events import (
    ClaudeDone,
    ClaudeEvent,
    ClaudeNotice,
    ClaudeToolProgress,
    Retrying,
)
from interlock.errors import InterlockError, ModelError, ModelUnavailable, UnknownSession
from interlock.layers.stack import AroundCalls
from interlock.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    Unfinished,
    UserMessage,
    interrupted,
)
from interlock.models import TextDelta
from interlock.models.claude_code import PROVIDER
from interlock.toolbox import Toolbox
from interlock.toolbox.names import wire_name
from interlock.types import JsonObject

SETTING = "claudeCode"  # the member of the conversation's settings that stores the session


class _Session(Struct):
    """The stored data about a session of Claude Code.

    Attributes:
        id: The session's id.
        messages: Number of the conversation's complete messages that the session has seen.
        folder: The folder in which the session began; old versions find it only from there.
    """

    id: str
    messages: int
    folder: str


class ChatAgent:
    """Answers in a chat by running Claude Code. Open it with `chat_agent`.

    Args:
        make: Creates a `ClaudeCode` that continues the session with this id; None for a new one.
        log: Stores the conversation's messages.
        warn: Called with each warning, one line for the user.
    """

    def __init__(
        self,
        make: Callable[[str | None], ClaudeCode],
        log: ConversationLog,
        warn: Callable[[str], None],
    ) -> None:
        self._make = make
        self._log = log
        self._warn = warn
        self._claude: ClaudeCode | None = None
        self._session: _Session | None = None
        self._model = ""  # the last model that the user has chosen

    async def open(self, session: _Session | None) -> ClaudeCode:
        """Start Claude Code.

        Raises:
            UnknownSession: Claude Code has no such session.
            InterlockError: Claude Code cannot be started.
        """
        claude = self._make(None if session is None else session.id)
        try:
            await claude.open()
            if self._model:
                await claude.set_model(self._model)
        except UnknownSession as error:
            folder = session.folder if session is not None else ""
            raise UnknownSession(
                f"{error}; it began in {folder}: go there, or start another conversation"
            ) from None
        self._claude, self._session = claude, session
        return claude

    async def close(self) -> None:
        claude, self._claude = self._claude, None
        if claude is not None:
            await claude.close()

    async def begin(self, log: ConversationLog) -> None:
        self._log, self._session = log, None
        await self.close()

    async def change_model(self, name: str) -> None:
        """Use another of Claude Code's models from the next message on.

        Raises:
            ModelUnavailable: The name is a model from another provider.
        """
        provider, _, model = name.partition(":")
        if provider != PROVIDER:
            raise ModelUnavailable(
                f"Claude Code has this conversation, and cannot pass it on to {name}; leave the "
                f"chat and start another one with --model {name}"
            )
        if self._claude is not None:
            await self._claude.set_model(model or None)
        self._model = model

    async def stream(
        self, messages: list[Message], record: Record
    ) -> AsyncGenerator[AgentEvent, None]:
        """Answer the last message; see `Agent.stream`.

        Raises:
            ModelError: Claude Code could not answer.
            InterlockError: Claude Code has ended.
        """
        prompt = _prompt(messages[-1])
        claude = self._claude or await self.open(self._session)
        transcript = _Transcript()
        try:
            async with aclosing(claude.stream(prompt)) as events:
                async for event in events:
                    if isinstance(event, ClaudeDone):
                        if event.answer.is_error:
                            raise ModelError(event.answer.reason)
                        last = transcript.end(event.answer.text)
                        yield agent.Done(last, event.usage, event.stop_reason)
                    elif (shown := self._shown(event)) is not None:
                        transcript.add(shown)
                        yield shown
        except ModelError:
            raise
        except InterlockError:
            await self.close()  # Claude Code has ended; the next message continues the session
            raise
        finally:
            new = transcript.messages()
            messages += new
            await record(new)
            if claude.session:
                self._session = _Session(claude.session, _count(messages), str(Path.cwd()))
                await self._log.note_setting(SETTING, to_builtins(self._session))

    def _shown(self, event: ClaudeEvent) -> AgentEvent | None:
        """Return the event as an agent's event; None if it was shown as a warning or is dropped."""
        if isinstance(event, Retrying):
            self._warn(f"the model is busy; retry {event.attempt} in {event.seconds:.0f} s")
            return None
        if isinstance(event, ClaudeToolProgress):
            text = event.message or ""
            return agent.ToolProgress(event.id, event.progress, event.total, text)
        return None if isinstance(event, ClaudeNotice) else event


class _Transcript:
    """Collects a turn's messages from its events; events from subagents are left out."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._text = ""
        self._calls: list[ToolCall] = []
        self._results: dict[str, ToolMessage] = {}

    def add(self, event: AgentEvent) -> None:
        if getattr(event, "agent", ""):
            return
        if isinstance(event, TextDelta):
            if self._calls:
                self._end_round()
            self._text += event.text
        elif isinstance(event, ToolStarted):
            if self._results and len(self._results) == len(self._calls):
                self._end_round()
            server, _, tool = event.address.partition(":")
            name = wire_name(server, tool) if tool else event.address
            self._calls.append(ToolCall(event.id, name, event.arguments))
        elif isinstance(event, ToolFinished):
            name = next((each.name for each in self._calls if each.id == event.id), "")
            if name:
                result = ToolMessage(event.id, event.result, name, event.is_error)
                self._results[event.id] = result

    def _end_round(self) -> None:
        self._messages.append(AssistantMessage(self._text, tuple(self._calls)))
        self._messages += [self._results.get(each.id, interrupted(each)) for each in self._calls]
        self._text, self._calls, self._results = "", [], {}

    def end(self, text: str) -> AssistantMessage:
        if self._calls:
            self._end_round()
        last = AssistantMessage(self._text or text)
        self._text = ""
        self._messages.append(last)
        return last

    def messages(self) -> list[Message]:
        """Return the messages; every call has a result, even if the turn was stopped.

        A text whose end did not arrive is a draft.
        """
        if self._calls:
            self._end_round()
        if self._text:
            self._messages.append(AssistantMessage(self._text, unfinished=Unfinished()))
        return self._messages


def _prompt(message: Message) -> Prompt:
    if not isinstance(message, UserMessage) or not message.attachments:
        return message.content
    blocks: list[JsonObject] = [
        {
            "type": "document" if each.media_type == "application/pdf" else "image",
            "source": {
                "type": "base64",
                "media_type": each.media_type,
                "data": b64encode(each.data).decode(),
            },
        }
        for each in message.attachments
    ]
    return [*blocks, {"type": "text", "text": message.content}]


def _count(messages: Sequence[Message]) -> int:
    return sum(getattr(each, "unfinished", None) is None for each in messages)


def _session_of(log: ConversationLog, messages: Sequence[Message]) -> _Session | None:
    """Return the session in which the conversation continues; None if it needs a new session."""
    stored = log.conversation
    if stored is None or not messages:
        return None
    try:
        session = convert(stored.settings.get(SETTING), _Session)
    except ValidationError:
        session = None
    if session is None or session.messages != _count(messages):
        raise ModelUnavailable(
            f"another model has taken part in conversation {stored.id}, and Claude Code has "
            "not seen its answers; continue it with --model NAME, or start another one"
        )
    return session


@asynccontextmanager
async def chat_agent(
    name: str,
    toolbox: Toolbox | None,
    log: ConversationLog,
    messages: Sequence[Message],
    system: str,
    *,
    around: AroundCalls,
    warn: Callable[[str], None],
) -> AsyncIterator[ChatAgent]:
    """Start Claude Code for a chat; end Claude Code when the context exits.

    Args:
        name: The model's name in the form of `--model`.
        toolbox: The tools, in addition to Claude Code's own; with None there are no tools at all.
        log: Stores the conversation's messages.
        messages: The conversation's messages so far.
        system: Instructions to the model; used only in a new conversation.
        around: The layers that decide about calls of Claude Code's own tools.
        warn: Called with each warning, one line for the user.

    Raises:
        InterlockError: Claude Code cannot be started, or cannot continue the conversation.
    """
    session = _session_of(log, messages)

    def make(resumed: str | None) -> ClaudeCode:
        return ClaudeCode(
            toolbox,
            permissions=allow_all,
            around=around,
            model=name.partition(":")[2] or None,
            instructions=system or None,
            built_in=None if toolbox is not None else (),
            resume=resumed,
        )

    opened = ChatAgent(make, log, warn)
    try:
        await opened.open(session)
        yield opened
    finally:
        await opened.close()
