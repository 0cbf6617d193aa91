"""A chat that is served: the agent or a graph, with tools, over uvicorn."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from langgraph.checkpoint.memory import InMemorySaver
from websockets.asyncio.client import ClientConnection, connect

from interlock.auth.principal import Principal
from interlock.errors import AuthRequired
from interlock.langgraph import chat_graph
from interlock.langgraph.agent import GraphAgent, agent_graph
from interlock.messages import AssistantMessage, ToolCall
from interlock.models.scripted import ScriptedModel
from interlock.store import ConversationStore
from interlock.toolbox import Toolbox
from interlock.web.chat.app import ChatApp
from interlock.web.chat.engines import AgentEngine
from interlock.web.chat.graph_engine import GraphEngine
from tests.support.chat_model import ScriptedChatModel, calls
from tests.support.scripted_server import Json, text
from tests.support.toolboxes import box, described, kb

ENGINES = ["agent", "graph", pytest.param("graph_agent", marks=pytest.mark.product)]
Event = dict[str, Any]


class Keys:
    """Tokens of users, which can be revoked."""

    challenge = "Bearer"

    def __init__(self) -> None:
        self.users = {"ann-token": "ann", "bob-token": "bob"}

    def published(self, path: str) -> bytes | None:
        return None

    async def authenticate(self, headers: Any, peer: str | None) -> Principal:
        value = dict(headers).get(b"authorization", b"").decode().removeprefix("Bearer ")
        if value not in self.users:
            raise AuthRequired("no valid token", 401)
        return Principal(self.users[value])


class Desk:
    """The tool "kb:get": returns x, fails for "bad", and waits for "wait" until it is released.

    For "slow" it reports its progress.
    """

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.made: list[Any] = []
        self.server = kb([described("get")], self._answer)

    async def _answer(self, params: Json) -> Json:
        x = params["arguments"].get("x")
        self.made.append(x)
        if x == "bad":
            return text("it is broken", isError=True)
        if x == "slow":
            token = params["_meta"]["progressToken"]
            told = {"progressToken": token, "progress": 1, "total": 2, "message": "half"}
            # As the messages of a process arrive: outside of the task that called.
            Context().run(self.server.notify, "notifications/progress", **told)
        if x == "wait":
            self.waiting.set()
            await self.go_on.wait()
        return text(f"got {x}")


def models_of(script: tuple[Any, ...]) -> tuple[ScriptedModel, ScriptedChatModel]:
    """Return models of both kinds: an entry is a text, or a text and arguments of calls."""
    ours: list[Any] = []
    theirs: list[Any] = []
    numbers = count(1)
    for entry in script:
        if isinstance(entry, str | Exception):
            ours.append(entry)
            theirs.append(entry)
            continue
        said, *arguments = entry
        ids = [f"call_{next(numbers)}" for _ in arguments]
        made = [ToolCall(id, "kb__get", {"x": x}) for id, x in zip(ids, arguments, strict=True)]
        ours.append(AssistantMessage(said, tuple(made)))
        message = calls(*[("kb__get", {"x": x}) for x in arguments], text=said)
        for call, id in zip(message.tool_calls, ids, strict=True):
            call["id"] = id
        theirs.append(message)
    return ScriptedModel(ours), ScriptedChatModel(*theirs)


def risky(_: Any, entry: Any, arguments: Json) -> str | None:
    return "it deletes" if str(arguments.get("x")).startswith("all") else None


class Served:
    """A chat at a URL. `models` are those of the agent and of the graph."""

    def __init__(self, app: ChatApp, port: int, desk: Desk, keys: Keys, models: Any = None) -> None:
        self.app = app
        self.models: tuple[ScriptedModel, ScriptedChatModel] = models
        self.desk = desk
        self.keys = keys
        self.url = f"http://127.0.0.1:{port}"
        self._socket = f"ws://127.0.0.1:{port}/ws"

    @asynccontextmanager
    async def socket(
        self, token: str | None = "ann-token", **options: Any
    ) -> AsyncIterator[Client]:
        async with connect(self._socket, **options) as connection:
            client = Client(connection)
            if token is not None:
                await client.send(type="hello", token=token)
                assert (await client.next())["type"] == "ready"
            yield client


class Client:
    """A WebSocket client."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.events: list[Event] = []

    async def send(self, **fields: Any) -> None:
        await self.connection.send(json.dumps(fields))

    async def next(self) -> Event:
        event: Event = json.loads(await self.connection.recv())
        self.events.append(event)
        return event

    async def until(self, *kinds: str) -> Event:
        while (event := await self.next())["type"] not in kinds:
            pass
        return event

    async def ask(self, content: str = "go", **fields: Any) -> list[Event]:
        """Send a message; return the events of its turn."""
        before = len(self.events)
        await self.send(type="message", content=content, **fields)
        await self.until("complete", "error")
        return self.events[before:]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The path of a database."""
    return tmp_path / "chat.db"


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[int]:
    """Serve an ASGI application; the value is its port."""
    config = uvicorn.Config(
        app, port=0, log_level="error", ws="websockets-sansio", ws_per_message_deflate=False
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.001)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def served_chat(
    kind: str, place: Path, *script: Any, approve: Any = None, **options: Any
) -> AsyncIterator[Served]:
    """Serve a chat whose model follows a script."""
    desk, keys = Desk(), Keys()
    ours, theirs = models_of(script)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(ConversationStore.open(place))
        toolbox: Toolbox = await stack.enter_async_context(box(desk.server))
        engine: Any
        if kind == "agent":
            engine = AgentEngine(ours, toolbox, store, approve=approve)
        elif kind == "graph_agent":
            agent = partial(GraphAgent, graph=agent_graph())
            engine = AgentEngine(ours, toolbox, store, approve=approve, agent=agent)
        else:
            graph = chat_graph(theirs, toolbox, checkpointer=InMemorySaver(), approve=approve)
            engine = GraphEngine(graph, store)
        app = ChatApp(engine, keys, **options)
        async with listening(app) as port:
            try:
                yield Served(app, port, desk, keys, (ours, theirs))
            finally:
                desk.go_on.set()
                await app.close()


Serve = Callable[..., Any]


@pytest.fixture(params=ENGINES)
def serve(request: pytest.FixtureRequest, place: Path) -> Serve:
    """Serve a chat with either engine: an async context manager."""
    return lambda *script, **options: served_chat(request.param, place, *script, **options)


@pytest.fixture
def serve_agent(place: Path) -> Serve:
    """Serve a chat with the agent, where the engine makes no difference."""
    return lambda *script, **options: served_chat("agent", place, *script, **options)


def kinds(events: list[Event]) -> list[str]:
    """Return the types of events, without repetitions of tokens."""
    found: list[str] = []
    for event in events:
        if not (found and found[-1] == event["type"] == "token"):
            found.append(event["type"])
    return found


def check_numbers(events: list[Event]) -> None:
    """Check that the numbers of a turn's events have no gaps."""
    expected = 1
    for event in events:
        assert event.get("from", event["seq"]) == expected
        expected = event["seq"] + 1
