"""The chat of `interlock web` with a scripted model and a real server, for the browser tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from interlock import Context, Server
from interlock.auth.page_session import PageSessions
from interlock.config import Config, StdioServer
from interlock.errors import ToolError
from interlock.layers import Layers
from interlock.layers.asking import asking
from interlock.messages import AssistantMessage, ToolCall
from interlock.models.scripted import ScriptedModel
from interlock.policy import LOCAL_USER, Policy
from interlock.store import ConversationStore
from interlock.store.database.database import open_database
from interlock.store.page_sessions import PageSessionStore
from interlock.toolbox import Toolbox
from interlock.types import ImageContent, ToolAnnotations
from interlock.web.by_hand import ask_on_page
from interlock.web.chat.engines import AgentEngine
from interlock.web.chat.model_choice import ModelChoice
from interlock.web.local_site import make_site, may_use
from tests.browser.conftest import OpenPage, served

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
READ = ToolAnnotations(read_only_hint=True)


class Desk:
    """A server with a tool for each thing that a card can show.

    Attributes:
        deleted: The names that `delete` was called with.
    """

    def __init__(self) -> None:
        self.server = server = Server("desk")
        self.deleted: list[str] = []
        self.go_on = asyncio.Event()
        self.waiting = asyncio.Event()
        self.cancelled = asyncio.Event()

        @server.tool(annotations=READ)
        def find(text: str) -> str:
            """Find notes that contain a text."""
            return f"3 notes contain {text}"

        @server.tool
        def delete(name: str) -> str:
            """Delete a note."""
            self.deleted.append(name)
            return f"deleted {name}"

        @server.tool(annotations=READ)
        def broken() -> str:
            """Fail."""
            raise ToolError("the disk is full")

        @server.tool(annotations=READ)
        async def wait(context: Context) -> str:
            """Wait until the test goes on."""
            context.progress(31, 48, "Reading 31 of 48 lines")
            self.waiting.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            return "read"

        @server.tool(annotations=READ)
        def people() -> list[dict[str, Any]]:
            """List people."""
            return [{"name": "Ann", "orders": 42}, {"name": "=Bob", "orders": 7}]

        @server.tool(annotations=READ)
        def rows(count: int) -> list[dict[str, Any]]:
            """List many rows."""
            return [{"row": n, "text": "x" * 90} for n in range(count)]

        @server.tool(annotations=READ)
        def picture() -> ImageContent:
            """Draw something."""
            return ImageContent(PIXEL, "image/png")

        @server.tool(annotations=READ)
        async def ask(context: Context) -> str:
            """Ask the person for a colour."""
            schema = {
                "type": "object",
                "properties": {
                    "colour": {"type": "string", "enum": ["red", "blue"], "title": "Colour"},
                    "count": {"type": "integer", "minimum": 1, "title": "How many"},
                },
                "required": ["colour"],
            }
            answer = await context.elicit("Which colour?", schema)
            return f"{answer.action} {answer.content}"


def call(tool: str, id: str = "call_1", /, **arguments: Any) -> ToolCall:
    return ToolCall(id, f"desk__{tool}", arguments)


def calls(*made: ToolCall, text: str = "") -> AssistantMessage:
    return AssistantMessage(text, made)


class Chat:
    """A served chat.

    Attributes:
        url: Of the page.
        store: Its conversations.
        desk: The server behind its tools.
        model: What it was asked.
    """

    def __init__(
        self,
        url: str,
        store: ConversationStore,
        sessions: PageSessions,
        desk: Desk,
        model: ScriptedModel,
        open_page: OpenPage,
        site: Any,
    ) -> None:
        self.url = url
        self.store = store
        self.desk = desk
        self.model = model
        self.sessions = sessions
        self.site = site
        self._open_page = open_page

    async def link(self) -> str:
        return f"{self.url}/#{await self.sessions.issue_code(LOCAL_USER)}"

    async def open(self, path: str = "/", **options: Any) -> Any:
        """Open a page in a session of its own."""
        session = await self.sessions.open(LOCAL_USER)
        cookie = {"name": "interlock-1", "value": session.cookie, "url": self.url}
        stored = {"interlock-key": session.page_key, **options.pop("stored", {})}
        return await self._open_page(self.url + path, cookies=[cookie], stored=stored, **options)

    async def ask(self, text: str = "go", **options: Any) -> Any:
        """Open a page and ask something."""
        page = await self.open(**options)
        await page.get_by_label("Message", exact=True).fill(text)
        await page.keyboard.press("Enter")
        return page


@asynccontextmanager
async def chat(
    folder: Path,
    open_page: OpenPage,
    *script: Any,
    models: tuple[str, ...] = (),
    kind: Callable[[Any], ScriptedModel] = ScriptedModel,
    servers: Mapping[str, Server | StdioServer] | None = None,
    extend: Callable[[Server], None] = lambda _: None,
) -> AsyncIterator[Chat]:
    """Serve a chat whose model follows a script.

    Its server is a `Desk`, which `extend` may add to, unless others are given.
    """
    desk, model = Desk(), kind(script)
    extend(desk.server)
    policy = Policy.for_local_user(Config())
    database = await open_database(folder / "chat.db")
    layers = Layers(policy=policy, approval=asking(ask_on_page))
    given: dict[str, Any] = {"desk": desk.server} if servers is None else {**servers}
    toolbox = Toolbox(given, around=layers, forwards=True, elicitation=_never)
    choice = ModelChoice.of(model)
    if models:
        choice.names = ("scripted", *models)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(database.close)
        await stack.enter_async_context(toolbox)
        engine = AgentEngine(
            *(choice, toolbox, ConversationStore(database)),
            may_use=may_use(policy),
            asks_people=True,
            built_in=True,
        )
        sessions = PageSessions(PageSessionStore(database))
        site = make_site(engine, sessions, 1)
        async with served(site) as url:
            try:
                yield Chat(url, engine.store, sessions, desk, model, open_page, site)
            finally:
                await open_page.close()  # a page would go on looking for its server
                desk.go_on.set()
                await site.close()


async def _never(_: object) -> Any:
    raise AssertionError("asked outside of a call")
