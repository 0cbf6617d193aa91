"""Forwarding: clients' requests become calls of the toolbox, and results go back to clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from interlock import observing
from interlock.calls import Call, Caller, Entry, Item, Outcome, Slots
from interlock.context import Context
from interlock.errors import InputRequired, InvalidArguments, MissingCapability
from interlock.gateway.forwarding.attribution import attributed
from interlock.gateway.forwarding.call_link import CallLink
from interlock.gateway.forwarding.in_force import InForce
from interlock.gateway.forwarding.parking import Parking, Ticket
from interlock.gateway.forwarding.task_ids import TaskIds
from interlock.gateway.forwarding.uris import Uris
from interlock.gateway.observer import GatewayObserver
from interlock.layers.enforcement import CallDenied
from interlock.layers.kept_results import URI
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode, encode_large
from interlock.protocol.questions import lacking
from interlock.revisions import MODERN
from interlock.schema.elicitation import with_fitting_defaults
from interlock.toolbox import Toolbox
from interlock.types import ClientCapabilities, JsonObject, LogLevel, Result

MAX_SESSION = 64  # characters of the session id that a modern client chooses
SESSION_KEY = "interlock/session"
_LINK, _EMBEDDED = b'"resource_link"', b'"resource"'  # content block types that contain a URI
_IGNORES = GatewayObserver()
_NOTHING = (None, None, None)  # the capabilities of a client that cannot answer questions


class _Round(Struct, tag="round"):
    """The sealed state between two rounds of a modern server's questions."""

    state: str | None
    keys: list[str]
    call: str  # the id of this round's call


class ApprovalTicket(Struct, tag="approval"):
    """The sealed state while a modern client decides whether to approve its call."""

    approval: str  # the id of the approval


_decode_state = msgspec.json.Decoder(_Round | Ticket | ApprovalTicket).decode


