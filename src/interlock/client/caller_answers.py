"""Answers of the client on whose behalf a request is forwarded."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct

from interlock.client.features import check_method
from interlock.errors import AskRefused, RemoteProtocolError
from interlock.protocol.back_channel import BackChannel
from interlock.types import ClientCapabilities, JsonObject, Wire

ASK_TIMEOUT = 600.0  # seconds; people need time to answer

# The capability that a client must declare for each kind of question
_CAPABILITIES = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}


class _Question(Wire, frozen=True):
    mode: str = "form"
    tools: Raw | None = None
    tool_choice: Raw | None = None


class CallerAnswers(Struct, eq=False):
    """Passes a server's questions to the client on whose behalf it is called.

    Attributes:
        back: The back channel to that client.
        capabilities: The client's declared capabilities; a question beyond them is refused.
        count: Counts a question, and raises if there were too many.
    """

    back: BackChannel
    capabilities: ClientCapabilities
    count: Callable[[], None]

    async def answer(self, method: str, params: Raw, revision: str) -> bytes:
        """Answer one question, as `Answers.answer` does.

        Raises:
            AskRefused: The client cannot answer this, or had too many questions.
        """
        check_method(method, revision)
        missing = lacking(self.capabilities, method, params)
        if missing:
            raise AskRefused(f"the client that is calling does not declare {missing}", "cannot_ask")
        try:
            self.count()
        except RemoteProtocolError as error:
            raise AskRefused(str(error), "asks_exceeded") from None
        return bytes(await self.back.ask(method, bytes(params), timeout=ASK_TIMEOUT))


def lacking(declared: ClientCapabilities, method: str, params: Raw) -> str:
    """Return the capability that a client lacks for a question; "" for none."""
    needed = _CAPABILITIES.get(method)
    has: JsonObject | None = getattr(declared, needed) if needed is not None else None
    if has is None:
        return needed or method
    try:
        question = msgspec.json.decode(params, type=_Question)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed {method}: {error}") from None
    if needed == "elicitation":
        # Before 2025-11-25 added the mode "url", elicitation meant forms.
        is_declared = question.mode in has or (question.mode == "form" and "url" not in has)
        return "" if is_declared else f"elicitation.{question.mode}"
    uses_tools = question.tools is not None or question.tool_choice is not None
    return "sampling.tools" if uses_tools and "tools" not in has else ""
