"""The inspector in a gateway, under the gateway's policy, limits, approvals and audit trail."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from interlock.auth import Principal
from interlock.auth.key_ring import principal_of
from interlock.gateway.assembly import Assembly
from interlock.layers.asking import AskCaller
from interlock.server.http.http_options import AsgiApp
from interlock.server.http.json_api import Route
from interlock.store.keys import KeyStore
from interlock.web.apps.tickets import TicketSite
from interlock.web.by_hand import ask_on_page
from interlock.web.inspector import inspector_api as inspect_api
from interlock.web.inspector.inspection import Host
from interlock.web.inspector.inspector import Inspector


class GatewayInspector:
    """Inspects a gateway's servers for callers with the scope `admin:write`.

    Attributes:
        tables: The inspector's JSON routes, for `JsonApi`.
        ask: Asks the page's user about calls.
    """

    def __init__(self, assembly: Assembly) -> None:
        keys = KeyStore(assembly.services.database)

        async def owner_of(key: str) -> Principal:
            return principal_of(await keys.get(key))

        host = Host(
            servers=lambda: assembly.parts.servers,
            layers=lambda: assembly.layers,
            policy=lambda: assembly.parts.policy,
            toolbox=assembly.server.toolbox,
            checks_pins=lambda: assembly.parts.settings.lock.mode != "off",
            environ=assembly.services.environ,
            path=assembly.parts.config.path,
            credentials=assembly.services.vault,
            principal_of=owner_of,
            has_gateway=True,
        )
        self._inspector = Inspector(host)
        self.tables: Sequence[tuple[Any, Sequence[Route]]] = [
            (self._inspector, inspect_api.routes("admin:write"))
        ]
        self.ask: AskCaller = ask_on_page

    def site(self, beside: AsgiApp) -> AsgiApp:
        """Return an application that serves inspected apps' documents; `beside` serves the rest."""
        return TicketSite(self._inspector.tickets, beside)

    def end_credentials(self, keys: Collection[str]) -> None:
        self._inspector.end_credentials(keys)

    def drain(self) -> None:
        self._inspector.drain()

    async def close(self) -> None:
        await self._inspector.close()
