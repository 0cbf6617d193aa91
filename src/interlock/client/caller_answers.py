"""Answers of the client on whose behalf a request is forwarded."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw

from interlock.calls.back_channel import BackChannel
from interlock.client.features import check_method
from interlock.errors import AskRefused, RemoteProtocolError
from interlock.types import ClientCapabilities

ASK_TIMEOUT = 600.0  # seconds; people take their time

# What a client must declare to be asked.
_CAPABILITIES = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}


class CallerAnswers:
    """Passes a server's questions on to the client that is calling.

    Args:
        back: The way to that client.
        capabilities: What it declared; a question beyond that is refused.
        count: Counts a question, and raises if there were too many.
    """

    def __init__(
        self, back: BackChannel, capabilities: ClientCapabilities | None, count: Callable[[], None]
    ) -> None:
        self.back = back
        self._capabilities = capabilities or ClientCapabilities()
        self._count = count

    async def answer(self, method: str, params: Raw, revision: str) -> bytes:
        """Answer one question; as `Answers.answer`.

        Raises:
            AskRefused: The client cannot be asked, or was asked too often.
        """
        check_method(method, revision)
        needed = _CAPABILITIES.get(method)
        if needed is None or getattr(self._capabilities, needed) is None:
            raise AskRefused(
                f"the client that is calling does not declare {needed or method}", "cannot_ask"
            )
        try:
            self._count()
        except RemoteProtocolError as error:
            raise AskRefused(str(error), "asks_exceeded") from None
        return bytes(await self.back.ask(method, bytes(params), timeout=ASK_TIMEOUT))
