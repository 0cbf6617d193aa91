"""Questions to a modern client: a request ends with them, and comes again with the answers.

The handler runs again from its top in each round. What has been answered is sealed into
`requestState`, so the server remembers nothing. Spec 2026-07-28: basic/patterns/mrtr.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from interlock.context import Context
from interlock.errors import InputRequired, InvalidArguments
from interlock.protocol import Request
from interlock.protocol.envelope import encode
from interlock.server.encoders import Encoder
from interlock.server.sealing import Seal, digest
from interlock.types import Wire

MAX_ROUNDS = 10


class AskingParams(Wire, frozen=True):
    """What a request that may come back with questions carries in a later round."""

    input_responses: dict[str, dict[str, Any]] | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class _State(Struct):
    """What is sealed: how often was asked, and the answers so far."""

    round: int
    answers: dict[str, Raw] = field(default_factory=dict)


class Round:
    """One round of one request.

    Args:
        subject: Gives the params that make it this request, such as name and arguments; only
            called when there is a state. One that was sealed for another subject, method or
            principal is refused.

    Raises:
        InvalidArguments: The state is not ours, or has expired.
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
            told = {key: Raw(encode(value)) for key, value in params.input_responses.items()}
            self._state.answers = {**self._state.answers, **told}
        context.answers = self._state.answers

    def ask(self, error: InputRequired, encoder: Encoder) -> bytes:
        """Encode the questions as the result of this round."""
        if self._state.round >= MAX_ROUNDS:
            raise InvalidArguments(f"no end after {MAX_ROUNDS} rounds of questions")
        sealed = encode(_State(self._state.round + 1, self._state.answers))
        return encoder.input_required(error.questions, self._seal.close(sealed, self._bound()))

    def _bound(self) -> bytes:
        return digest(self._who, self._method, *self._subject())


def canonical(arguments: Raw) -> bytes:
    """Give the same bytes for the same arguments, however the client writes them."""
    return msgspec.json.encode(msgspec.json.decode(arguments), order="deterministic")
