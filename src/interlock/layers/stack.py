"""The stack: all layers that a call passes, in their fixed order.

    admit         the limits of a key, before the request is read          `limits`
      │
    counting      how calls end and how long they take                     `metrics`
    refusals      a record of each refused call                            `audit`
    validation    the server exists, and the arguments fit its tool        `delivery`
    policy        whether the caller may make the call                     `enforcement`
    around        the layers of a program
    limits        how often callers call; refunds refused calls            `limits`
    approval      a person approves or denies the call                     `approvals`, `asking`
    login         the user connects to the server                          `login_questions`
    queue         a fair share of the server's slots                       `fair_queue`
    trail         the intent of the call, and its outcome                  `audit`
      │
    sending       the server; a large result is cut and kept               `delivery`, `results`

Layers refuse a call before its intent is recorded. The refusal is recorded instead, and the call's
tokens are given back. The layers that wait for people come before the queue, so that a waiting
call occupies no slot of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from interlock import calls, observing
from interlock.calls import Around, CallHandler
from interlock.layers.enforcement import NOTHING, enforce

if TYPE_CHECKING:
    from interlock.auth.principal import Principal
    from interlock.policy import Policy


class Layers(Struct, frozen=True, kw_only=True):
    """The layers around calls. Each layer is optional; the module's docstring shows their order.

    A layer may return a result itself, raise an error, or pass the call on. The arguments that it
    sees are the arguments that will be sent.

    Attributes:
        admit: Raises an error if a caller may not make any call now. A server calls it before it
            reads a request.
        counting: Counts calls by outcome.
        refusals: Records refused calls, unless `counting` records them.
        policy: Decides which calls a caller may make. A call that needs approval continues to the
            layer `approval`; without this layer it is denied.
        instead: Handlers for individual tools, by address. They replace the layers after the
            policy.
        around: Additional layers of the program, the outermost first.
        limits: Limits how often callers may call.
        approval: Stops calls that need approval until a person approves them.
        login: Asks users to connect to servers that need their credentials.
        queue: Limits how many calls run at a server at the same time.
        trail: Records the intent and the outcome of calls.
    """

    admit: Callable[[Principal | None], None] | None = None
    counting: Around | None = None
    refusals: Around | None = None
    policy: Policy | None = None
    instead: Mapping[str, CallHandler] = NOTHING
    around: Sequence[Around] = ()
    limits: Around | None = None
    approval: Around | None = None
    login: Around | None = None
    queue: Around | None = None
    trail: Around | None = None

    @classmethod
    def of(cls, around: AroundCalls) -> Layers:
        """Return a program's layers, given either as `Layers` or as a sequence of functions."""
        return around if isinstance(around, Layers) else cls(around=around)

    def build(self, sending: CallHandler, validation: Around | None = None) -> CallHandler:
        """Return a handler that passes a call through all layers.

        Args:
            sending: Sends the call to its server.
            validation: Checks the call against its tool's schema; None to skip this check.
        """
        order = (
            None if observing.observer is None else observing.observer.call,
            self.counting,
            self.refusals,
            validation,
            self._enforcement(),
            *self.around,
            self.limits,
            self.approval,
            self.login,
            self.queue,
            self.trail,
        )
        return calls.build(sending, [each for each in order if each is not None])

    def _enforcement(self) -> Around | None:
        if self.policy is None:
            return None
        return enforce(self.policy, asks_pass=self.approval is not None, instead=self.instead)


AroundCalls: TypeAlias = "Layers | Sequence[Around]"
