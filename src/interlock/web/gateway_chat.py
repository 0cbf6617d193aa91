"""The chat on the public listener of a gateway with the member `gateway.chat`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from interlock.auth import Principal
from interlock.auth.authenticator import CheckedAuth
from interlock.config.gateway import ChatPage
from interlock.gateway.assembly import Assembly
from interlock.gateway.serving.endpoint import Listener
from interlock.layers.asking import AskCaller
from interlock.models import Model, choosing
from interlock.server.http.http_options import AsgiApp
from interlock.server.http.json_api import Route, check_scope
from interlock.store import ConversationStore
from interlock.store.chat.apps import ChatAppStore
from interlock.store.chat.space import ChatSpace
from interlock.text.urls import origin
from interlock.web.apps.apps import ROUTES as APP_ROUTES
from interlock.web.apps.apps import Apps
from interlock.web.apps.origin import AppsOrigin
from interlock.web.by_hand import ask_on_page
from interlock.web.chat import chat_api
from interlock.web.chat.app import ChatApp
from interlock.web.chat.chat_api import ChatApiContext
from interlock.web.chat.engines import AgentEngine, agents_of
from interlock.web.chat.measured_model import MeasuredModel
from interlock.web.chat.model_choice import ModelChoice
from interlock.web.chat.turn import TurnLimits
from interlock.web.site import Site


class GatewayChat:
    """Serves the chat with a gateway's tools; each user has the tools that the policy allows.

    Attributes:
        tables: The chat's JSON routes, for `JsonApi`.
        ask: Asks the page's user about calls.

    Raises:
        MissingExtra: The configured engine needs LangGraph, which is not installed.
    """

    def __init__(self, assembly: Assembly, settings: ChatPage, listener: Listener) -> None:
        self._listener = listener
        services = assembly.services

        async def measured(name: str) -> Model:
            return MeasuredModel(await choosing.choose(name), services.metrics.models)

        self._models = ModelChoice(settings.models, measured)
        space = ChatSpace(
            lambda: settings.quotas, lambda: services.metrics.note_refusal("storage_full")
        )
        self._users = CheckedAuth(listener.authenticator, _check_tools)
        engine = AgentEngine(
            self._models,
            assembly.server.toolbox,
            ConversationStore(services.database, space=space),
            may_use=lambda *each: assembly.parts.policy.decide(*each).effect != "deny",
            system=settings.system,
            asks_people=True,
            agent=agents_of(settings.engine, settings.tool_search),
        )
        self._chat = ChatApp(
            engine,
            self._users,
            limits=_limits(settings),
            hosts=listener.hosts,
            origins=[origin(listener.public_url)] if listener.public_url else [],
        )
        self._context = ChatApiContext(engine, self._chat.turns, results=assembly.services.results)
        apps_origin = None
        if settings.apps_origin:
            page = origin(listener.public_url) if listener.public_url else ""
            apps_origin = AppsOrigin.of(settings.apps_origin, page)
        store = ChatAppStore(assembly.services.database)
        self._apps = Apps(self._context, store, origin=apps_origin)
        self.tables: Sequence[tuple[Any, Sequence[Route]]] = [
            (self._context, chat_api.ROUTES),
            (self._apps, APP_ROUTES),
        ]
        self._site: Site | None = None
        self._closing: asyncio.Task[None] | None = None
        self.ask: AskCaller = ask_on_page

    def site(self, beside: AsgiApp) -> AsgiApp:
        guard = self._listener.guard
        self._site = Site(self._chat, self._context, beside, guard, self._users, apps=self._apps)
        return self._site

    def end_credentials(self, keys: Collection[str]) -> None:
        self._chat.turns.end_credentials(keys)

    def drain(self) -> None:
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())

    async def close(self) -> None:
        self.drain()
        if self._closing is not None:
            await self._closing

    async def _close(self) -> None:
        if self._site is not None:
            await self._site.close()
        await self._models.close()


def _check_tools(principal: Principal) -> Principal:
    """Refuse a caller that may not use tools."""
    check_scope(principal, "mcp:")
    return principal


def _limits(settings: ChatPage) -> TurnLimits:
    limits = settings.limits
    return TurnLimits(
        turn=limits.turn,
        turns=limits.turns,
        messages=limits.messages.calls,
        period=limits.messages.seconds,
    )
