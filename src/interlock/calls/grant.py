"""An approval that a call is about to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from interlock.errors import CallRefused

if TYPE_CHECKING:
    from interlock.store.database.claims import Claim


class GrantLost(Exception):
    """The approval was used, denied or has expired before the call could use it."""


class Grant(Struct, eq=False):
    """An approval that a call uses in the transaction of its intent.

    Attributes:
        id: The id of the approval.
        claim: The change of the database that uses the approval.
        is_current: Returns whether policy and definition are still those that were approved.
    """

    id: str
    claim: Claim
    is_current: Callable[[], bool]

    def check(self) -> None:
        """Check the grant after its claim is durable, just before the call is sent.

        Raises:
            GrantLost: The claim failed.
            CallRefused: The approval is void.
        """
        if self.claim.has_failed:
            raise GrantLost(self.id)
        if not self.is_current():
            text = f"approval {self.id} is void: policy or tool have changed; call again"
            raise CallRefused(text, "approval_required")
