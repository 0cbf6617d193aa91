"""Notifications about a running gateway, for audit records, metrics or traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.auth.principal import Principal
from interlock.calls import Call, Caller, Entry, Item
from interlock.context import Context
from interlock.errors import CallRefused
from interlock.server.catalogue import Kind

if TYPE_CHECKING:
    from interlock.auth.gateway_auth import RefusedCredential


class GatewayObserver:
    """Receives notifications about refusals and tasks. This base class ignores all of them.

    Methods must return quickly and must not raise errors.
    """

    def credential_refused(self, refused: RefusedCredential) -> None:
        """Note that a request had no valid credential."""

    def not_admitted(self, principal: Principal | None, error: CallRefused) -> None:
        """Note that a caller may not make any call now."""

    def unknown(self, caller: Caller, kind: Kind, name: str, entry: Entry | Item | None) -> None:
        """Note that a client requested an item that does not exist or that it may not see.

        Args:
            caller: The caller that sent the request.
            kind: The kind of the item.
            name: The name that the client sent; it may be invented.
            entry: The item with this name that other callers see; None if no such item exists.
        """

    def unavailable(
        self, caller: Caller, reason: str, entry: Entry | Item | None, name: str, call: str
    ) -> None:
        """Note that a client called a tool that it may see but that cannot be called now.

        Args:
            caller: The caller that sent the request.
            reason: A code for why the tool cannot be called.
            entry: The tool; None if the gateway does not know it.
            name: The name that the client sent; "" if `entry` is given.
            call: The call's id.
        """

    def answered(
        self, method: str, context: Context, seconds: float, error: BaseException | None
    ) -> None:
        """Note that a request was answered that never became a call.

        Args:
            method: The method; the client may have made it up.
            context: The request.
            seconds: How long that took.
            error: The error that the client gets; None for a result.
        """

    def requested(
        self, server: str, method: str, revision: str, seconds: float, error: BaseException | None
    ) -> None:
        """Note that a server has answered a request other than a call; see `answered`."""

    def call_failed(self, call: Call, error: BaseException) -> None:
        """Note that a call was refused, or failed."""

    def task_changed(self, caller: Caller, entry: Entry, call: str, event: str) -> None:
        """Note that a client answered or cancelled a task, or first read the task's outcome.

        Args:
            caller: The caller that sent the request.
            entry: The tool whose call began the task.
            call: The id of the call that began the task.
            event: The event to record in the audit trail.
        """
