"""The gateway's HTTP endpoint, with the pages that share its listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from interlock.aio import in_thread
from interlock.auth import Authenticator
from interlock.auth.page_session import PageAuth, PageSessions, SessionCookie
from interlock.calls import Call
from interlock.config.gateway import Address, ChatPage, GatewaySettings
from interlock.gateway.admin import login
from interlock.gateway.admin.login import Pages
from interlock.gateway.admin.operations import Operations
from interlock.gateway.admin.routes import ADMIN_ROUTES, USER_ROUTES
from interlock.gateway.assembly import Assembly
from interlock.gateway.front import GatewayFront
from interlock.gateway.health import health_of
from interlock.gateway.logins import connect
from interlock.gateway.logins.connect_pages import ConnectPages
from interlock.gateway.logins.login_pages import LoginPages
from interlock.gateway.logins.people import with_rights_now
from interlock.gateway.serving.admin_app import AdminApp
from interlock.gateway.serving.view_auth import LatestAuth, in_view
from interlock.layers.asking import AskCaller
from interlock.layers.exposition import Family, text_of
from interlock.server.http.app import HttpApp
from interlock.server.http.guard import LOOPBACK, Guard
from interlock.server.http.http_options import AsgiApp, HttpOptions, MakePage
from interlock.server.http.json_api import JsonApi, Route
from interlock.server.http.page_guard import PageGuard
from interlock.server.http.responses import Page
from interlock.server.http.views import Views
from interlock.store.approvals import Approval
from interlock.store.page_sessions import PageSessionStore
from interlock.text import urls

PATH = "/mcp"
HTTP_PORT = 80
_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


class Listener(Struct, frozen=True):
    """The settings of a listener that serves pages: its checks and its public address.

    Attributes:
        authenticator: Authenticates callers by a session, a key or a token.
        guard: Checks the origin of requests.
        hosts: The allowed values of the `Host` header; see `Guard`.
        public_url: The pages' URL for browsers; "" if it is the listener's address.
    """

    authenticator: Authenticator
    guard: PageGuard
    hosts: Sequence[str] | None
    public_url: str


class MakePages(Protocol):
    """Makes the application that serves the operators' pages."""

    def __call__(self, beside: AsgiApp, guard: PageGuard, *, has_chat: bool = False) -> AsgiApp:
        """Return the application that serves the pages.

        Args:
            beside: The application that serves all other paths.
            guard: Checks the origin of requests.
            has_chat: Whether `beside` serves the chat.
        """
        ...


class ServedPages(Protocol):
    """Pages of users that share a listener of the gateway: the chat or the inspector."""

    tables: Sequence[tuple[Any, Sequence[Route]]]
    ask: AskCaller

    def site(self, beside: AsgiApp) -> AsgiApp:
        """Return an application that serves the pages, and passes all other paths to `beside`."""
        ...

    def end_credentials(self, keys: Collection[str]) -> None:
        """End what API keys have begun, given the keys' ids."""
        ...

    def drain(self) -> None:
        """End all turns, sockets and inspections, and refuse new ones."""
        ...

    async def close(self) -> None:
        """Wait until all of them have ended."""
        ...


MakeChat = Callable[[Assembly, ChatPage, Listener], ServedPages]
MakeInspector = Callable[[Assembly], ServedPages]


