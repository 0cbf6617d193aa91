"""Upstream servers' tasks, which the gateway offers to the clients whose calls began them.

A modern server may return a task instead of a result: an id with which the client polls, answers
    questions and cancels. The gateway gives the client its own id, which contains the server's id,
    encrypted::

        tools/call -> the stack -> the server returns a task -> TaskIds.begun -> an encrypted id
        tasks/get, tasks/update, tasks/cancel -> ForwardedTasks.table -> the server, with its own id

Rules:

1. Only the user who made the call can use an id, and only while this user may use the tool.
2. A call is authorized, limited and recorded when it begins. Its task is recorded when the client
   answers or cancels it, and when the client first reads its outcome.
3. Clients must poll, because the gateway sends no notifications about tasks.

SEP-2663, and the extension's specification 2026-07-28: tasks.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Raw

from interlock import observing
from interlock.calls import Call, Entry, Outcome
from interlock.context import Context
from interlock.errors import InterlockError, InvalidArguments, MissingCapability, RemoteError
from interlock.gateway.forwarding.attribution import attributed
from interlock.gateway.forwarding.forwarder import Forwarder, caller_of
from interlock.gateway.forwarding.refusals import refused
from interlock.gateway.forwarding.task_ids import SealedTask
from interlock.protocol import Request
from interlock.protocol.decoding import decode, repaired
from interlock.protocol.envelope import encode, encode_large
from interlock.protocol.questions import lacking
from interlock.revisions import INVALID_PARAMS
from interlock.schema.elicitation import with_fitting_form
from interlock.server.encoders import Encoder
from interlock.server.tasks import (
    NO_SUCH_TASK,
    Handler,
    TaskParams,
    TaskUpdateParams,
    decode_params,
)
from interlock.toolbox import Toolbox
from interlock.types import InputRequest, JsonObject

MAX_NOTED = 10_000  # tasks whose end is already recorded, which are remembered
ENDED = frozenset({"completed", "failed", "cancelled"})


class ForwardedTasks:
    """The tasks of a gateway. `table` contains the handlers for the tasks' methods.

    Args:
        toolbox: The servers.
        forwarder: The forwarder that began the tasks.
        encoder: Encodes results for clients.
    """

    def __init__(self, toolbox: Toolbox, forwarder: Forwarder, encoder: Encoder) -> None:
        self._toolbox = toolbox
        self._forwarder = forwarder
        self._encoder = encoder
        self._noted: OrderedDict[str, None] = OrderedDict()  # ids of calls whose end is recorded
        self.table: dict[str, Handler] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    async def _get(self, request: Request, context: Context) -> bytes:
        params = decode_params(TaskParams, request, context)
        sealed, entry = self._find(params.task_id, context)
        raw = await self._ask("tasks/get", {"taskId": sealed.task}, sealed, entry, context)
        members = decode(dict[str, Raw], raw, "tasks/get result")
        members["taskId"] = Raw(encode(params.task_id))
        if "inputRequests" in members:
            questions = self._questions(members["inputRequests"], entry, context)
            members["inputRequests"] = questions
        if "result" in members:
            members["result"] = await self._fitted(members["result"], sealed, entry, context)
        status = decode(str, members.get("status", Raw(b'""')), "status of a task")
        if status in ENDED and sealed.call not in self._noted:
            self._noted[sealed.call] = None
            if len(self._noted) > MAX_NOTED:
                self._noted.popitem(last=False)
            self._record(status, sealed, entry, context)
        return self._encoder.encoded(Raw(encode_large(members)), context.revision)

    async def _update(self, request: Request, context: Context) -> bytes:
        params = decode_params(TaskUpdateParams, request, context)
        sealed, entry = self._find(params.task_id, context)
        self._record("answered", sealed, entry, context)
        update = {"taskId": sealed.task, "inputResponses": params.input_responses}
        await self._ask("tasks/update", update, sealed, entry, context)
        return self._encoder.result(b"{}", context.revision)

    async def _cancel(self, request: Request, context: Context) -> bytes:
        params = decode_params(TaskParams, request, context)
        sealed, entry = self._find(params.task_id, context)
        self._record("cancel", sealed, entry, context)
        await self._ask("tasks/cancel", {"taskId": sealed.task}, sealed, entry, context)
        return self._encoder.result(b"{}", context.revision)

    def _find(self, id: str, context: Context) -> tuple[SealedTask, Entry]:
        """Return the task with an id, and its tool.

        Raises:
            InvalidArguments: The caller may not use a task with this id.
        """
        sealed = self._forwarder.task_ids.read(id, context.principal)
        entry = self._toolbox.by_wire_name(sealed.tool)
        caller = caller_of(context)
        if entry is None or self._forwarder.in_force.policy.decide(caller, entry).effect == "deny":
            raise InvalidArguments(NO_SUCH_TASK)
        if observing.observer is not None:
            observing.observer.resumed(sealed.call)
        return sealed, entry

    async def _ask(
        self,
        method: str,
        params: JsonObject,
        sealed: SealedTask,
        entry: Entry,
        context: Context,
    ) -> Raw:
        upstream = self._toolbox.upstream(entry.server)
        can = context.client_capabilities
        try:
            return await upstream.calls.ask_task(
                caller_of(context), method, encode_large(params), sealed.task, can
            )
        except RemoteError as error:
            if error.code == INVALID_PARAMS:
                raise InvalidArguments(NO_SUCH_TASK) from None
            raise refused(entry, error, sealed.call) from None
        except InterlockError as error:
            raise refused(entry, error, sealed.call) from None

    def _questions(self, questions: Raw, entry: Entry, context: Context) -> Raw:
        """Return a task's questions for the client, with the server's name.

        Raises:
            MissingCapability: The client or the policy excludes a question.
        """
        can = self._forwarder.permitted(entry, context)
        asked = decode(dict[str, InputRequest], questions, "questions of a task")
        for key, each in asked.items():
            missing = lacking(can, each.method, each.params)
            if missing:
                raise MissingCapability(missing)
            params = bytes(with_fitting_form(each.method, each.params))
            asked[key] = InputRequest(
                each.method, Raw(attributed(entry.server, each.method, params))
            )
        return Raw(encode_large(asked))

    async def _fitted(self, result: Raw, sealed: SealedTask, entry: Entry, context: Context) -> Raw:
        """Return a task's result, treated like a call's result: within the limit, prefixed URIs."""
        call = Call(entry, {}, caller_of(context), id=sealed.call)
        outcome = await self._toolbox.results.fit(call, Outcome(repaired("tools/call", result)))
        return self._forwarder.with_links(entry, outcome.raw)

    def _record(self, event: str, sealed: SealedTask, entry: Entry, context: Context) -> None:
        note = self._forwarder.observer.task_changed
        note(caller_of(context), entry, sealed.call, event)
