"""The tools of one turn: those its caller may use, as its conversation has set them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from interlock.agent import ApprovalAsked, approval_hash
from interlock.calls import Call, Caller, Entry, Item, Outcome, Slots
from interlock.config.gateway import CALLER, OWN
from interlock.errors import ApprovalMissing, CallRefused, InvalidArguments, UnknownTool
from interlock.store.approvals import Approval
from interlock.toolbox import ServerStatus, Toolbox
from interlock.toolbox.own_tools import OwnServer
from interlock.toolbox.resource_tool import READ_RESOURCE
from interlock.types import JsonObject
from interlock.web.app_documents import app_of
from interlock.web.chat.questions import ASKABLE, TurnQuestions
from interlock.web.chat.turn import Turn

APPROVAL_SECONDS = 86_400

MayUse = Callable[[Caller, Entry], bool]
_current: ContextVar[TurnToolbox | None] = ContextVar("turn_toolbox", default=None)


class TurnToolbox:
    """A toolbox as an `Agent` uses it, for one turn.

    Args:
        toolbox: The toolbox.
        turn: The turn.
        may_use: Whether the caller may use a tool, perhaps with some arguments only; None: all.
        asks_people: Questions of servers go to the people who see the turn.

    Attributes:
        results: What servers returned, by the id of the call.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        turn: Turn,
        *,
        may_use: MayUse | None = None,
        asks_people: bool = False,
    ) -> None:
        self.results: dict[str, bytes] = {}
        self.turn = turn
        self._toolbox = toolbox
        self._may_use = may_use or (lambda _caller, _entry: True)
        self._asks_people = asks_people
        self._changed: dict[str, JsonObject] = {}  # arguments that a person wants, by call

    @property
    def own(self) -> OwnServer:
        """See `Toolbox.own`."""
        return self._toolbox.own

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """See `Toolbox.loop`."""
        return self._toolbox.loop

    @property
    def version(self) -> int:
        """See `Toolbox.version`."""
        return self._toolbox.version

    @property
    def status(self) -> dict[str, ServerStatus]:
        """See `Toolbox.status`."""
        return self._toolbox.status

    def may_repeat(self, entry: Entry) -> bool:
        """See `Toolbox.may_repeat`."""
        return self._toolbox.may_repeat(entry)

    def state_of(self, entry: Entry | Item) -> str:
        """Return "on", "ask", "off", or "" if the conversation says nothing of a tool."""
        states = self.turn.tool_states
        return states.get(entry.address) or states.get(entry.server, "")

    async def refresh(self) -> None:
        """See `Toolbox.refresh`."""
        await self._toolbox.refresh()

    @property
    def tools(self) -> list[Entry]:
        """The tools that the model is offered."""
        return [each for each in self._toolbox.tools if self._is_offered(each)]

    def _is_offered(self, entry: Entry) -> bool:
        if entry in self._toolbox.own.entries:
            return True
        is_for_model = "model" in app_of(entry).visibility
        is_on = is_for_model and self.state_of(entry) != "off"
        return is_on and self._may_use(self.turn.caller, entry)

    def find(self, name: str, caller: Caller | None = None) -> Entry:
        """See `Toolbox.find`. A tool that is not offered does not exist."""
        found = self._toolbox.find(name, caller or self.turn.caller)
        if not self._is_offered(found):
            raise UnknownTool(f"no tool {name!r}")
        return found

    async def handle(self, call: Call) -> Outcome:
        """Make a call, which a person can stop or change."""
        turn = self.turn
        call = replace(call, slots=Slots())
        if self._asks_people:
            call = replace(call, back=TurnQuestions(turn, call), capabilities=ASKABLE)
        _current.set(self)
        task = asyncio.ensure_future(self._made(call))
        with turn.stoppable(call.id, task):
            try:
                outcome = await task
            except asyncio.CancelledError:
                if task.cancelled() and not _is_cancelled():
                    raise CallRefused("the user stopped this call", "cancelled") from None
                raise
        self.results[call.id] = bytes(outcome.raw)
        return outcome

    async def _check_resource(self, call: Call) -> None:
        """Refuse to read a resource of a server that the conversation has switched off."""
        uri = call.arguments.get("uri") or ""
        item = await self._toolbox.find_resource(uri, call.caller) if uri else None
        if item is not None and self.state_of(item) == "off":
            raise InvalidArguments(f"no resource {uri[:200]!r}")

    async def _made(self, call: Call) -> Outcome:
        if call.entry.server == OWN and call.name == READ_RESOURCE.name:
            await self._check_resource(call)
        try:
            if self.state_of(call.entry) == "ask" and not await self.ask(call, None):
                text = f"{call.entry.address} was not run: the user refused this call"
                raise ApprovalMissing(text, "approval_denied", "")
            return await self._toolbox.handle(call)
        except ApprovalMissing:
            arguments = self._changed.pop(call.id, None)
            if arguments is None:
                raise
            outcome = await self._made(replace_arguments(call, arguments))
            return _with_note(outcome, arguments)

    async def ask(self, call: Call, approval: Approval | None, reason: str = "") -> bool:
        """Ask the people who see the turn about a call; return whether they allow it.

        Args:
            call: The call.
            approval: As it is kept; None where none is.
            reason: Why they are asked; "" for the rule's.

        Raises:
            ApprovalMissing: Nobody decided in time.
        """
        if call.slots is not None:
            call.slots.give_back()  # people take their time
        asked = self._asked(call, approval, reason)
        expires = datetime.fromisoformat(asked.expires)
        seconds = (expires - datetime.now(UTC)).total_seconds()
        try:
            decided = await self.turn.ask(asked, max(0.0, seconds))
        except TimeoutError:
            text = f"{asked.address} was not run: it was not approved in time"
            raise ApprovalMissing(text, "approval_expired", asked.rule) from None
        if "arguments" in decided:
            self._changed[call.id] = decided["arguments"]
        return bool(decided["decision"] == "allow")

    def _asked(self, call: Call, approval: Approval | None, reason: str) -> ApprovalAsked:
        address, decision = call.entry.address, call.decision
        expires = datetime.now(UTC) + timedelta(seconds=APPROVAL_SECONDS)
        if approval is not None:
            expires = datetime.fromtimestamp(approval.expires // 1_000_000, UTC)
        risk = decision.risk if decision is not None else "write"
        default = "a rule asks first" if risk == "read" else "this tool may change something"
        return ApprovalAsked(
            id=f"a_{secrets.token_urlsafe(12)}" if approval is None else approval.id,
            tool_call_id=self.turn.tool_call_of(call.id),
            address=address,
            arguments=call.arguments,
            reason=reason or default,
            expires=expires.isoformat(timespec="seconds").replace("+00:00", "Z"),
            hash=approval_hash(address, call.arguments) if approval is None else approval.hash,
            call_id=call.id,
            rule=decision.rule if decision is not None else "",
            risk=risk,
            approvers=tuple(decision.approvers) if decision is not None else (CALLER,),
        )


class TurnApproval:
    """Asks about a call in the turn that makes it. An object is awaited as `AskCaller`.

    Args:
        is_local: The rules are the built-in ones of a person's own machine, which the settings
            of a conversation may replace.
    """

    def __init__(self, *, is_local: bool) -> None:
        self._is_local = is_local

    async def __call__(self, call: Call, approval: Approval | None) -> bool | None:
        """Return whether the call may run; None if it is not one of a turn."""
        toolbox = _current.get()
        if toolbox is None:
            return None
        state = toolbox.state_of(call.entry)
        if state == "ask" or (self._is_local and state == "on"):
            return True  # to "ask", the person was asked about this very call
        return await toolbox.ask(call, approval)


class OwnApproval:
    """The toolbox of a program that decides itself which calls a person must allow."""

    def __init__(
        self,
        toolbox: TurnToolbox,
        approve: Callable[[Caller, Entry, JsonObject], str | None],
    ) -> None:
        self._toolbox = toolbox
        self._approve = approve

    def __getattr__(self, name: str) -> Any:
        return getattr(self._toolbox, name)

    async def handle(self, call: Call) -> Outcome:
        """Call a tool, after a person has allowed it."""
        reason = self._approve(call.caller, cast("Entry", call.entry), call.arguments)
        if reason is not None and not await self._toolbox.ask(call, None, reason):
            raise ApprovalMissing("a person denied this call", "approval_denied", "")
        return await self._toolbox.handle(call)


def replace_arguments(call: Call, arguments: JsonObject) -> Call:
    """Return a call with other arguments, which nothing was decided about yet."""
    return replace(call, arguments=arguments, decision=None)


def _is_cancelled() -> bool:
    """Return whether the task that runs now was itself cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _with_note(outcome: Outcome, arguments: JsonObject) -> Outcome:
    """Tell the model that a person changed the arguments."""
    result: JsonObject = msgspec.json.decode(outcome.raw)
    if result.get("resultType", "complete") != "complete":
        return outcome
    text = f"A person changed the arguments to {msgspec.json.encode(arguments).decode()}."
    content = [{"type": "text", "text": text}, *result.get("content", [])]
    return Outcome(msgspec.Raw(msgspec.json.encode({**result, "content": content})))
