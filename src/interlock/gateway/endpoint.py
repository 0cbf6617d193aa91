"""The HTTP endpoint of a gateway, and the pages beside it."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from interlock import urls
from interlock.config.gateway import Address
from interlock.gateway.admin_app import AdminApp
from interlock.gateway.assembly import Assembly
from interlock.gateway.metrics import Samples
from interlock.server.http.app import HttpApp
from interlock.server.http.guard import LOOPBACK
from interlock.server.http.options import HttpOptions, MakePage
from interlock.server.http.responses import Page
from interlock.server.http.views import Views

PATH = "/mcp"
_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class Endpoint:
    """Serves an assembly over HTTP, whatever its configuration is at the moment.

    Args:
        assembly: The gateway.
        resource: The URL of the endpoint that challenges name.
        address: Where it listens.
        view: The only view to serve; "" for all.

    Attributes:
        app: The application for clients.
        health: The pages about health.
    """

    def __init__(
        self, assembly: Assembly, resource: str, *, address: Address, view: str = ""
    ) -> None:
        self._assembly = assembly
        self._resource = resource
        self._view = view
        self.health = assembly.health(lambda: self.app.is_draining)
        assembly.metrics.gauges["interlock_sessions"] = ("Open sessions.", self._sessions)
        settings = assembly.parts.settings
        pages: dict[str, MakePage] = {"/healthz": self.health.alive, "/readyz": self.health.ready}
        if urls.is_loopback(address.host) and settings.admin is None and not settings.public_url:
            pages["/metrics"] = self.metrics  # behind a proxy, everybody would see it
        self.app = HttpApp(
            assembly.gateway,
            HttpOptions(
                path=PATH,
                auth=assembly.authenticator(resource, view),
                views=self._views(),
                pages=pages,
                hosts=self._hosts(address.host),
                sse=settings.sse,
            ),
        )
        assembly.on_reload = self._reloaded
        assembly.keys.on_end = self._end_credentials

    def admin_app(self, *, is_open: bool) -> AdminApp:
        """Return the application for operators.

        Args:
            is_open: Everybody who can connect is an operator.
        """
        authenticator = None
        if not is_open:
            authenticator = self._assembly.authenticator(self._resource, scope="admin:read")
        return AdminApp(
            {"/healthz": self.health.alive, "/readyz": self.health.ready_in_detail},
            {"/metrics": self.metrics},
            authenticator,
        )

    def _end_credentials(self, keys: Collection[str]) -> None:
        self.app.end_credentials(keys)
        self._assembly.gateway.end_credentials(keys)

    async def metrics(self) -> Page:
        """Return the page `/metrics`."""
        return Page(self._assembly.metrics.text().encode(), kind=_TEXT)

    def _sessions(self) -> Samples:
        return {(): float(len(self.app.sessions))}

    def _views(self) -> Views:
        assembly, resource = self._assembly, self._resource
        names = [self._view] if self._view else assembly.parts.settings.views
        return Views(names, lambda name: assembly.authenticator(f"{resource}/{name}", name))

    def _reloaded(self) -> None:
        self.app.authenticator = self._assembly.authenticator(self._resource, self._view)
        self.app.views = self._views()

    def _hosts(self, listening: str) -> list[str] | None:
        """Return the allowed values of `Host`; None for the default of an endpoint."""
        settings = self._assembly.parts.settings
        if not settings.hosts and not settings.public_url:
            return None
        public = [urlsplit(settings.public_url).netloc] if settings.public_url else []
        return [*LOOPBACK, listening, *settings.hosts, *public]
