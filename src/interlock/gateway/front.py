"""The HTTP side of a gateway, as the gateway uses it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from interlock.calls import Call

if TYPE_CHECKING:
    from interlock.store.approvals import Approval


class GatewayFront:
    """The endpoint and the pages of a gateway. This base class serves nothing.

    Attributes:
        origin: The origin of the public listener; "" without one.
    """

    origin = ""

    @property
    def open_sessions(self) -> int:
        return 0

    def page_of(self, approval: Approval) -> str | None:  # noqa: ARG002
        """Return the address of the page about a call; None without pages."""
        return None

    async def ask(self, call: Call, approval: Approval | None) -> bool | None:  # noqa: ARG002
        """Ask about a call that no MCP client makes; see `AskCaller`."""
        return None

    def end_credentials(self, keys: Collection[str]) -> None:
        """End all work of API keys that are no longer valid, by the keys' ids."""

    def reloaded(self) -> None:
        """Switch to the new configuration, after a reload."""
