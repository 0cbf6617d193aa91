"""The interface of servers, which connections and HTTP endpoints use; gateways implement it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

from interlock.context import Context
from interlock.protocol import Request
from interlock.protocol.back_channel import HasHeaders
from interlock.server.catalogue import ServedTool
from interlock.server.subscribers import Subscribers


def is_of_parent_process(context: Context) -> bool:
    """Return whether a request came from the program that started this one, or from this one."""
    return context.principal is None and not isinstance(context.link, HasHeaders)


class Answering(Protocol):
    """An object that answers MCP requests, such as a `Server`."""

    @property
    def dropped(self) -> Counter[str]:
        """The numbers of dropped messages and requests, keyed by the reason."""
        ...

    @property
    def subscribers(self) -> Subscribers:
        """The clients that are notified of changes."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the lifespan open: the first caller enters it, and the last caller exits it."""
        ...

    def answer(self, request: Request, context: Context, /) -> Awaitable[bytes]:
        """Answer a request with an encoded result.

        Raises:
            InterlockError: The request failed.
        """
        ...

    def trusts_trace(self, context: Context, /) -> bool:
        """Return whether a client's trace may continue here; otherwise it is only linked."""
        ...

    def find(self, kind: Literal["tools"], name: str, context: Context, /) -> ServedTool | None:
        """Return the tool with this name; None if the caller has no such tool."""
        ...

    def has_prompt(self, name: str, context: Context, /) -> bool:
        """Return whether the caller has a prompt with this name."""
        ...
