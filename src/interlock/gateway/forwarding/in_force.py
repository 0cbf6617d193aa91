"""The rules that the parts of a `ForwardingServer` share; a reload replaces them in one step."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from interlock.auth.principal import Principal
from interlock.policy import Policy


class InForce(Struct):
    """The present rules.

    Attributes:
        policy: Decides who may use what.
        admit: See `Layers`.
    """

    policy: Policy
    admit: Callable[[Principal | None], None] | None = None
