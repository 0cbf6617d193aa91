"""All layers of a call, in the one order in which calls pass them.

    admit         the limits of a key, before the request is read          `limits`
      │
    counting      how calls end and how long they take                     `metrics`
    refusals      a record of each refused call                            `audit`
    validation    the server exists, and the arguments fit its tool        `delivery`
    policy        who may call what                                        `enforcement`
    around        the layers of a program
    limits        how often; gives back what a refused call has spent      `limits`
    approval      a person decides about the call                          `approvals`, `asking`
    login         the user connects to the server                          `login_questions`
    queue         a fair share of the server's slots                       `fair_queue`
    trail         the intent of the call, and its outcome                  `audit`
      │
    sending       the server; a large result is cut and kept               `delivery`, `results`

A layer refuses a call before the intent is recorded. The refusal is recorded, and the call gets
back the tokens it has spent. Layers that wait for people come before the queue, so that no call
holds a slot of a server meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from interlock import calls
from interlock.calls import Around, CallHandler
from interlock.layers.enforcement import NOTHING, enforce

if TYPE_CHECKING:
    from interlock.auth.principal import Principal
    from interlock.policy import Policy


class Layers(Struct, frozen=True, kw_only=True):
    """The layers of calls. Each may be absent; the module shows their order.

    A layer may answer by itself, raise, or pass the call on. It sees the arguments that will be
    sent.

    Attributes:
        admit: Raises if a caller may make no call now, whatever the call is. A server that takes
            requests calls it before it reads them.
        counting: Counts calls.
        refusals: Records refused calls, unless `counting` does.
        policy: Decides who may call what. A call that must be approved passes it if there is a
            layer `approval`, and is denied otherwise.
        instead: The handlers of single tools by address, in place of the layers inside the policy.
        around: The layers of a program, first one outermost.
        limits: Limits how often calls are made.
        approval: Lets calls pass that a person has approved.
        login: Asks users to connect to servers that need their credential.
        queue: Limits how many calls of a server run at once.
        trail: Records calls.
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
        """Return the layers of a program, which names single functions or all layers."""
        return around if isinstance(around, Layers) else cls(around=around)

    def build(self, sending: CallHandler, validation: Around | None = None) -> CallHandler:
        """Return the handler that passes a call through all layers.

        Args:
            sending: The handler that sends the call to its server.
            validation: Checks the call against its tool; None if the tool is unknown.
        """
        order = (
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
