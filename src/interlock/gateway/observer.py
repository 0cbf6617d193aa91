"""Notifications of a running gateway, for a record, for metrics or for traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.auth.principal import Principal
from interlock.calls import Call, Caller, Entry, Item
from interlock.errors import CallRefused
from interlock.server.catalogue import Kind

if TYPE_CHECKING:
    from interlock.auth.gateway_auth import RefusedCredential


class GatewayObserver:
    """An observer of refusals and tasks. This base class ignores all notifications.

    Methods must return at once and raise nothing.
    """

    def credential_refused(self, refused: RefusedCredential) -> None:
        """Note that a request had no valid credential."""

    def not_admitted(self, principal: Principal | None, error: CallRefused) -> None:
        """Note that a caller may make no call now, whatever the call is."""

    def unknown(self, caller: Caller, kind: Kind, name: str, entry: Entry | Item | None) -> None:
        """Note that a client named an item that does not exist, or that it may not see.

        Args:
            caller: The client.
            kind: The kind of the item.
            name: The name that the client sent; it may be invented.
            entry: The item of this name that other callers see; None if it does not exist.
        """

    def unavailable(
        self, caller: Caller, reason: str, entry: Entry | Item | None, name: str, call: str
    ) -> None:
        """Note that a client called a tool that it sees, but that cannot be called now.

        Args:
            caller: The client.
            reason: The code of the reason.
            entry: The tool; None if its name may be invented.
            name: The name that the client sent; "" with an `entry`.
            call: The id of the call.
        """

    def call_failed(self, call: Call, error: BaseException) -> None:
        """Note that a call was refused or has failed."""

    def task_changed(self, caller: Caller, entry: Entry, call: str, event: str) -> None:
        """Note that a client answered or cancelled a task, or read that it has ended.

        Args:
            caller: The client.
            entry: The tool whose call began the task.
            call: The id of that call.
            event: The event that the audit trail records.
        """
