"""What a reload replaces in one step, for all parts of a `ForwardingServer`."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from interlock.auth.principal import Principal
from interlock.policy import Policy


class InForce(Struct):
    """The rules that hold now.

    Attributes:
        policy: Decides who may use what.
        admit: See `Layers`.
    """

    policy: Policy
    admit: Callable[[Principal | None], None] | None = None
