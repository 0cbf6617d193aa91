"""The chat page for the person at this machine: `interlock web`."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NoReturn

from interlock import __version__
from interlock.auth.page_session import PageAuth, PageSessions, SessionCookie
from interlock.config import Config
from interlock.config.gateway import Address
from interlock.config.gateway_reading import resolve
from interlock.config.settings import Settings
from interlock.errors import AskRefused, ConfigError
from interlock.gateway.admin import login
from interlock.gateway.admin.login import Pages
from interlock.gateway.local_calls import LocalCalls, local_calls
from interlock.layers.results import ResultBudget
from interlock.policy import LOCAL_USER, Policy
from interlock.server.http.json_api import ApiRequest, JsonApi, Route
from interlock.server.http.listening import bound, listen
from interlock.server.http.page_guard import PageGuard
from interlock.server.http.responses import Receive, Scope, Send
from interlock.server.http.serve import UvicornServer
from interlock.store import ConversationStore
from interlock.store.chat.apps import ChatAppStore
from interlock.store.database.database import open_database
from interlock.store.page_sessions import PageSessionStore
from interlock.toolbox import ServerStatus, Toolbox
from interlock.types import JsonObject
from interlock.web.app_documents import SUPPORT
from interlock.web.apps.apps import ROUTES as APP_ROUTES
from interlock.web.apps.apps import Apps
from interlock.web.by_hand import ask_on_page
from interlock.web.chat import chat_api
from interlock.web.chat.app import ChatApp
from interlock.web.chat.chat_api import ChatApiContext
from interlock.web.chat.engines import AgentEngine, agents_of
from interlock.web.chat.model_choice import ModelChoice, OpenModel
from interlock.web.chat.turn_toolbox import MayUse
from interlock.web.inspector import inspector_api as inspect_api
from interlock.web.inspector.inspection import Host
from interlock.web.inspector.inspector import Inspector
from interlock.web.site import Site

IDLE_TIMEOUT = 3.0  # seconds; if no server becomes ready for so long, the page is served


class LocalSite:
    """The chat's site while it is being served on this machine."""

    def __init__(self, app: LocalApp, sessions: PageSessions, url: str, toolbox: Toolbox) -> None:
        self.url = url
        self._app = app
        self._sessions = sessions
        self._toolbox = toolbox

    @property
    def status(self) -> Iterable[ServerStatus]:
        return self._toolbox.status.values()

    async def link(self, path: str = "") -> str:
        """Return a URL that opens a page once, within the next ten minutes."""
        return f"{self.url}{path}#{await self._sessions.issue_code(LOCAL_USER)}"

    async def served(self) -> None:
        await self._app.ended.wait()


class LocalApp:
    """The ASGI application that a `LocalSite` serves."""

    path = "/"
    under_way = 0

    def __init__(self, site: Site, inspector: Inspector | None = None) -> None:
        self._inspector = inspector
        self.dropped: Counter[str] = Counter()
        self.ended = asyncio.Event()
        self._site = site
        self._closing: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._site(scope, receive, send)
            return
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})

    def drain(self) -> None:
        self.end_streams()

    def end_streams(self) -> None:
        if self._inspector is not None:
            self._inspector.drain()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._site.close())


async def _me(_context: None, request: ApiRequest) -> JsonObject:
    principal = request.principal or LOCAL_USER
    return {"user": principal.id, "scopes": sorted(principal.scopes), "version": __version__}


_ME = (Route("GET", "/me", "any", _me, "who is signed in"),)


@asynccontextmanager
async def open_local_site(
    config: Config | None,
    models: Sequence[str],
    port: int,
    *,
    opens: OpenModel | None = None,
    settings: Settings | None = None,
    engine: str = "agent",
    on_stderr: Callable[[str], object] = lambda _: None,
) -> AsyncIterator[LocalSite]:
    """Start the servers, and serve the chat on the loopback address.

    Args:
        config: The servers and their policy; None for a chat without tools.
        models, opens, settings: See `ModelChoice`.
        port: The port; 0 picks a free one.
        engine: The name of the engine that answers; see `agents_of`.
        on_stderr: Called with what an inspected server's program writes to stderr.

    Raises:
        InterlockError: The port is taken, or the database or configuration cannot be used.
    """
    loaded = config or Config()
    built_in = loaded.gateway is None
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(bound(Address("127.0.0.1", port)))
        database = await open_database(resolve(loaded, os.environ).database or None)
        stack.push_async_callback(database.close)
        choice = ModelChoice(models, opens, settings)
        stack.push_async_callback(choice.close)
        policy = Policy.for_local_user(loaded)
        calls = await stack.enter_async_context(local_calls(loaded, ask_on_page))
        toolbox = await _opened_toolbox(stack, calls)
        answering = AgentEngine(
            *(choice, toolbox, ConversationStore(database)),
            may_use=may_use(policy),
            asks_people=True,
            built_in=built_in,
            agent=agents_of(engine, (settings or Settings()).tool_search),
        )
        port = listener.getsockname()[1]
        sessions = PageSessions(PageSessionStore(database))
        inspector = _inspector_of(loaded, calls, policy, toolbox, on_stderr)
        stack.push_async_callback(inspector.close)
        site = make_site(
            answering, sessions, port, built_in=built_in, results=calls.results, inspector=inspector
        )
        app = LocalApp(site, inspector)
        async with _serving(app, listener):
            yield LocalSite(app, sessions, f"http://127.0.0.1:{port}/", toolbox)


