"""Answers to a server's questions, from the client whose request is being forwarded."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw, Struct

from interlock.client.features import check_method
from interlock.errors import AskRefused, RemoteProtocolError
from interlock.protocol.back_channel import BackChannel
from interlock.protocol.questions import lacking
from interlock.schema.elicitation import with_fitting_form
from interlock.types import ClientCapabilities

ASK_TIMEOUT = 600.0  # seconds; people need time to answer


class CallerAnswers(Struct, eq=False):
    """Passes a server's questions to the client on whose behalf the server is called.

    Attributes:
        back: The back channel to that client.
        capabilities: The client's declared capabilities; a question beyond them is refused.
        count: Counts a question; raises an error if there were too many.
    """

    back: BackChannel
    capabilities: ClientCapabilities
    count: Callable[[], None]

    async def answer(self, method: str, params: Raw, revision: str) -> bytes:
        """Answer one question, as `Answers.answer` does.

        Raises:
            AskRefused: The client cannot answer the question, or received too many questions.
        """
        check_method(method, revision)
        missing = lacking(self.capabilities, method, params)
        if missing:
            raise AskRefused(f"the client that is calling does not declare {missing}", "cannot_ask")
        try:
            self.count()
        except RemoteProtocolError as error:
            raise AskRefused(str(error), "asks_exceeded") from None
        asked = bytes(with_fitting_form(method, params))
        return bytes(await self.back.ask(method, asked, timeout=ASK_TIMEOUT))
