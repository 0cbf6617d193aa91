"""Asks the person at the terminal before a call that may change something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.calls import Call
from interlock.cli.terminal import safe_line, say
from interlock.cli.terminal_prompt import NoAnswer, TerminalPrompt
from interlock.errors import ApprovalMissing
from interlock.text.quoting import visible_json

if TYPE_CHECKING:
    from interlock.store.approvals import Approval

QUESTION = "Run it? [y]es, [n]o, [a]lways this tool in this conversation: "


class TerminalApproval:
    """Asks whether a call may run. An object is awaited as `AskCaller`.

    Args:
        prompt: Where to ask.
        yes: Approve every call without a question, as `--yes` does.
    """

    def __init__(self, prompt: TerminalPrompt, *, yes: bool = False) -> None:
        self._prompt = prompt
        self._yes = yes
        self._always: set[str] = set()  # addresses

    async def __call__(self, call: Call, approval: Approval | None) -> bool | None:
        """Return the answer; None if the person cannot be asked, but the approval is kept.

        Raises:
            ApprovalMissing: The person cannot be asked, and no approval is kept.
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
            if address in self._always:  # since the answer to another call of this tool
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
        """Ask again about every tool, as in another conversation."""
        self._always.clear()


def _rule(call: Call) -> str:
    return call.decision.rule if call.decision is not None else ""