class Forwarder:
    """Forwards clients' requests to servers.

    Args:
        toolbox: The servers.
        in_force: The current policy, which is checked again when a request continues after
            questions.
        task_ids: Makes the task ids that clients see.
        observer: Notified of calls that cannot be sent.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        in_force: InForce,
        task_ids: TaskIds,
        observer: GatewayObserver = _IGNORES,
    ) -> None:
        self.observer = observer
        self.parking = Parking(toolbox.handle)
        self.uris = Uris()
        self.task_ids = task_ids
        self._toolbox = toolbox
        self.in_force = in_force

    async def forward(
        self, entry: Entry | Item, arguments: JsonObject, context: Context, id: str
    ) -> Raw:
        """Send a request to a server; return its result, with URIs replaced as in `with_links`.

        Args:
            entry: The requested item.
            arguments: The arguments by parameter name.
            context: The client's request.
            id: The call's id, unless the request continues a parked call, which already has an id.

        Raises:
            InputRequired: The server asks a modern client a question.
            TaskBegun: The server runs the call as a task.
            MissingCapability: The server needs a capability that the client does not declare.
            InvalidArguments: The request's state from an earlier round is not valid.
            InterlockError: The request was refused, or failed.
        """
        state = None if context.round_state is None else _decode_state(context.round_state)
        if isinstance(state, Ticket):
            return await self._resume(state, entry, arguments, context)
        can = context.client_capabilities
        modern = context.revision in MODERN
        call = Call(
            *(entry, arguments, caller_of(context)),
            capabilities=can,
            log_level=context.log_level,
            returns_questions=modern,
            id=id,
        )
        if state is not None or context.answers:
            _go_on(call, state, context.answers)
        context.is_measured = True  # by the layers
        if modern:
            if context.log_level is not None:
                await self._want_log_level(entry, context.log_level)
            if (can.elicitation, can.sampling, can.roots) != _NOTHING and self._may_be_asked(entry):
                return self._passed_on(entry, await self.parking.run(call, context), context, id)
        call.back = link = CallLink(context, entry.server)
        if context.progress_token is not None:
            call.progress = link.progress
        if self.in_force.policy.asks:  # needed while the call waits for an approval
            call.slots = Slots()
        outcome = await self._toolbox.stack(call)
        if link.latest is not None:
            link.flush()
        if outcome.result_type == "complete" and b'"resource' not in bytes(outcome.raw):
            return outcome.raw  # the most common case
        return self._passed_on(entry, outcome, context, id)

    def _passed_on(self, entry: Entry | Item, outcome: Outcome, context: Context, id: str) -> Raw:
        """Return a result for the client; raise an error if the client must continue the call."""
        if outcome.result_type != "complete" and context.is_modern:
            _raise_questions(outcome, self.permitted(entry, context), entry.server, id)
            if outcome.is_task and isinstance(entry, Entry):
                raise self.task_ids.begun(entry, outcome.raw, context.principal, id)
        # Content block types that contain a URI.
        if isinstance(entry, Entry) and b'"resource' in bytes(outcome.raw):
            return self.with_links(entry, outcome.raw)
        return outcome.raw

    def with_links(self, entry: Entry | Item, result: Raw) -> Raw:
        """Replace the URIs of a tool's linked and embedded resources, so that clients can read
        them.
        """
        encoded = bytes(result)
        if isinstance(entry, Item) or (_LINK not in encoded and _EMBEDDED not in encoded):
            return result
        members = decode(dict[str, Raw], result, "tools/call result")
        blocks = decode(list[dict[str, Any]], members.get("content", Raw(b"[]")), "content")
        has_changed = False
        for block in blocks:
            resource = block.get("resource") if block.get("type") == "resource" else block
            if not isinstance(resource, dict):
                continue
            uri = resource.get("uri")
            if isinstance(uri, str) and not uri.startswith(URI):  # a gateway's URI, or a forged one
                resource["uri"] = self.uris.link(entry.server, uri)
                has_changed = has_changed or resource["uri"] != uri
        if not has_changed:
            return result
        return Raw(encode_large(members | {"content": blocks}))

    async def _want_log_level(self, entry: Entry | Item, level: LogLevel) -> None:
        upstream = self._toolbox.upstreams.get(entry.server)
        if upstream is not None:
            await upstream.want_log_level(level)

    def permitted(self, entry: Entry | Item, context: Context) -> ClientCapabilities:
        """Return the capabilities of a client that a server may use."""
        upstream = self._toolbox.upstreams.get(entry.server)
        can = context.client_capabilities
        return can if upstream is None else upstream.calls.permitted(can)

    def _may_be_asked(self, entry: Entry | Item) -> bool:
        upstream = self._toolbox.upstreams.get(entry.server)
        return upstream is not None and (upstream.may_ask or bool(upstream.needs))

    async def _resume(
        self, ticket: Ticket, entry: Entry | Item, arguments: JsonObject, context: Context
    ) -> Raw:
        call = Call(entry, arguments, caller_of(context))
        self._toolbox.convert_arguments(call)
        decision = self.in_force.policy.decide(call.caller, entry, call.arguments)
        if decision.effect == "deny":  # the caller's rights have changed in the meantime
            self.parking.end_one(ticket, context)
            raise CallDenied(entry.address, decision.reason, decision.rule)
        if observing.observer is not None:
            observing.observer.resumed(ticket.call)
        outcome = await self.parking.resume(ticket, context)
        context.error_type = "tool_error" if outcome.is_error else ""
        return self._passed_on(entry, outcome, context, ticket.call)


def ticket_of(context: Context) -> ApprovalTicket | None:
    """Return the sealed state of a request that continues after an approval, else None."""
    state = None if context.round_state is None else _decode_state(context.round_state)
    return state if isinstance(state, ApprovalTicket) else None


def _raise_questions(outcome: Outcome, can: ClientCapabilities, server: str, call: str) -> None:
    result = decode(Result, outcome.raw, "result")
    if result.result_type != "input_required":
        return
    questions = {
        key: (
            each.method,
            attributed(server, each.method, bytes(with_fitting_defaults(each.method, each.params))),
        )
        for key, each in (result.input_requests or {}).items()
    }
    for method, params in questions.values():
        missing = lacking(can, method, Raw(params))
        if missing:
            raise MissingCapability(missing)
    state = _Round(result.request_state, [*questions], call)
    raise InputRequired(questions, encode(state).decode())


def caller_of(context: Context) -> Caller:
    """Return the caller for whom a request is forwarded.

    Raises:
        InvalidArguments: The client sent an invalid session id.
    """
    if context.session is not None:
        session = f"session {context.session.id}"
    else:
        session = context.meta.get(SESSION_KEY, "")
        if not isinstance(session, str) or len(session) > MAX_SESSION:
            raise InvalidArguments(
                f"{SESSION_KEY} is not a text of at most {MAX_SESSION} characters; choose a "
                "shorter one"
            )
    info, trace = context.client_info, context.trace
    return Caller(
        context.principal,
        session,
        "mcp",
        info.name if info is not None else "",
        context.address,
        context.revision,
        trace.parent if trace is not None else "",
        context.caller_headers,
        trace if context.trusts_trace else None,
    )


def _go_on(call: Call, state: _Round | ApprovalTicket | None, answers: Mapping[str, Raw]) -> None:
    """Add the answers to an earlier round's questions to a call."""
    if isinstance(state, _Round):
        answered = {key: answers[key] for key in state.keys if key in answers}
        call.input_responses = Raw(encode(answered))
        call.request_state = state.state
        call.continues = state.call
        return
    # A server's questions in an earlier request; the server checks whether it asked them.
    ours = state.approval if isinstance(state, ApprovalTicket) else ""
    others = {key: each for key, each in answers.items() if key != ours}
    if others:
        call.input_responses = Raw(encode(others))
