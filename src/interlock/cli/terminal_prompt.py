"""Questions to the person at the terminal, one at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

from interlock.cli import signals
from interlock.cli.terminal import is_terminal

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


class NoAnswer(Exception):
    """The person left the question with Ctrl-C or Ctrl-D."""


class TerminalPrompt:
    """Asks on the terminal, also while stdin and stdout are files.

    Args:
        held: Returns a context in which nothing else is shown.
    """

    def __init__(self, held: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._held = held
        self._asking = asyncio.Lock()
        self._editor: PromptSession[str] | None = None

    @property
    def is_available(self) -> bool:
        """Whether there is a person to ask: a terminal, and a line editor for it."""
        return is_terminal(sys.stderr) and find_spec("prompt_toolkit") is not None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until no other question is open, and hold the screen for this one."""
        async with self._asking:
            with self._held():
                yield

    async def line(self, question: str) -> str:
        """Return the line that the user types, without surrounding blanks.

        Raises:
            NoAnswer: They left the question.
        """
        if self._editor is None:
            self._editor = _line_editor()
        try:
            return (await self._editor.prompt_async(question, handle_sigint=False)).strip()
        except EOFError:
            raise NoAnswer from None
        except KeyboardInterrupt:  # the editor received it as a key
            signals.interrupt()
            raise NoAnswer from None

    async def choice(self, question: str, *choices: str) -> str:
        """Ask until the answer is one of the choices, or its first letter.

        Raises:
            NoAnswer: They left the question.
        """
        while True:
            answer = (await self.line(question)).lower()
            for choice in choices:
                if answer and answer in (choice, choice[0]):
                    return choice


def _line_editor() -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.input import create_input
    from prompt_toolkit.output import create_output

    source = create_input(always_prefer_tty=True)
    return PromptSession(input=source, output=create_output(always_prefer_tty=True))
