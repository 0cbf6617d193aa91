"""The HTTP side of a gateway, as the gateway uses it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from interlock.calls import Call

if TYPE_CHECKING:
    from interlock.store.approvals import Approval


class GatewayFront:
    """The endpoint and the pages of a gateway. This one serves nothing.

    Attributes:
        origin: The origin of the public listener; "" without one.
    """

    origin = ""

    @property
    def open_sessions(self) -> int:
        """How many sessions of clients are open."""
        return 0

    def page_of(self, approval: Approval) -> str | None:  # noqa: ARG002
        """Return the address of the page about a call; None without pages."""
        return None

    async def ask(self, call: Call, approval: Approval | None) -> bool | None:  # noqa: ARG002
        """Ask about a call that no MCP client makes; see `AskCaller`."""
        return None

    def end_credentials(self, keys: Collection[str]) -> None:
        """End what API keys have begun that are not valid any more, by the keys' ids."""

    def reloaded(self) -> None:
        """Use the configuration that has just replaced another one."""
