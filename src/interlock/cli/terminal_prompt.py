"""Asks the person at the terminal, one question at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

from interlock.calls import Call
from interlock.cli import signals
from interlock.cli.terminal import is_terminal, safe_line, say
from interlock.errors import ApprovalMissing
from interlock.text.quoting import visible_json
from interlock.text.surrogates import repair_text

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

    from interlock.store.approvals import Approval


class NoAnswer(Exception):
    """The person pressed Ctrl-C or Ctrl-D instead of answering."""


class TerminalPrompt:
    """Asks questions on the terminal, even if stdin and stdout are files.

    Args:
        held: Returns a context manager that pauses all other output.
    """

    def __init__(self, held: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._held = held
        self._asking = asyncio.Lock()
        self._editor: PromptSession[str] | None = None

    @property
    def is_available(self) -> bool:
        """Whether a person can be asked, because there is a terminal and a line editor."""
        return is_terminal(sys.stderr) and find_spec("prompt_toolkit") is not None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until no other question is open, and pause other output during this question."""
        async with self._asking:
            with self._held():
                yield

    async def line(self, question: str) -> str:
        """Ask a question; return the typed line without surrounding whitespace.

        Raises:
            NoAnswer: The user did not answer.
        """
        if self._editor is None:
            self._editor = _line_editor()
        try:
            return repair_text(
                await self._editor.prompt_async(question, handle_sigint=False)
            ).strip()
        except EOFError:
            raise NoAnswer from None
        except KeyboardInterrupt:  # the editor read Ctrl-C as a key
            signals.interrupt()
            raise NoAnswer from None

    async def choice(self, question: str, *choices: str) -> str:
        """Ask until the answer is one of the choices or a choice's first letter; return the choice.

        Raises:
            NoAnswer: The user did not answer.
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


QUESTION = "Run it? [y]es, [n]o, [a]lways this tool in this conversation: "


class TerminalApproval:
    """Asks the person at the terminal whether a call may run; an instance is an `AskCaller`.

    Args:
        prompt: Asks the person on the terminal.
        yes: Whether to approve every call without asking, for the option `--yes`.
    """

    def __init__(self, prompt: TerminalPrompt, *, yes: bool = False) -> None:
        self._prompt = prompt
        self._yes = yes
        self._always: set[str] = set()  # addresses of tools that always run

    async def __call__(self, call: Call, approval: Approval | None) -> bool | None:
        """Return the person's decision; None if no person can be asked and the approval is stored.

        Raises:
            ApprovalMissing: No person can be asked, and no approval is stored.
        """
        address = call.entry.address
        if self._yes or address in self._always:
            return True
        if not self._prompt.is_available:
            if approval is not None:
                return None
            raise ApprovalMissing(
                f"{address} was not run: it may change something, and no person can be asked "
                'here; run it in a terminal, give --yes, or list it in "tools": {"risk": {"read": '
                "[…]}} if it only reads",
                "approval_required",
                _rule(call),
            )
        async with self._prompt.turn():
            if address in self._always:  # the person said so while this call waited
                return True
            answer = await self._ask(call)
        if answer == "always":
            self._always.add(address)
        return answer != "no"

    async def _ask(self, call: Call) -> str:
        rule = f" (rule {safe_line(_rule(call))})" if _rule(call) else ""
        address = safe_line(call.entry.address)
        say(f"{address} may change something{rule}. Its arguments:")
        say(visible_json(call.arguments))
        try:
            return await self._prompt.choice(QUESTION, "yes", "no", "always")
        except NoAnswer:
            return "no"

    def forget(self) -> None:
        """Forget the tools that always run, for example when another conversation begins."""
        self._always.clear()


def _rule(call: Call) -> str:
    return call.decision.rule if call.decision is not None else ""