class Endpoint(GatewayFront):
    """Serves a gateway over HTTP, always with its current configuration.

    Args:
        assembly: The gateway.
        resource: The endpoint's URL, which is stated in authentication challenges.
        address: The address to listen on.
        view: The only view to serve; "" for all views.
        board: Makes the application that serves the operators' pages; None for no pages.
        chat: Makes the chat, which is served if it is configured.
        inspector: Makes the inspector, which is served with the admin API.

    Attributes:
        chat: The chat; None if it is not served.
        app: The application for clients.
        health: The health checks.
        sessions: The page sessions.
        families: Returns the metrics to show: those of this process, or of all workers.
        is_leaving: Whether the gateway is not ready, because it will be drained soon.
        serves_operators: Whether the application for clients also serves the admin API and the
            metrics. It does if only this machine can reach it and operators have no listener of
            their own.
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
        inspector: MakeInspector | None = None,
    ) -> None:
        self.chat: ServedPages | None = None
        self._inspector: ServedPages | None = None
        self._make_inspector = inspector
        self._make_chat = chat
        self._assembly = assembly
        self.families: Callable[[], Awaitable[Sequence[Family]]] = assembly.families
        self._services, self._callers = assembly.services, assembly.services.callers
        self._resource = resource
        self.origin = urls.origin(resource)
        self._admin_origin = ""
        self._view = view
        self._board = board
        self.is_leaving = False
        self.health = health_of(assembly, lambda: self.is_leaving or self.app.is_draining)
        settings = assembly.parts.settings
        self.sessions = PageSessions(
            PageSessionStore(self._services.database),
            self._services.keys,
            with_rights=lambda user: with_rights_now(self.settings.issuers, user),
            keep=lambda: self._assembly.parts.settings.keep.sessions,
        )
        self._operations = Operations(assembly)
        self._follows_reload: list[LatestAuth] = []
        is_public = bool(settings.public_url or settings.proxies)
        is_local = urls.is_loopback(address.host) and not is_public
        self.serves_operators = is_local and settings.admin is None
        durable = self._services.sessions
        self.app = HttpApp(assembly.server, self._options(address), durable)
        if durable is not None:
            durable.on_ended = self.app.sessions.end_named
        assembly.serve_by(self)

    def _options(self, address: Address) -> HttpOptions:
        settings = self._assembly.parts.settings
        pages: dict[str, MakePage] = {"/healthz": self.health.alive, "/readyz": self.health.ready}
        return HttpOptions(
            path=PATH,
            auth=self._callers.authenticator(self._resource, self._view),
            views=self._views(),
            pages=pages,
            hosts=self._hosts(address.host),
            cors=settings.cors,
            sse=settings.sse,
            caller_headers=settings.headers,
            beside=self._with_metrics(self._beside(address), address),
        )

    def admin_app(self, address: Address) -> AdminApp:
        """Return the application for operators.

        Args:
            address: The address to listen on. On loopback, metrics need no authentication.
        """
        api = self._api(address, is_admin=True)
        if self._board is not None:
            self._admin_origin = f"http://{address}"
        return AdminApp(
            {"/healthz": self.health.alive, "/readyz": self.health.ready_in_detail},
            {"/metrics": self.metrics},
            self._operators(),
            api if self._board is None else self._board(api, PageGuard()),
            is_local=urls.is_loopback(address.host),
        )

    def _operators(self) -> Authenticator:
        auth = LatestAuth(lambda: self._callers.authenticator(self._resource, scope="admin:read"))
        self._follows_reload.append(auth)
        return auth

    def _with_metrics(self, beside: AsgiApp, address: Address) -> AsgiApp:
        """Add the metrics to the public listener's other paths, if operators use this listener."""
        if not self.serves_operators:
            return beside
        guard = Guard(self._hosts(address.host), (), ())
        pages = {"/metrics": self.metrics}
        return AdminApp({}, pages, self._operators(), beside, is_local=True, guard=guard)

    def _beside(self, address: Address) -> AsgiApp:
        """Return the application that serves the public listener's other paths."""
        hosts = self._hosts(address.host)
        pages: AsgiApp = ConnectPages(self._services.logins, self._api(address), hosts)
        if (door := self._services.front_door) is not None:
            pages = door.app(pages, hosts)
        has_board = self._board is not None and self.serves_operators
        self._has_pages = self.chat is not None or has_board
        if self.chat is not None:
            pages = self.chat.site(pages)
        if self._board is None or not has_board:
            return pages
        return self._board(pages, PageGuard(hosts), has_chat=self.chat is not None)

    @property
    def settings(self) -> GatewaySettings:
        """The current settings."""
        return self._assembly.parts.settings

    # Methods of `GatewayFront`

    @property
    def open_sessions(self) -> int:
        return len(self.app.sessions)

    async def is_ready(self) -> bool:
        return await self.health.is_ready()

    def page_of(self, approval: Approval) -> str | None:
        """Return the URL where users decide about their own call; None if no page is served."""
        return f"{self.origin}/calls/{approval.call}" if self._has_pages else None

    def decided_at(self, approval: Approval) -> str | None:
        """Return the URL of a page where approvers decide; None if no pages are served."""
        if self._has_pages or not self._admin_origin:
            return self.page_of(approval)
        return f"{self._admin_origin}/calls/{approval.call}"

    async def ask(self, call: Call, approval: Approval | None) -> bool | None:
        """Ask the user on the page that made the call."""
        page = self.chat or self._inspector
        return None if page is None else await page.ask(call, approval)

    def end_credentials(self, keys: Collection[str]) -> None:
        self.app.end_credentials(keys)
        if self.chat is not None:
            self.chat.end_credentials(keys)
        if self._inspector is not None:
            self._inspector.end_credentials(keys)

    def reloaded(self) -> None:
        own = self._callers.authenticator(self._resource, self._view)
        self.app.admit_by(own, self._views())
        for each in self._follows_reload:
            each.renew()

    # The applications

    def _api(self, address: Address, *, is_admin: bool = False) -> AsgiApp:
        """Return the JSON routes of a listener, including the login to its pages."""
        settings = self._assembly.parts.settings
        public_url = "" if is_admin else settings.public_url
        is_local = urls.is_loopback(address.host) and not public_url.startswith("https:")
        # Behind a proxy, all gateways must use the same cookie name.
        port = (urlsplit(public_url).port or HTTP_PORT) if public_url else address.port
        cookie = SessionCookie.of(is_local=is_local, port=port, is_admin=is_admin)
        keys = LatestAuth(lambda: self._callers.authenticator(self._resource, scope=""))
        self._follows_reload.append(keys)
        pages = Pages(self.sessions, cookie, keys, self._callers.login_issuers)
        hosts = None if is_admin else self._hosts(address.host)
        on_refused = self._services.recorder.credential_refused
        door = self._services.front_door
        tables: list[tuple[Any, Sequence[Route]]] = [
            (pages, login.ROUTES),
            (self._operations, USER_ROUTES),
        ]
        if is_admin or self.serves_operators:
            tables.append((self._operations, ADMIN_ROUTES))
        if not is_admin:
            tables.append((self._services.logins, connect.ROUTES))
            if door is not None:
                tables.append(door.routes)
        guard = PageGuard(hosts, public_url)
        auth: Authenticator = PageAuth(self.sessions, cookie, keys, on_refused=on_refused)
        if self._view and not is_admin:
            auth = in_view(auth, self._view)
        if settings.chat is not None and self._make_chat and not is_admin:
            listener = Listener(auth, guard, hosts, public_url)
            self.chat = self._make_chat(self._assembly, settings.chat, listener)
            tables.extend(self.chat.tables)
        inspects = self._make_inspector is not None and (is_admin or self.serves_operators)
        if self._make_inspector is not None and inspects:
            self._inspector = self._make_inspector(self._assembly)
            tables.extend(self._inspector.tables)
        logins = LoginPages(
            JsonApi(tables, guard, auth),
            self.sessions,
            cookie,
            self._services.secret,
            self._callers.login_issuers,
            hosts=hosts,
            public_url=public_url,
            on_refused=on_refused,
            on_signed_in=None if door is None else door.signed_in,
        )
        return self._inspector.site(logins) if inspects and self._inspector else logins

    def drain(self) -> None:
        """End chats and inspections; MCP clients may finish their calls."""
        if self.chat is not None:
            self.chat.drain()
        if self._inspector is not None:
            self._inspector.drain()

    async def close(self) -> None:
        """Wait until the chat and all inspections have ended."""
        if self.chat is not None:
            await self.chat.close()
        if self._inspector is not None:
            await self._inspector.close()

    async def metrics(self) -> Page:
        families = await self.families()
        return Page((await in_thread(lambda: text_of(families))).encode(), kind=_TEXT)

    def _views(self) -> Views:
        resource, callers = self._resource, self._callers
        names = [self._view] if self._view else self._assembly.parts.settings.views
        return Views(names, lambda name: callers.authenticator(f"{resource}/{name}", name))

    def _hosts(self, listening: str) -> list[str] | None:
        """Return the allowed values of the `Host` header; None for the endpoint's default."""
        settings = self._assembly.parts.settings
        if not settings.hosts and not settings.public_url:
            return None
        public = [urlsplit(settings.public_url).netloc] if settings.public_url else []
        return [*LOOPBACK, listening, *settings.hosts, *public]
