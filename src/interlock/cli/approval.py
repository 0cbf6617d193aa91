"""Asks the person at the terminal before a call that may change something."""

from __future__ import annotations

from interlock.calls import Call
from interlock.cli.terminal import pretty, safe_line, say
from interlock.cli.terminal_prompt import NoAnswer, TerminalPrompt
from interlock.policy import CallDenied, Decision

QUESTION = "Run it? [y]es, [n]o, [a]lways this tool in this conversation: "


class TerminalApproval:
    """Approves calls by asking. An object is awaited as `Approve`.

    Args:
        prompt: Where to ask.
        yes: Approve every call without a question, as `--yes` does.
    """

    def __init__(self, prompt: TerminalPrompt, *, yes: bool = False) -> None:
        self._prompt = prompt
        self._yes = yes
        self._always: set[str] = set()  # addresses

    async def __call__(self, call: Call, decision: Decision) -> None:
        """Return if the call may run.

        Raises:
            CallDenied: The person refused, or cannot be asked.
        """
        address = call.entry.address
        if self._yes or address in self._always:
            return
        if not self._prompt.is_available:
            raise CallDenied(
                address,
                "approval_required",
                decision.rule,
                text=f"{address} was not run: it may change something, and no person can be asked "
                'here; run it in a terminal, give --yes, or list it in "tools": {"risk": {"read": '
                "[…]}} if it only reads",
            )
        async with self._prompt.turn():
            if address in self._always:  # since the answer to another call of this tool
                return
            answer = await self._ask(call, decision)
        if answer == "always":
            self._always.add(address)
        if answer == "no":
            text = f"{address} was not run: the user refused this call"
            raise CallDenied(address, "approval_denied", decision.rule, text=text)

    async def _ask(self, call: Call, decision: Decision) -> str:
        rule = f" (rule {decision.rule})" if decision.rule else ""
        address = safe_line(call.entry.address)
        say(f"{address} may change something{safe_line(rule)}. Its arguments:")
        say(pretty(call.arguments))
        try:
            return await self._prompt.choice(QUESTION, "yes", "no", "always")
        except NoAnswer:
            return "no"

    def forget(self) -> None:
        """Ask again about every tool, as in another conversation."""
        self._always.clear()