async def _opened_toolbox(stack: AsyncExitStack, calls: LocalCalls) -> Toolbox:
    toolbox = Toolbox(
        calls.servers,
        around=calls.layers,
        results=calls.results,
        pins=calls.pins,
        forwards=True,
        elicitation=_refuse,
        extensions=SUPPORT,
        keeps_trying=True,
    )
    stack.push_async_callback(toolbox.close)
    await toolbox.open(idle_timeout=IDLE_TIMEOUT)
    return toolbox


@asynccontextmanager
async def _serving(app: LocalApp, listener: socket.socket) -> AsyncIterator[None]:
    host, port = listener.getsockname()
    server = UvicornServer(app, host, port, handles_signals=False, takes_sockets=True)
    listen(listener)
    serving = asyncio.create_task(server.serve([listener]))
    serving.add_done_callback(lambda _: app.ended.set())
    try:
        yield
    finally:
        server.end()
        await serving


def _inspector_of(
    config: Config,
    calls: LocalCalls,
    policy: Policy,
    toolbox: Toolbox,
    on_stderr: Callable[[str], object],
) -> Inspector:
    return Inspector(
        Host(
            servers=lambda: calls.servers,
            layers=lambda: calls.layers,
            policy=lambda: policy,
            toolbox=toolbox,
            checks_pins=lambda: calls.pins is not None,
            environ=os.environ,
            path=config.path,
            is_local=True,
            has_gateway=config.gateway is not None,
            on_stderr=on_stderr,
        )
    )


def make_site(
    engine: AgentEngine,
    sessions: PageSessions,
    port: int,
    *,
    built_in: bool = True,
    results: ResultBudget | None = None,
    inspector: Inspector | None = None,
) -> Site:
    """Return the chat's site for the local user.

    Args:
        engine: The engine that answers.
        sessions: The page's login sessions.
        port: The port at which the site is served.
        built_in: Whether the built-in rules apply, because the file has no member `gateway`.
        results: Reads kept results; None if results are not kept.
        inspector: The inspector; None serves no inspector.
    """
    cookie = SessionCookie.of(is_local=True, port=port)
    auth, guard = PageAuth(sessions, cookie), PageGuard()
    chat = ChatApp(engine, auth, is_local=True)
    context = ChatApiContext(engine, chat.turns, is_local=True, results=results)
    tickets = inspector.tickets if inspector is not None else None
    apps = Apps(context, ChatAppStore(engine.store.database), tickets, built_in=built_in)
    pages = Pages(sessions, cookie)
    tables: list[tuple[Any, Sequence[Route]]] = [
        (pages, login.ROUTES),
        (None, _ME),
        (context, chat_api.LOCAL_ROUTES),
        (apps, APP_ROUTES),
    ]
    features = {"local": True, "builtIn": built_in}
    if inspector is not None:
        tables.append((inspector, inspect_api.routes("any")))
        features["inspect"] = True
    return Site(
        chat, context, JsonApi(tables, guard, auth), guard, auth, features=features, apps=apps
    )


def may_use(policy: Policy) -> MayUse:
    """Return a function that decides by a policy whether a caller may use a tool."""
    return lambda caller, entry: policy.decide(caller, entry).effect != "deny"


async def link_to(port: int) -> str:
    """Get a one-time URL for the page from another process, which serves the chat at a port.

    Raises:
        ConfigError: No process serves a chat at the port.
    """
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        raise ConfigError(
            f"nothing is served at 127.0.0.1:{port}; start it: interlock web --port {port}"
        ) from None
    writer.close()
    database = await open_database(None)
    try:
        code = await PageSessions(PageSessionStore(database)).issue_code(LOCAL_USER)
    finally:
        await database.close()
    return f"http://127.0.0.1:{port}/#{code}"


async def _refuse(_: object) -> NoReturn:
    raise AskRefused(
        "the server sent a request outside of a call, so no page can answer it", "cannot_ask"
    )
