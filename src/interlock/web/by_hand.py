"""Questions on a page about a call that its user, a model or an app makes there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from interlock.calls import Call

if TYPE_CHECKING:
    from interlock.store.approvals import Approval


@runtime_checkable
class AsksOnPage(Protocol):
    """A way back to a page that shows a call and lets its person decide."""

    async def approve(self, call: Call, approval: Approval | None) -> bool | None:
        """Return whether a call may run; None if the question is left open.

        Raises:
            ApprovalMissing: No answer came in time, and the approval is not kept.
        """
        ...


async def ask_on_page(call: Call, approval: Approval | None) -> bool | None:
    """Ask on the page that makes a call, as an `AskCaller`; return None if no page is behind it."""
    back = call.back
    return await back.approve(call, approval) if isinstance(back, AsksOnPage) else None
