"""A tool of an upstream server, as the gateway offers it to one caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw, Struct

from interlock.calls import Call, Caller, Entry, Outcome
from interlock.context import Context
from interlock.errors import (
    AuditUnavailable,
    CallRefused,
    InputRequired,
    InterlockError,
    InvalidArguments,
)
from interlock.gateway.refusals import refusal
from interlock.protocol.envelope import encode
from interlock.server.wire_errors import request_refusal
from interlock.types import JsonObject


class _Round(Struct):
    """What the gateway seals between rounds of an upstream server's questions."""

    state: str | None
    keys: list[str]


class ForwardedTool:
    """Passes calls on to the toolbox.

    Args:
        entry: The tool.
        handle: The toolbox's stack.
    """

    def __init__(self, entry: Entry, handle: Callable[[Call], Awaitable[Outcome]]) -> None:
        self.entry = entry
        self.definition: JsonObject = msgspec.json.decode(entry.definition)
        self._handle = handle

    async def call(self, arguments: Raw | None, context: Context) -> Raw:
        """Pass a call on, and return the upstream server's result as it is.

        A refusal is a result, too: see `refusals`.

        Raises:
            CallRefused, AuditUnavailable: The request is refused, whatever its tool.
            InputRequired: The upstream server asks a modern client.
            InvalidArguments: The state of an earlier round is not valid.
        """
        call = _call(self.entry, arguments, context)
        try:
            outcome = await self._handle(call)
        except InterlockError as error:
            if isinstance(error, CallRefused | AuditUnavailable) and request_refusal(error):
                raise  # it concerns the request, whatever its tool
            return refusal(call, error)
        if call.returns_questions and b'"input_required"' in bytes(outcome.raw):
            result = outcome.result
            if result.result_type == "input_required":
                questions = {
                    key: (each.method, bytes(each.params))
                    for key, each in (result.input_requests or {}).items()
                }
                state = encode(_Round(result.request_state, [*questions])).decode()
                raise InputRequired(questions, state)
        return outcome.raw


def _call(entry: Entry, arguments: Raw | None, context: Context) -> Call:
    given = {} if arguments is None else msgspec.json.decode(arguments)
    if not isinstance(given, dict):
        raise InvalidArguments("the arguments must be an object")
    caller = Caller(context.principal, str(context.meta.get("interlock/session", ""))[:64], "mcp")
    round = None
    if context.round_state is not None:
        round = msgspec.json.decode(context.round_state, type=_Round)
    responses = None
    if round is not None:
        answered = {key: context.answers[key] for key in round.keys if key in context.answers}
        responses = Raw(encode(answered))
    return Call(
        entry,
        given,
        caller,
        back=context.link,
        capabilities=context.client_capabilities,
        returns_questions=context.is_modern,
        input_responses=responses,
        request_state=round.state if round is not None else None,
        progress=None
        if context.progress_token is None
        else lambda progress: context.progress(progress.progress, progress.total, progress.message),
    )
