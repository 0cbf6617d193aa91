"""The inspector of `interlock web` with a configuration file, for the browser tests."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from interlock.auth.page_session import PageSessions
from interlock.config import Config, StdioServer
from interlock.layers import Layers
from interlock.layers.asking import asking
from interlock.models.scripted import ScriptedModel
from interlock.policy import LOCAL_USER, Policy
from interlock.store import ConversationStore
from interlock.store.database.database import open_database
from interlock.store.page_sessions import PageSessionStore
from interlock.toolbox import Toolbox
from interlock.transports import InProcessServer
from interlock.web.by_hand import ask_on_page
from interlock.web.chat.engines import AgentEngine
from interlock.web.chat.model_choice import ModelChoice
from interlock.web.inspector.inspection import Host
from interlock.web.inspector.inspector import Inspector
from interlock.web.local_site import make_site
from tests.browser.conftest import OpenPage, served


class Inspected:
    """A served inspector.

    Attributes:
        url: Of the pages.
        inspector: The inspections.
    """

    def __init__(
        self, url: str, inspector: Inspector, sessions: PageSessions, open_page: OpenPage
    ) -> None:
        self.url = url
        self.inspector = inspector
        self._sessions = sessions
        self._open_page = open_page

    async def open(self, path: str = "/inspect", **options: Any) -> Any:
        """Open a page in a session of its own."""
        session = await self._sessions.open(LOCAL_USER)
        cookie = {"name": "interlock-1", "value": session.cookie, "url": self.url}
        stored = {"interlock-key": session.page_key, **options.pop("stored", {})}
        return await self._open_page(self.url + path, cookies=[cookie], stored=stored, **options)


def program(script: Path, **options: Any) -> StdioServer:
    """Return a server that is a Python file."""
    return StdioServer(command=sys.executable, args=(str(script),), **options)


@asynccontextmanager
async def inspecting(
    folder: Path,
    open_page: OpenPage,
    path: Path | None = None,
    **servers: StdioServer | InProcessServer,
) -> AsyncIterator[Inspected]:
    """Serve the inspector of some servers; `path` is their configuration file, if there is one."""
    policy = Policy.for_local_user(Config())
    layers = Layers(policy=policy, approval=asking(ask_on_page))
    toolbox = Toolbox({})
    async with toolbox, AsyncExitStack() as stack:
        database = await open_database(folder / "inspect.db")
        stack.push_async_callback(database.close)
        host = Host(
            servers=lambda: servers,
            layers=lambda: layers,
            policy=lambda: policy,
            toolbox=toolbox,
            checks_pins=lambda: False,
            environ={},
            path=path,
            is_local=True,
        )
        inspector = Inspector(host)
        engine = AgentEngine(
            ModelChoice.of(ScriptedModel([])), toolbox, ConversationStore(database)
        )
        sessions = PageSessions(PageSessionStore(database))
        site = make_site(engine, sessions, 1, inspector=inspector)
        async with served(site) as url:
            try:
                yield Inspected(url, inspector, sessions, open_page)
            finally:
                await open_page.close()
                await inspector.close()
                await site.close()
