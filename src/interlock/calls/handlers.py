"""The stack of a call: functions from handler to handler, built once; see `layers.stack`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from interlock.calls.call import Call, Outcome

CallHandler = Callable[[Call], Awaitable[Outcome]]
"""Makes a call and returns its outcome."""
Around = Callable[[CallHandler], CallHandler]
"""A layer: takes the next handler and returns its own."""


def build(send: CallHandler, around: Sequence[Around]) -> CallHandler:
    """Return the handler that passes a call through `around`, first one outermost, to `send`."""
    handler = send
    for wrap in reversed(around):
        handler = wrap(handler)
    return handler
