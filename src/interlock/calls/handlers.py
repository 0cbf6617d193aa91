"""The stack of a call: layers around a handler, built once; see `layers.stack`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from interlock.calls.call import Call, Outcome

CallHandler = Callable[[Call], Awaitable[Outcome]]
"""A handler: makes a call and returns its outcome."""
Around = Callable[[CallHandler], CallHandler]
"""A layer: takes the next handler, and returns a handler that wraps it."""


def build(send: CallHandler, around: Sequence[Around]) -> CallHandler:
    """Return a handler that passes a call through `around`, outermost layer first, to `send`."""
    handler = send
    for wrap in reversed(around):
        handler = wrap(handler)
    return handler
