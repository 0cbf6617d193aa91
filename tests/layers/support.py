"""Calls for the tests of layers, and a handler that counts them."""

from __future__ import annotations

import asyncio

from msgspec import Raw

from interlock.auth import Principal
from interlock.calls import Around, Call, Caller, CallHandler, Entry, Outcome
from interlock.calls.decision import Decision
from interlock.config.gateway import Risk
from interlock.types import JsonObject, Tool

OK = b'{"content":[]}'


def call_of(
    user: str | None = "anna",
    tool: str = "refund",
    *,
    key: str = "",
    server: str = "crm",
    arguments: JsonObject | None = None,
) -> Call:
    """Return a call of a user; None for the local one."""
    definition = Tool(name=tool, input_schema={})
    entry = Entry(server, definition, f"{server}:{tool}", f"{server}__{tool}", b"{}")
    principal = None if user is None else Principal(user, key_id=key, tenant="acme")
    return Call(entry, arguments or {}, Caller(principal, surface="mcp"))


def allowed(risk: Risk) -> Around:
    """Return a layer that allows every call of tools of a risk."""

    def wrap(handle: CallHandler) -> CallHandler:
        async def allow(call: Call) -> Outcome:
            call.decision = Decision("allow", "", "", (), None, None, risk, False)
            return await handle(call)

        return allow

    return wrap


class Upstream:
    """The end of a stack: counts calls, and holds them while `gate` is closed.

    Attributes:
        answers: What the next calls raise or answer; the last one stays.
        order: The users of the calls, as they arrived.
    """

    def __init__(self, *answers: bytes | BaseException) -> None:
        self.answers = list(answers) or [OK]
        self.order: list[str] = []
        self.running = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.arrived = asyncio.Event()  # the first call

    @property
    def calls(self) -> int:
        return len(self.order)

    async def handle(self, call: Call) -> Outcome:
        principal = call.caller.principal
        self.order.append(principal.id if principal is not None else "")
        self.running += 1
        self.arrived.set()
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return Outcome(Raw(answer))


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)
