"""Step-up: asks a client for the scope that its token lacks and its person has.

What the person may never call stays unknown to the client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from interlock.auth.principal import Principal
from interlock.auth.scopes import SCOPE, covers
from interlock.calls import Caller, Entry, Item
from interlock.errors import InsufficientScope
from interlock.gateway.forwarding.in_force import InForce
from interlock.policy.rules import Scopes

FullRights: TypeAlias = Callable[[Principal], Principal | None]
"""Returns a caller with all rights of its person; None if its credential cannot get more."""


class StepUp:
    """Raises the error for a call that a token with another scope could make.

    Args:
        in_force: The current policy.
        full_rights: Returns the caller that a token could be for.
    """

    def __init__(self, in_force: InForce, full_rights: FullRights) -> None:
        self._in_force = in_force
        self._full_rights = full_rights

    def check(self, caller: Caller, hidden: Entry | Item | None) -> None:
        """Check a call of an item that is hidden from the caller; None for an unknown item.

        Raises:
            InsufficientScope: The person may use the item, but the token lacks the scope. The error
                has the least scope that is missing, and those that the token has.
        """
        own = caller.principal
        person = None if own is None or hidden is None else self._full_rights(own)
        if own is None or hidden is None or person is None:
            return
        policy = self._in_force.policy
        if policy.decide(Caller(person), hidden).effect == "deny":
            return
        risk = policy.risk(hidden) if isinstance(hidden, Entry) else "read"
        name = hidden.tool.name if isinstance(hidden, Entry) else hidden.name
        narrow = f"mcp:{hidden.server}:{name}"
        for scope in ("mcp:read", narrow, "mcp:*", *sorted(person.scopes)):
            is_enough = Scopes([scope]).cover(hidden.server, name, risk)
            is_granted = any(covers(each, scope) for each in person.scopes)
            if is_enough and is_granted and scope not in own.scopes and SCOPE.fullmatch(scope):
                raise InsufficientScope((*sorted(own.scopes), scope))
