"""The stack of a call: functions from handler to handler, built once.

Order: validation, then what `Toolbox(around=...)` was given, then the upstream server. A layer may
answer by itself, raise, or pass the call on; it sees the arguments that will be sent.

Order of the layers of a gateway: metrics, which let `AuditTrail` record refusals, policy,
`Limiter.around`, approvals, `fair_queue.queued`, `AuditTrail.calls`. So what refuses a call does
so before its intent is recorded, its refusal is recorded, and it gets back what it has spent.
"""

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
