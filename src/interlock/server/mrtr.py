"""Questions to a modern client: a result contains them, and the next request has the answers.

In each round, the handler runs again from its start. The answers so far are sealed in
`requestState`, so the server stores nothing. Spec 2026-07-28: basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET, Raw, Struct, field

from interlock.context import Context
from interlock.errors import InputRequired, InvalidArguments
from interlock.protocol import Request
from interlock.protocol.envelope import encode
from interlock.server.encoders import Encoder
from interlock.server.request_context import AskingParams
from interlock.server.sealing import Seal, digest

MAX_ROUNDS = 10


class _State(Struct):
    """The content of `requestState`: the rounds and answers so far, and the handler's state."""

    round: int
    answers: dict[str, Raw] = field(default_factory=dict)
    own: str | None = None


class Round:
    """One round of questions and answers in a request.

    Args:
        subject: Returns the params that identify the request, such as its name and arguments. A
            state that was sealed for another subject, method or principal is refused.

    Raises:
        InvalidArguments: The request's state is not valid, or has expired.
    """

    def __init__(
        self,
        params: AskingParams,
        request: Request,
        context: Context,
        subject: Callable[[], tuple[bytes, ...]],
        seal: Seal,
    ) -> None:
        self._seal = seal
        self._state = _State(0)
        self._method = request.method.encode()
        self._subject = subject
        self._who = context.principal.owner.encode() if context.principal else b""
        if context.is_modern and params.request_state is not UNSET:
            sealed = seal.open(params.request_state, self._bound())
            self._state = msgspec.json.decode(sealed, type=_State)
        if context.is_modern and params.input_responses is not UNSET:
            answers = {key: Raw(encode(value)) for key, value in params.input_responses.items()}
            self._state.answers = {**self._state.answers, **answers}
        context.answers = self._state.answers
        context.round_state = self._state.own

    def ask(self, error: InputRequired, encoder: Encoder) -> bytes:
        if self._state.round >= MAX_ROUNDS:
            raise InvalidArguments(
                f"too many rounds of questions (limit {MAX_ROUNDS}); start the request again"
            )
        sealed = encode(_State(self._state.round + 1, self._state.answers, error.state))
        return encoder.input_required(error.questions, self._seal.close(sealed, self._bound()))

    def _bound(self) -> bytes:
        return digest(self._who, self._method, *self._subject())


def canonical(arguments: Raw) -> bytes:
    """Encode arguments so that equal arguments have equal bytes.

    Raises:
        InvalidArguments: The arguments contain a number that no float can represent.
    """
    try:
        return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic")
    except msgspec.DecodeError as error:
        raise InvalidArguments(f"arguments: {error}") from None
