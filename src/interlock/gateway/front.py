"""The interface of a gateway to its own HTTP side."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from interlock.calls import Call

if TYPE_CHECKING:
    from interlock.store.approvals import Approval


class GatewayFront:
    """The endpoint and pages of a gateway. This base class is for a gateway without HTTP.

    Attributes:
        origin: The public listener's origin; "" without a public listener.
    """

    origin = ""

    @property
    def open_sessions(self) -> int:
        return 0

    async def is_ready(self) -> bool | None:
        """Return whether calls can be made; None if no health checks are served."""
        return None

    def page_of(self, approval: Approval) -> str | None:  # noqa: ARG002
        """Return the URL of the page for an approval's call; None if no pages are served."""
        return None

    def decided_at(self, approval: Approval) -> str | None:  # noqa: ARG002
        """Return the URL of a page where approvers decide; None if no pages are served."""
        return None

    async def ask(self, call: Call, approval: Approval | None) -> bool | None:  # noqa: ARG002
        """Ask about a call that does not come from an MCP client; see `AskCaller`."""
        return None

    def end_credentials(self, keys: Collection[str]) -> None:
        """End all work for API keys that are no longer valid, given the keys' ids."""

    def reloaded(self) -> None:
        """Switch to the new configuration; called after a reload."""
