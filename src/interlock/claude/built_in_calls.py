"""Calls of Claude Code's own tools, which pass the same layers as calls of servers' tools.

Claude Code runs these tools itself. A call enters the layers when Claude Code asks for a decision,
stays in them while the tool runs, and leaves with the result that Claude Code reports. So policy,
limits, approvals and the audit trail apply to the call as to any other call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Raw, Struct

from interlock.calls import Call, Caller, Item, Outcome
from interlock.claude.decisions import Allow, Deny, PermissionRequest
from interlock.config.gateway import BUILT_IN
from interlock.errors import InterlockError
from interlock.layers import Layers
from interlock.layers.stack import AroundCalls
from interlock.protocol.envelope import encode_lossy
from interlock.types import JsonObject

MAX_RUNNING = 4_096


class _Gate:
    """Two futures of a call: `reached` is set once the call has passed all layers."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.reached: asyncio.Future[JsonObject] = loop.create_future()  # the call's arguments
        self.result: asyncio.Future[Outcome] = loop.create_future()


class _Running(Struct, frozen=True, eq=False):
    """An allowed call whose tool Claude Code is running."""

    agent: str
    task: asyncio.Task[Outcome]
    result: asyncio.Future[Outcome]


class BuiltInCalls:
    """Takes calls of Claude Code's own tools through the layers.

    Args:
        around: The layers around each call, the outermost layer first.
        caller: The caller on whose behalf the tools run.
        origin: Returns where a call came from, for the audit trail.
    """

    def __init__(
        self,
        around: AroundCalls,
        caller: Caller,
        origin: Callable[[str, str], JsonObject],
    ) -> None:
        self._handle = Layers.of(around).build(self._wait)
        self._caller = caller
        self._origin = origin
        self._running: dict[str, _Running] = {}  # keyed by Claude Code's id of the call
        self._gates: dict[str, _Gate] = {}  # by our id, until a decision is made

    async def enter(self, request: PermissionRequest) -> Allow | Deny:
        """Pass a call through the layers; return whether Claude Code may run it."""
        tool = request.address.partition(":")[2]
        call = Call(
            Item("tools", BUILT_IN, tool),
            request.arguments,
            self._caller,
            origin=self._origin(request.id, request.agent),
            tool_call_id=request.id,
        )
        gate = self._gates[call.id] = _Gate()
        task = asyncio.create_task(self._pass(call))
        try:
            await asyncio.wait((task, gate.reached), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            del self._gates[call.id]
        if gate.reached.done():
            self._keep(request.id or call.id, _Running(request.agent, task, gate.result))
            return Allow(gate.reached.result())
        try:
            task.result()
        except InterlockError as error:
            return Deny(str(error))
        return Deny(f"{request.address} was not run: a layer answered instead")

    def finish(self, id: str, text: str, is_error: bool) -> None:
        """End a call with the tool's result; ignore a call that is not in the layers."""
        running = self._running.get(id)
        if running is not None and not running.result.done():
            content = [{"type": "text", "text": text}]
            result = encode_lossy({"content": content, "isError": is_error})
            running.result.set_result(Outcome(Raw(result)))

    def cancel(self, *, with_agents: bool = True) -> None:
        """Cancel the calls that have no result yet; subagents' calls only if `with_agents`."""
        for running in [*self._running.values()]:
            if not running.result.done() and (with_agents or not running.agent):
                running.task.cancel()

    async def close(self) -> None:
        """Cancel the calls in the layers, and wait until their tasks have ended."""
        tasks = [each.task for each in self._running.values()]
        self.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass(self, call: Call) -> Outcome:
        return await self._handle(call)

    async def _wait(self, call: Call) -> Outcome:
        gate = self._gates[call.id]
        gate.reached.set_result(call.arguments)
        return await gate.result

    def _keep(self, id: str, running: _Running) -> None:
        while len(self._running) >= MAX_RUNNING:
            self._running.pop(next(iter(self._running))).task.cancel()
        self._running[id] = running
        running.task.add_done_callback(lambda task: self._left(id, task))

    def _left(self, id: str, task: asyncio.Task[Outcome]) -> None:
        self._running.pop(id, None)
        if not task.cancelled():
            task.exception()  # so that asyncio does not log it; the layers recorded it
