"""The HTTP endpoint of a gateway, and the pages beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from interlock import urls
from interlock.auth import Authenticator, Principal
from interlock.auth.authenticator import Headers
from interlock.auth.page_session import PageAuth, PageSessions, SessionCookie
from interlock.config.gateway import Address, ChatPage
from interlock.gateway import connect
from interlock.gateway.admin import login
from interlock.gateway.admin.login import Pages
from interlock.gateway.admin.operations import Operations
from interlock.gateway.admin.routes import ADMIN_ROUTES, USER_ROUTES
from interlock.gateway.admin_app import AdminApp
from interlock.gateway.assembly import Assembly
from interlock.gateway.connect_pages import ConnectPages
from interlock.gateway.metrics import Samples
from interlock.server.http.app import HttpApp
from interlock.server.http.guard import LOOPBACK
from interlock.server.http.json_api import JsonApi, Route
from interlock.server.http.options import AsgiApp, HttpOptions, MakePage
from interlock.server.http.page_guard import PageGuard
from interlock.server.http.responses import Page
from interlock.server.http.views import Views
from interlock.store.page_sessions import PageSessionStore

PATH = "/mcp"
MakePages = Callable[[AsgiApp, PageGuard], AsgiApp]  # of what serves the other paths
_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class Listener(Struct, frozen=True):
    """Where pages are served, and to whom.

    Attributes:
        authenticator: Identifies callers by a session, a key or a token.
        guard: Checks where requests come from.
        hosts: Allowed values of `Host`; see `Guard`.
        public_url: Where browsers reach the pages; "" for where they are served.
    """

    authenticator: Authenticator
    guard: PageGuard
    hosts: Sequence[str] | None
    public_url: str


class Chat(Protocol):
    """The chat beside the endpoint."""

    tables: Sequence[tuple[Any, Sequence[Route]]]

    def site(self, beside: AsgiApp) -> AsgiApp:
        """Return the application; `beside` serves all other paths."""
        ...

    def end_credentials(self, keys: Collection[str]) -> None:
        """End what API keys have begun, by the keys' ids."""
        ...

    def drain(self) -> None:
        """End all turns and sockets, and refuse new ones."""
        ...

    async def close(self) -> None:
        """Wait until all turns and sockets have ended."""
        ...


MakeChat = Callable[[Assembly, ChatPage, Listener], Chat]


