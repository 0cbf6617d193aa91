"""Requests of clients become calls of the toolbox, and what comes of them is passed on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw, Struct

from interlock.calls import Call, Caller, Entry, Item, Outcome
from interlock.context import Context
from interlock.errors import InputRequired, InvalidArguments
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode
from interlock.types import JsonObject, Result

MAX_SESSION = 64  # characters of a session that a modern client names
SESSION_KEY = "interlock/session"

CallHandler = Callable[[Call], Awaitable[Outcome]]


class _Round(Struct):
    """What the gateway seals between rounds of an upstream server's questions."""

    state: str | None
    keys: list[str]


class Forwarder:
    """Passes requests on to servers.

    Args:
        handle: The toolbox's stack.
    """

    def __init__(self, handle: CallHandler) -> None:
        self._handle = handle

    async def forward(self, entry: Entry | Item, arguments: JsonObject, context: Context) -> Raw:
        """Send a request to a server, and return its result as it is.

        Raises:
            InputRequired: The server asks a modern client.
            InvalidArguments: The state of an earlier round is not valid.
            InterlockError: It was refused, or has failed.
        """
        call = _call(entry, arguments, context)
        outcome = await self._handle(call)
        if call.returns_questions and b'"input_required"' in bytes(outcome.raw):
            _raise_questions(outcome)
        return outcome.raw


def _raise_questions(outcome: Outcome) -> None:
    result = decode(Result, outcome.raw, "result")
    if result.result_type != "input_required":
        return
    questions = {
        key: (each.method, bytes(each.params))
        for key, each in (result.input_requests or {}).items()
    }
    raise InputRequired(questions, encode(_Round(result.request_state, [*questions])).decode())


def caller_of(context: Context) -> Caller:
    """Return on whose behalf a request is forwarded.

    Raises:
        InvalidArguments: The client names a session that is not valid.
    """
    session = context.meta.get(SESSION_KEY, "")
    if not isinstance(session, str) or len(session) > MAX_SESSION:
        raise InvalidArguments(
            f"{SESSION_KEY} is not a text of at most {MAX_SESSION} characters; choose a shorter one"
        )
    return Caller(context.principal, session, "mcp")


def _call(entry: Entry | Item, arguments: JsonObject, context: Context) -> Call:
    round = None
    if context.round_state is not None:
        round = msgspec.json.decode(context.round_state, type=_Round)
    responses = None
    if round is not None:
        answered = {key: context.answers[key] for key in round.keys if key in context.answers}
        responses = Raw(encode(answered))
    return Call(
        entry,
        arguments,
        caller_of(context),
        back=context.link,
        capabilities=context.client_capabilities,
        returns_questions=context.is_modern,
        input_responses=responses,
        request_state=round.state if round is not None else None,
        progress=None
        if context.progress_token is None
        else lambda progress: context.progress(progress.progress, progress.total, progress.message),
    )
