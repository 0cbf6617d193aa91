"""The tools of one turn: those its caller may use, under the conversation's settings."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from interlock import aio
from interlock.agent import ApprovalAsked
from interlock.agent.events import approval_hash
from interlock.calls import Call, Caller, Entry, Item, Outcome, Slots
from interlock.config.gateway import CALLER, OWN
from interlock.errors import (
    ApprovalMissing,
    CallRefused,
    InvalidArguments,
    ServerUnavailable,
    UnknownTool,
)
from interlock.store.approvals import Approval
from interlock.toolbox import Toolbox
from interlock.toolbox.resource_tool import READ_RESOURCE
from interlock.toolbox.tool_directory import unknown_to_model
from interlock.types import JsonObject
from interlock.web.app_documents import app_of
from interlock.web.chat.questions import ASKABLE, TurnQuestions
from interlock.web.chat.turn import Turn

APPROVAL_SECONDS = 86_400

MayUse = Callable[[Caller, Entry], bool]
Approve = Callable[[Caller, Entry, JsonObject], str | None]


class TurnToolbox:
    """Offers an agent the tools for one turn; an implementation of `Tools`.

    Args:
        may_use: Returns whether the caller may use a tool, with at least some arguments. None
            allows all tools.
        approve: Returns why a person must also allow a call that the rules allow; None if no
            person must.
        asks_people: Whether the people who see the turn answer the questions of servers and rules.
        built_in: Whether the built-in rules apply, which a conversation's settings can override.

    Attributes:
        results: The servers' results, by call id.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        turn: Turn,
        *,
        may_use: MayUse | None = None,
        approve: Approve | None = None,
        asks_people: bool = False,
        built_in: bool = False,
    ) -> None:
        self.results: dict[str, bytes] = {}
        self.own, self.loop = toolbox.own, toolbox.loop
        self.refresh, self.may_repeat = toolbox.refresh, toolbox.may_repeat
        self.convert_arguments = toolbox.convert_arguments
        self._turn = turn
        self._toolbox = toolbox
        self._may_use = may_use or (lambda _caller, _entry: True)
        self._approve = approve
        self._asks_people = asks_people
        self._built_in = built_in
        self._changed: dict[str, JsonObject] = {}  # a person's changed arguments, by call

    @property
    def version(self) -> int:
        """A number that changes whenever a tool of the toolbox changes."""
        return self._toolbox.version

    def state_of(self, entry: Entry | Item) -> str:
        """Return the conversation's setting for a tool: "on", "ask", "off", or "" if unset."""
        states = self._turn.tool_states
        return states.get(entry.address) or states.get(entry.server, "")

    @property
    def tools(self) -> list[Entry]:
        return [each for each in self._toolbox.tools if self._is_offered(each)]

    def _is_offered(self, entry: Entry) -> bool:
        if entry in self._toolbox.own.entries:
            return True
        is_for_model = "model" in app_of(entry).visibility
        is_on = is_for_model and self.state_of(entry) != "off"
        return is_on and self._may_use(self._turn.caller, entry)

    def find(self, name: str, caller: Caller) -> Entry:
        """Find a tool; raise the error for an unknown tool if it is not offered in this turn.

        The error is the same whether or not the tool exists for other users.
        """
        try:
            found = self._toolbox.find(name, caller)
        except (UnknownTool, ServerUnavailable):
            if caller.principal is None:
                raise
        else:
            if self._is_offered(found):
                return found
        raise unknown_to_model(name, self.tools)

    async def handle(self, call: Call) -> Outcome:
        """Make a call, which a person can stop, or change before it runs."""
        call = replace(call, slots=Slots())
        self.convert_arguments(call)  # a person is shown what is sent
        if self._asks_people:
            back = TurnQuestions(self._turn, call, self._ask_by_rule)
            call = replace(call, back=back, capabilities=ASKABLE)
        task = asyncio.ensure_future(self._made(call))
        with self._turn.stoppable(call.id, task):
            try:
                outcome = await task
            except asyncio.CancelledError:
                if task.cancelled() and not aio.is_cancelled():
                    raise CallRefused("the user stopped this call", "cancelled") from None
                raise
        self.results[call.id] = bytes(outcome.raw)
        return outcome

    async def _check_resource(self, call: Call) -> None:
        """Refuse to read a resource if the conversation has switched its server off."""
        uri = call.arguments.get("uri") or ""
        item = await self._toolbox.find_resource(uri, call.caller) if uri else None
        if item is not None and self.state_of(item) == "off":
            raise InvalidArguments(f"no resource {uri[:200]!r}")

    async def _made(self, call: Call) -> Outcome:
        if call.entry.server == OWN and call.name == READ_RESOURCE.name:
            await self._check_resource(call)
        try:
            reason = self._why_ask(call)
            if reason is not None and not await self._ask(call, None, reason):
                text = f"{call.entry.address} was not run: the user refused this call"
                raise ApprovalMissing(text, "approval_denied", "")
            return await self._toolbox.handle(call)
        except ApprovalMissing:
            arguments = self._changed.pop(call.id, None)
            if arguments is None:
                raise
            outcome = await self._made(replace_arguments(call, arguments))
            return _with_note(outcome, arguments)

    def _why_ask(self, call: Call) -> str | None:
        """Return why a person is asked whatever the rules say; None if that is not needed.

        The reason is "" if only the conversation's setting requires it.
        """
        reason = None
        if self._approve is not None and isinstance(call.entry, Entry):
            reason = self._approve(call.caller, call.entry, call.arguments)
        return "" if reason is None and self.state_of(call.entry) == "ask" else reason

    async def _ask_by_rule(self, call: Call, approval: Approval | None) -> bool:
        """Ask about a call that a rule lets a person decide; return whether it may run."""
        state = self.state_of(call.entry)
        if state == "ask" or (self._built_in and state == "on"):
            return True  # with the setting "ask", a person was already asked
        return await self._ask(call, approval)

    async def _ask(self, call: Call, approval: Approval | None, reason: str = "") -> bool:
        """Ask the people who see the turn about a call; return whether it may run.

        Args:
            approval: The stored approval; None if none is stored.
            reason: Why a person is asked; "" uses the rule's reason.

        Raises:
            ApprovalMissing: No decision came in time.
        """
        if call.slots is not None:
            call.slots.give_back()  # other calls can use the slots meanwhile
        asked = self._asked(call, approval, reason)
        expires = datetime.fromisoformat(asked.expires)
        seconds = (expires - datetime.now(UTC)).total_seconds()
        try:
            decided = await self._turn.ask(asked, max(0.0, seconds))
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
            tool_call_id=self._turn.tool_call_of(call.id),
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


def replace_arguments(call: Call, arguments: JsonObject) -> Call:
    """Return the call with other arguments, without the decisions about the old arguments."""
    return replace(call, arguments=arguments, decision=None)


def _with_note(outcome: Outcome, arguments: JsonObject) -> Outcome:
    """Tell the model in the result that a person changed the arguments."""
    result: JsonObject = msgspec.json.decode(outcome.raw)
    if result.get("resultType", "complete") != "complete":
        return outcome
    text = f"A person changed the arguments to {msgspec.json.encode(arguments).decode()}."
    content = [{"type": "text", "text": text}, *result.get("content", [])]
    return Outcome(msgspec.Raw(msgspec.json.encode({**result, "content": content})))
