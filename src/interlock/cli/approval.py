"""Asks the person at the terminal before a call that may change something."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from interlock.calls import Call
from interlock.cli import signals
from interlock.cli.output import Screen
from interlock.cli.terminal import is_terminal, pretty, safe_line, say
from interlock.policy import CallDenied, Decision

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

QUESTION = "Run it? [y]es, [n]o, [a]lways this tool in this conversation: "
_YES, _ALWAYS, _NO = ("y", "yes"), ("a", "always"), ("n", "no", "")


class TerminalApproval:
    """Approves calls by asking, one question at a time. An object is awaited as `Approve`.

    Args:
        screen: Shows nothing while a question is open; None if there is nothing to hold.
        yes: Approve every call without a question, as `--yes` does.
    """

    def __init__(self, screen: Screen | None = None, *, yes: bool = False) -> None:
        self._screen = screen
        self._yes = yes
        self._always: set[str] = set()  # addresses
        self._asking = asyncio.Lock()
        self._editor: PromptSession[str] | None = None

    async def __call__(self, call: Call, decision: Decision) -> None:
        """Return if the call may run.

        Raises:
            CallDenied: The person refused, or cannot be asked.
        """
        if self._yes:
            return
        address = call.entry.address
        async with self._asking:
            if address in self._always:
                return
            editor = self._editor = self._editor or _line_editor(address, decision)
            if self._screen is None:
                answer = await _ask(editor, call, decision)
            else:
                with self._screen.held():
                    answer = await _ask(editor, call, decision)
            if answer in _ALWAYS:
                self._always.add(address)
        if answer not in (*_YES, *_ALWAYS):
            text = f"{address} was not run: the user refused this call"
            raise CallDenied(address, "approval_denied", decision.rule, text=text)

    def forget(self) -> None:
        """Ask again about every tool, as in another conversation."""
        self._always.clear()


async def _ask(editor: PromptSession[str], call: Call, decision: Decision) -> str:
    rule = f" (rule {decision.rule})" if decision.rule else ""
    say(f"{safe_line(call.entry.address)} may change something{safe_line(rule)}. Its arguments:")
    say(pretty(call.arguments))
    while True:
        try:
            answer = (await editor.prompt_async(QUESTION, handle_sigint=False)).strip().lower()
        except EOFError:
            return "n"
        except KeyboardInterrupt:
            signals.interrupt()
            return "n"
        if answer in (*_YES, *_ALWAYS, *_NO):
            return answer


def _line_editor(address: str, decision: Decision) -> PromptSession[str]:
    if is_terminal(sys.stderr):
        try:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.input import create_input
            from prompt_toolkit.output import create_output
        except ModuleNotFoundError:
            pass
        else:
            # Prompt and answer use the terminal, even if stdin and stdout are files.
            source = create_input(always_prefer_tty=True)
            return PromptSession(input=source, output=create_output(always_prefer_tty=True))
    raise CallDenied(
        address,
        "approval_required",
        decision.rule,
        text=f"{address} was not run: it may change something, and no person can be asked here; "
        'run it in a terminal, give --yes, or list it in "tools": {"risk": {"read": […]}} '
        "if it only reads",
    )
