"""The interface of a server that connections and HTTP endpoints use; a gateway implements it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from interlock.context import Context
from interlock.protocol import Request
from interlock.server.catalogue import ServedTool
from interlock.server.subscribers import Subscribers


class Answering(Protocol):
    """An object that answers MCP requests, such as a `Server`."""

    @property
    def dropped(self) -> Counter[str]:
        """The number of messages and requests that were dropped, by reason."""
        ...

    @property
    def subscribers(self) -> Subscribers:
        """The clients to notify of changes."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Hold the lifespan open; the first holder enters it, the last one leaves it."""
        ...

    def answer(self, request: Request, context: Context, /) -> Awaitable[bytes]:
        """Answer one request with an encoded result.

        Raises:
            InterlockError: The request fails.
        """
        ...

    def find(self, kind: Literal["tools"], name: str, context: Context, /) -> ServedTool | None:
        """Return the tool of this name; None if there is none that the caller may use."""
        ...
