"""The questions that a server behind a gateway may send to clients."""

from __future__ import annotations

from msgspec.structs import replace

from interlock.client import ClientOptions
from interlock.config.servers import AUTO
from interlock.revisions import TASKS_EXTENSION
from interlock.types import ClientCapabilities

_QUESTIONS = frozenset({"elicitation", "sampling", "roots"})


class PermittedQuestions:
    """The questions that a server's configuration permits it to ask.

    Args:
        settings: The server's configuration; None for an in-process server.

    Attributes:
        last: The last argument and result of `of`, as a cache.
    """

    def __init__(self, settings: object | None) -> None:
        self._refused = _QUESTIONS - frozenset(getattr(settings, "asks", AUTO))
        self._is_per_call = getattr(settings, "sharing", "") == "per_call"
        self.last = ClientCapabilities(), ClientCapabilities()

    def of(self, can: ClientCapabilities) -> ClientCapabilities:
        """Return the part of a client's capabilities that the server may use."""
        known, permitted = self.last
        if known is can:  # cached: clients often pass the same object
            return permitted
        refused = [each for each in self._refused if getattr(can, each) is not None]
        permitted = can
        if refused:
            permitted = replace(can, **dict.fromkeys(refused))
        if can.extensions and self._is_per_call:
            # The connection ends with the call, so a task could not be polled afterwards.
            others = {k: v for k, v in can.extensions.items() if k != TASKS_EXTENSION}
            permitted = replace(permitted, extensions=others or None)
        self.last = can, permitted
        return permitted

    def without_refused(self, options: ClientOptions) -> ClientOptions:
        """Return a client's options without handlers for questions that are not permitted."""
        kept = options.copy()
        for each in self._refused:
            kept.pop(each, None)  # type: ignore[misc] # a question is the name of its handler
        return kept
