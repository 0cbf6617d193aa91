"""An approval that a call is about to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from interlock.errors import CallRefused

if TYPE_CHECKING:
    from interlock.store.database.claims import Claim


class GrantLost(Exception):
    """The approval was used or denied, or expired, before the call could use it."""


class Grant(Struct, eq=False):
    """An approval that a call uses up in the transaction that records its intent.

    Attributes:
        id: The approval's id.
        claim: The change to the database that uses up the approval.
        is_current: Returns whether the policy and the definition are still the approved ones.
    """

    id: str
    claim: Claim
    is_current: Callable[[], bool]

    def check(self) -> None:
        """Check that the grant is still valid; call this just before the call is sent.

        Raises:
            GrantLost: The claim failed, because the approval was no longer available.
            CallRefused: The approval is void, because the policy or the tool has changed.
        """
        if self.claim.has_failed:
            raise GrantLost(self.id)
        if not self.is_current():
            text = f"approval {self.id} is void: policy or tool have changed; call again"
            raise CallRefused(text, "approval_required")