class Endpoint:
    """Serves an assembly over HTTP, whatever its configuration is at the moment.

    Args:
        assembly: The gateway.
        resource: The URL of the endpoint that challenges name.
        address: Where it listens.
        view: The only view to serve; "" for all.
        board: Makes the application that serves the operators' pages; None for no pages.
        chat: Makes the chat, which is served if it is configured and all views are served.

    Attributes:
        chat: The chat; None without one.
        app: The application for clients.
        health: The pages about health.
        sessions: The sessions of the pages.
        serves_operators: The application for clients also has the admin API and the metrics,
            because no other machine can reach it, and operators have no listener of their own.
    """

    def __init__(
        self,
        assembly: Assembly,
        resource: str,
        *,
        address: Address,
        view: str = "",
        board: MakePages | None = None,
        chat: MakeChat | None = None,
    ) -> None:
        self.chat: Chat | None = None
        self._make_chat = chat
        self._assembly = assembly
        self._resource = resource
        self._view = view
        self._board = board
        self.health = assembly.health(lambda: self.app.is_draining)
        assembly.metrics.gauges["interlock_sessions"] = ("Open sessions.", self._count)
        settings = assembly.parts.settings
        self.sessions = PageSessions(PageSessionStore(assembly.database), assembly.keys)
        self._operations = Operations(assembly)
        self._follows_reload: list[_Latest] = []
        is_local = urls.is_loopback(address.host) and not settings.public_url
        self.serves_operators = is_local and settings.admin is None
        pages: dict[str, MakePage] = {"/healthz": self.health.alive, "/readyz": self.health.ready}
        if self.serves_operators:
            pages["/metrics"] = self.metrics
        self.app = HttpApp(
            assembly.gateway,
            HttpOptions(
                path=PATH,
                auth=assembly.authenticator(resource, view),
                views=self._views(),
                pages=pages,
                hosts=self._hosts(address.host),
                sse=settings.sse,
                beside=self._beside(address),
            ),
        )
        assembly.on_reload = self._reloaded
        assembly.keys.on_end = self._end_credentials

    def admin_app(self, address: Address) -> AdminApp:
        """Return the application for operators.

        Args:
            address: Where it listens. On loopback, everybody who can connect may see the metrics.
        """
        authenticator = None
        if not urls.is_loopback(address.host):
            authenticator = self._assembly.authenticator(self._resource, scope="admin:read")
        api = self._api(address, is_admin=True)
        return AdminApp(
            {"/healthz": self.health.alive, "/readyz": self.health.ready_in_detail},
            {"/metrics": self.metrics},
            authenticator,
            api if self._board is None else self._board(api, PageGuard()),
        )

    def _beside(self, address: Address) -> AsgiApp:
        """Return what is served on the public listener beside the endpoint."""
        assembly, hosts = self._assembly, self._hosts(address.host)
        assembly.vault.public_url = urls.origin(self._resource)
        pages: AsgiApp = ConnectPages(assembly.logins, self._api(address), hosts)
        if self.chat is not None:
            pages = self.chat.site(pages)
        if self._board is None or not self.serves_operators:
            return pages
        return self._board(pages, PageGuard(hosts))

    def _api(self, address: Address, *, is_admin: bool = False) -> JsonApi:
        """Return the JSON routes of a listener."""
        settings = self._assembly.parts.settings
        public_url = "" if is_admin else settings.public_url
        is_local = urls.is_loopback(address.host) and not public_url.startswith("https:")
        cookie = SessionCookie.of(is_local=is_local, port=address.port, is_admin=is_admin)
        keys = _Latest(lambda: self._assembly.authenticator(self._resource, scope=""))
        self._follows_reload.append(keys)
        pages = Pages(self.sessions, cookie, keys)
        hosts = None if is_admin else self._hosts(address.host)
        on_refused = self._assembly.refused
        tables: list[tuple[Any, Sequence[Route]]] = [
            (pages, login.ROUTES),
            (self._operations, USER_ROUTES),
        ]
        if is_admin or self.serves_operators:
            tables.append((self._operations, ADMIN_ROUTES))
        if not is_admin:
            tables.append((self._assembly.logins, connect.ROUTES))
        guard = PageGuard(hosts, public_url)
        auth = PageAuth(self.sessions, cookie, keys, on_refused=on_refused)
        # A session has the view of its key, so a page would show more than the only view.
        if settings.chat is not None and self._make_chat and not is_admin and not self._view:
            listener = Listener(auth, guard, hosts, public_url)
            self.chat = self._make_chat(self._assembly, settings.chat, listener)
            tables.extend(self.chat.tables)
        return JsonApi(tables, guard, auth)

    def _end_credentials(self, keys: Collection[str]) -> None:
        self.app.end_credentials(keys)
        self._assembly.gateway.end_credentials(keys)
        if self.chat is not None:
            self.chat.end_credentials(keys)

    def drain(self) -> None:
        """End the turns and sockets of the chat; calls of MCP clients may finish."""
        if self.chat is not None:
            self.chat.drain()

    async def close(self) -> None:
        """Wait until the chat has ended."""
        if self.chat is not None:
            await self.chat.close()

    async def metrics(self) -> Page:
        """Return the page `/metrics`."""
        return Page(self._assembly.metrics.text().encode(), kind=_TEXT)

    def _count(self) -> Samples:
        return {(): float(len(self.app.sessions))}

    def _views(self) -> Views:
        assembly, resource = self._assembly, self._resource
        names = [self._view] if self._view else assembly.parts.settings.views
        return Views(names, lambda name: assembly.authenticator(f"{resource}/{name}", name))

    def _reloaded(self) -> None:
        self.app.authenticator = self._assembly.authenticator(self._resource, self._view)
        self.app.views = self._views()
        for each in self._follows_reload:
            each.renew()

    def _hosts(self, listening: str) -> list[str] | None:
        """Return the allowed values of `Host`; None for the default of an endpoint."""
        settings = self._assembly.parts.settings
        if not settings.hosts and not settings.public_url:
            return None
        public = [urlsplit(settings.public_url).netloc] if settings.public_url else []
        return [*LOOPBACK, listening, *settings.hosts, *public]


class _Latest:
    """The authenticator that the present configuration makes.

    Args:
        make: Makes it.
    """

    def __init__(self, make: Callable[[], Authenticator]) -> None:
        self._make = make
        self._made = make()

    def renew(self) -> None:
        """Make it again."""
        self._made = self._make()

    @property
    def challenge(self) -> str:
        """See `Authenticator`."""
        return self._made.challenge

    def published(self, path: str) -> bytes | None:
        """See `Authenticator`."""
        return self._made.published(path)

    async def authenticate(self, headers: Headers, peer: str | None) -> Principal:
        """See `Authenticator`."""
        return await self._made.authenticate(headers, peer)
