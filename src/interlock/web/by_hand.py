"""Approval questions on the page from which a call is made: by its user, a model or an app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from interlock.calls import Call

if TYPE_CHECKING:
    from interlock.store.approvals import Approval


@runtime_checkable
class AsksOnPage(Protocol):
    """A back channel to a page that shows a call and lets the user decide about it."""

    async def approve(self, call: Call, approval: Approval | None) -> bool | None:
        """Ask the user; return whether the call may run, or None if the user leaves it open.

        Raises:
            ApprovalMissing: No answer came in time, and the approval is not kept.
        """
        ...


async def ask_on_page(call: Call, approval: Approval | None) -> bool | None:
    """Ask on the page that makes a call; return None if no page made it. This is an `AskCaller`."""
    back = call.back
    return await back.approve(call, approval) if isinstance(back, AsksOnPage) else None
