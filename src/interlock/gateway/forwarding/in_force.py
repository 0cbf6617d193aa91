"""The policy that the parts of a `ForwardingServer` share; a reload replaces it in one step."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from interlock.auth.principal import Principal
from interlock.policy import Policy


class InForce(Struct):
    """The current policy, and the check before a request is read.

    Attributes:
        policy: Decides which items a caller may use.
        admit: Raises an error if a caller may not make any call now; see `Layers`. None if not
            checked.
    """

    policy: Policy
    admit: Callable[[Principal | None], None] | None = None
