"""Apps' tool calls, and the questions to users before such a call runs.

A call that must be approved waits here. The page shows the whole call, and sends the decision with
the hash of the call that it showed.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from interlock.agent.events import approval_hash
from interlock.calls import Call, Outcome, Slots
from interlock.config.gateway import CALLER
from interlock.errors import ApprovalMissing, AskRefused, InterlockError
from interlock.server.http.json_api import Problem, not_found
from interlock.text.timestamps import rfc3339
from interlock.types import ClientCapabilities, JsonObject
from interlock.web.app_documents import SUPPORT

if TYPE_CHECKING:
    from interlock.store.approvals import Approval

MAX_CALLS = 200  # calls that are kept
MAX_OF_ONE = 16  # calls of one app that run or wait at the same time
ANSWER_WITHIN = 600.0  # seconds for the user to decide, unless the approval states its own time

_CAPABILITIES = ClientCapabilities(extensions=SUPPORT)


class AppCall:
    """One tool call by an app, which runs, waits for its user, or has ended.

    Args:
        app: The id of the app.
        owner: The app's user.
        call: The call to make.
        state: The conversation's setting for the tool: "on", "ask" or "".

    Attributes:
        asked: The question that the user must answer now; None if no question is open.
    """

    def __init__(self, app: str, owner: str, call: Call, state: str = "") -> None:
        self.app = app
        self.owner = owner
        self.asked: JsonObject | None = None
        self.call = replace(call, back=self, capabilities=_CAPABILITIES, slots=Slots())
        self._state = state
        self._task: asyncio.Task[Outcome] | None = None
        self._answer: asyncio.Future[bool] | None = None
        self._changed = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._task is not None and self._task.done()

    def begin(self, handle: Callable[[Call], Awaitable[Outcome]]) -> None:
        async def made() -> Outcome:
            if self._state == "ask" and not await self.approve(self.call, None):
                text = f"{self.call.entry.address} was not run: the user refused this call"
                raise ApprovalMissing(text, "approval_denied", "")
            return await handle(self.call)

        self._task = asyncio.ensure_future(made())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Outcome]) -> None:
        if not task.cancelled():
            task.exception()  # so that asyncio does not log it; `shown` raises it
        self._changed.set()

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def shown(self, seen: str, wait: float) -> JsonObject:
        """Wait for the call's result or a new question to the user, and return it.

        Args:
            seen: The hash of the question that the page already shows; "" if it shows none.
            wait: Seconds to wait; after that, the answer has neither a result nor a question.

        Raises:
            Problem: The call was denied, or failed.
        """
        task = self._task
        if task is None:
            raise RuntimeError("the call was not begun")
        try:
            async with asyncio.timeout(wait):
                while not task.done() and (self.asked or {"hash": ""})["hash"] == seen:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            pass
        shown: JsonObject = {"call": self.call.id}
        if not task.done():
            return shown if self.asked is None else shown | {"asked": self.asked}
        if task.cancelled():
            raise Problem(422, "cancelled", "the call was cancelled")
        try:
            return shown | {"result": task.result().raw}
        except InterlockError as error:
            reason = getattr(error, "reason", "") or "call_failed"
            raise Problem(422, reason, str(error)) from None

    def decide(self, hash: str, is_allowed: bool) -> None:
        """Pass on the user's decision.

        Args:
            hash: The hash of the call that the user was shown.
            is_allowed: Whether the call may run.

        Raises:
            Problem: The call no longer waits for a decision, or the hash is of another call.
        """
        if self.asked is None or self._answer is None or self._answer.done():
            raise Problem(409, "not_pending", "this call waits for no decision any more")
        if hash != self.asked["hash"]:
            raise Problem(409, "approval_changed", "this is not the call that was shown; reload")
        self._answer.set_result(is_allowed)

    # The way back to the page

    @property
    def caller(self) -> Hashable:
        return self.app

    def notify(self, method: str, params: bytes) -> None:
        """Do nothing: the page shows no progress of an app's call."""

    async def ask(self, method: str, params: bytes, *, timeout: float) -> NoReturn:  # noqa: ARG002
        """Refuse a server's question: an app's page has no form for it."""
        raise AskRefused(f"an app's call cannot answer {method}", "cannot_ask")

    def close_stream(self, retry_ms: int) -> None:
        """Do nothing: the page uses no stream for an app's call."""

    async def approve(self, call: Call, approval: Approval | None) -> bool | None:
        if self._state == "on" or (self._state == "ask" and self._answer is not None):
            return True  # the user switched the tool on, or approved this call
        if call.slots is not None:
            call.slots.give_back()  # other calls can use the slots while the user decides
        self.asked = _asked(call, approval)
        self._answer = asyncio.get_running_loop().create_future()
        self._changed.set()
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                return await self._answer
        except TimeoutError:
            if approval is not None:
                return None  # the approval stays pending, and others may decide
            text = f"{call.entry.address} was not run: it was not approved in time"
            raise ApprovalMissing(text, "approval_expired", self.asked["rule"]) from None
        finally:
            self.asked = None
            self._changed.set()


def _asked(call: Call, approval: Approval | None) -> JsonObject:
    address, decision = call.entry.address, call.decision
    expires = datetime.now(UTC) + timedelta(seconds=ANSWER_WITHIN)
    end = expires.isoformat(timespec="seconds") if approval is None else rfc3339(approval.expires)
    return {
        "id": call.id if approval is None else approval.id,
        "call": call.id,
        "tool": address,
        "arguments": call.arguments,
        "hash": approval_hash(address, call.arguments) if approval is None else approval.hash,
        "rule": decision.rule if decision is not None else "",
        "approvers": [CALLER] if decision is None else [*decision.approvers],
        "expires": end,
    }


class AppCalls:
    """Keeps the calls of all apps, including ended calls whose results can still be fetched."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, AppCall] = OrderedDict()
        self._ending: set[asyncio.Task[None]] = set()

    def add(self, made: AppCall) -> None:
        """Store a call. If there are too many, drop one that has ended, else one of the same user.

        Raises:
            Problem: The app has too many calls that have not ended.
        """
        mine = [each for each in self._calls.values() if each.app == made.app and not each.is_over]
        if len(mine) >= MAX_OF_ONE:
            text = f"the app makes too many calls at once (limit {MAX_OF_ONE})"
            raise Problem(429, "overloaded", text, retry_after=1.0)
        while len(self._calls) >= MAX_CALLS:
            every = self._calls.values()  # the oldest one first
            least = min(every, key=lambda each: (not each.is_over, each.owner != made.owner))
            del self._calls[least.call.id]
            self._end(least)
        self._calls[made.call.id] = made

    def find(self, owner: str, app: str, call: str) -> AppCall:
        """Return a call that a user's app has made.

        Raises:
            Problem: The app has made no call with this id.
        """
        found = self._calls.get(call)
        if found is None or (found.app, found.owner) != (app, owner):
            raise not_found("no such call of this app")
        return found

    def _end(self, call: AppCall) -> None:
        task = asyncio.ensure_future(call.end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        ending = [each.end() for each in self._calls.values()]
        self._calls.clear()
        await asyncio.gather(*ending, *self._ending)
