"""Calls that a person makes on a page outside of a conversation's turn, and how they are asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from interlock.calls import Call
from interlock.layers.asking import AskCaller

if TYPE_CHECKING:
    from interlock.store.approvals import Approval


@runtime_checkable
class AsksOnPage(Protocol):
    """A way back to a page that shows a call and lets its person decide."""

    async def approve(self, call: Call, approval: Approval | None) -> bool | None:
        """Return whether a call may run; None without an answer.

        Raises:
            ApprovalMissing: There was no answer in time, where no approval is kept.
        """
        ...


def asked_by_hand(otherwise: AskCaller | None) -> AskCaller:
    """Return what asks about calls made by hand on the page, and passes all others on."""

    async def ask(call: Call, approval: Approval | None) -> bool | None:
        if isinstance(call.back, AsksOnPage):
            return await call.back.approve(call, approval)
        return None if otherwise is None else await otherwise(call, approval)

    return ask


__all__ = ["AsksOnPage", "asked_by_hand"]
