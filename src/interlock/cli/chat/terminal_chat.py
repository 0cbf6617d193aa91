"""A chat on the terminal: shows what the model does, and asks the user to approve calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypedDict, Unpack

from interlock.calls import Caller
from interlock.chat import Chat, ModelWishes, OtherAgent, open_chat
from interlock.cli.chat.output import Screen, introduce
from interlock.cli.questions import TerminalQuestions
from interlock.cli.server_status import warn_of_broken
from interlock.cli.terminal import warn
from interlock.cli.terminal_prompt import TerminalApproval, TerminalPrompt
from interlock.config import Config
from interlock.errors import CapabilityError
from interlock.gateway.local_calls import local_calls
from interlock.layers.stack import AroundCalls
from interlock.models import Model, claude_code
from interlock.observing import environment_context
from interlock.policy import find_unasked


class ChatOptions(TypedDict):
    """Options that are passed on to `open_chat` unchanged."""

    model: str | None
    conversation: str | None
    latest: bool
    system: str
    wishes: ModelWishes


class TerminalChat:
    """An open chat with the screen that shows it and the approvals that it asks for."""

    def __init__(self, chat: Chat, screen: Screen, approval: TerminalApproval) -> None:
        self.chat = chat
        self.screen = screen
        self.approval = approval


@asynccontextmanager
async def open_terminal_chat(
    config: Config | None, *, yes: bool, **options: Unpack[ChatOptions]
) -> AsyncIterator[TerminalChat]:
    """Open a chat; show a spinner until its first turn begins.

    Args:
        config: The servers and their policy; None for a chat without tools.
        yes: Whether to run every call without asking.
        options: Options of `open_chat`.

    Raises:
        InterlockError: The same errors as `open_chat`.
    """
    screen = Screen()
    prompt = TerminalPrompt(screen.held)
    approval = TerminalApproval(prompt, yes=yes)
    opened: list[Chat] = []

    def model() -> Model:
        if not opened:
            raise CapabilityError("the chat has no model yet")
        return opened[0].model

    questions = TerminalQuestions(prompt, config or Config(), model)
    with screen.turn():
        async with AsyncExitStack() as stack:
            calls = await stack.enter_async_context(local_calls(config or Config(), approval))
            chat = await stack.enter_async_context(
                open_chat(
                    None if config is None else calls.servers,
                    warn=warn,
                    around=calls.layers,
                    pins=calls.pins,
                    handlers=questions.handlers,
                    results=calls.results,
                    caller=Caller(surface="chat", trace_context=environment_context()),
                    agents={claude_code.PROVIDER: partial(_claude_code, calls.layers)},
                    **options,
                )
            )
            opened.append(chat)
            introduce(chat.model.name)
            screen.cost = chat.cost
            if chat.toolbox is not None:
                warn_of_broken(chat.toolbox.status.values())
                for line in find_unasked(config or Config(), chat.toolbox.tools):
                    warn(line)
            yield TerminalChat(chat, screen, approval)


def _claude_code(around: AroundCalls, *arguments: Any) -> AbstractAsyncContextManager[OtherAgent]:
    from interlock.claude.chat import chat_agent

    return chat_agent(*arguments, around=around, warn=warn)
