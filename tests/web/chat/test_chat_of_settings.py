"""A chat made of environment variables alone, as internal chat applications are.

This is what such an application relied on before it used interlock: servers from settings, tools
named `kb:search` for people and `kb__search` for models, five events on a WebSocket.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from interlock import Context, Server, Toolbox, ToolError
from interlock.auth import BearerAuth, static_tokens
from interlock.auth.principal import Principal
from interlock.callables import callables
from interlock.langgraph import chat_graph
from interlock.server.methods import Handler
from interlock.store import ConversationStore
from interlock.toolbox import toolbox as toolbox_module
from interlock.web.chat.app import ChatApp
from interlock.web.chat.graph_engine import GraphEngine
from tests.support.chat_model import ScriptedChatModel, calls
from tests.support.scripted_server import Json
from tests.web.conftest import Event, Keys, Served, kinds, listening

ECHO = Path(__file__).parents[2] / "servers" / "echo.py"
CANARY = "canary-4711-0815-2342"
SEARCH = calls(("kb__search", {"query": "x"}), text="Let me see.")


class Knowledge:
    """A server over HTTP that demands a token. `met` lets it list its tools."""

    def __init__(self, met: asyncio.Barrier | None = None) -> None:
        self.searched: list[str] = []
        self.server = Server("kb", version="1.0.0", middleware=[self._waiting(met)])
        self.server.tool(self.search)
        self.server.tool(self.wait)

    async def search(self, query: str, limit: int = 3) -> str:
        """Find documents."""
        self.searched.append(query)
        if query == "bad":
            raise ToolError("the index is broken")
        return f"{limit} documents about {query}"

    async def wait(self, context: Context) -> str:
        """Report progress and never end."""
        context.progress(1, 2)
        await asyncio.get_running_loop().create_future()
        return ""

    def _waiting(self, met: asyncio.Barrier | None) -> Any:
        def wrap(handle: Handler) -> Handler:
            async def wait(request: Any, context: Any) -> Any:
                if met is not None and request.method == "tools/list":
                    await met.wait()
                return await handle(request, context)

            return wait

        return wrap

    @asynccontextmanager
    async def served(self, name: str = "kb", token: str = CANARY) -> AsyncIterator[Json]:
        """Serve it; the value is its entry in MCP_SERVERS."""
        auth = BearerAuth(
            verify=static_tokens({CANARY: Principal("chat")}), resource="http://127.0.0.1/mcp"
        )
        app = self.server.asgi(auth=auth)
        async with listening(app) as port:
            yield {"name": name, "url": f"http://127.0.0.1:{port}/mcp", "auth_token": token}
        await app.close()


@pytest.fixture
async def kb() -> AsyncIterator[Knowledge]:
    return Knowledge()


def settings(*servers: Json, **variables: str) -> dict[str, str]:
    return {"MCP_ENABLED": "true", "MCP_SERVERS": json.dumps(servers), **variables}


class Chat:
    """A served chat with its parts."""

    def __init__(self, toolbox: Toolbox, model: ScriptedChatModel, saver: Any, port: int) -> None:
        self.toolbox = toolbox
        self.model = model
        self._saver = saver
        self.served = Served(None, port, None, None)  # type: ignore[arg-type]

    async def ask(self, content: str = "go", **fields: Any) -> list[Event]:
        async with self.served.socket() as client:
            return await client.ask(content, **fields)

    async def stored(self, events: list[Event]) -> list[Any]:
        config = {"configurable": {"thread_id": events[0]["conversation_id"]}}
        return (await self._saver.aget(config))["channel_values"]["messages"]


@asynccontextmanager
async def chat_of(environ: dict[str, str], place: Path, *script: Any) -> AsyncIterator[Chat]:
    async with AsyncExitStack() as stack:
        open = stack.enter_async_context
        toolbox = await open(Toolbox.from_environ(environ))
        store = await open(ConversationStore.open(place))
        saver = await open(AsyncSqliteSaver.from_conn_string(f"{place}.graph"))
        model = ScriptedChatModel(*script)
        app = ChatApp(GraphEngine(chat_graph(model, toolbox, checkpointer=saver), store), Keys())
        port = await open(listening(app))
        stack.push_async_callback(app.close)
        yield Chat(toolbox, model, saver, port)


def of(events: list[Event], kind: str) -> list[Event]:
    return [each for each in events if each["type"] == kind]


# What the application relied on


async def test_servers_list_their_tools_concurrently_each_in_its_namespace() -> None:
    met = asyncio.Barrier(2)  # neither server answers before the other one is asked
    one, two = Knowledge(met), Knowledge(met)
    async with one.served("docs") as docs, two.served("other") as wiki:
        environ = settings(docs, {**wiki, "namespace": "wiki"})
        async with Toolbox.from_environ(environ) as toolbox:
            found = {each.address: each.wire_name for each in toolbox.tools}

    assert found == {
        "docs:search": "docs__search",
        "docs:wait": "docs__wait",
        "wiki:search": "wiki__search",
        "wiki:wait": "wiki__wait",
    }


async def test_chat_answers_without_tools_while_they_are_not_enabled(
    kb: Knowledge, place: Path
) -> None:
    async with kb.served() as entry:
        environ = settings(entry, MCP_ENABLED="false")
        async with chat_of(environ, place, "Hello.") as chat:
            events = await chat.ask()

    assert kinds(events) == ["started", "token", "complete"]
    assert chat.model.offered == [[]]


async def test_tool_is_a_function_for_programs_and_a_definition_for_models(
    kb: Knowledge, place: Path
) -> None:
    async with kb.served() as entry, chat_of(settings(entry), place, "Hello.") as chat:
        function = callables(chat.toolbox)["kb:search"]
        answer = await function("apples", limit=2)
        await chat.ask()

    assert str(inspect.signature(function)) == "(query: str, limit: int = 3) -> str"
    assert function.__doc__ == "Find documents."
    assert answer == "2 documents about apples"
    (search, _) = chat.model.bound[0]
    assert search["function"]["name"] == "kb__search"
    assert search["function"]["parameters"]["required"] == ["query"]


async def test_turn_has_tokens_a_start_and_an_end_of_the_call_and_the_answer(
    kb: Knowledge, place: Path
) -> None:
    script = [SEARCH, "It is so."]
    async with kb.served() as entry, chat_of(settings(entry), place, *script) as chat:
        events = await chat.ask()
        stored = await chat.stored(events)

    assert kinds(events)[1:] == ["token", "tool_start", "tool_complete", "token", "complete"]
    (start,), (end,) = of(events, "tool_start"), of(events, "tool_complete")
    assert (start["tool_name"], start["tool_input"]) == ("kb:search", '{"query":"x"}')
    assert (end["tool_name"], end["tool_result"]) == ("kb:search", "3 documents about x")
    assert events[-1]["content"] == "It is so."
    assert [(each.type, each.name) for each in stored if each.type == "tool"] == [
        ("tool", "kb__search")
    ]


async def test_wrong_arguments_and_a_failing_tool_are_results_for_the_model(
    kb: Knowledge, place: Path
) -> None:
    script = [calls(("kb__search", {"query": 3}), ("kb__search", {"query": "bad"})), "Sorry."]
    async with kb.served() as entry, chat_of(settings(entry), place, *script) as chat:
        events = await chat.ask()

    assert kb.searched == ["bad"]
    ends = {each["tool_call_id"]: each for each in of(events, "tool_complete")}
    assert all(each["is_error"] for each in ends.values())
    assert "query" in ends["call_1"]["tool_result"]
    assert ends["call_2"]["tool_result"] == "the index is broken"
    assert events[-1]["content"] == "Sorry."


async def test_call_that_takes_too_long_and_a_model_that_fails_end_as_events(
    kb: Knowledge, place: Path
) -> None:
    script = [calls(("kb__wait", {})), "Too slow.", RuntimeError(CANARY)]
    async with kb.served() as entry:
        environ = settings(entry, MCP_TOOL_EXECUTION_TIMEOUT="0.3")
        async with chat_of(environ, place, *script) as chat:
            events = await chat.ask()
            failed = await chat.ask("more", conversation_id=events[0]["conversation_id"])

    (end,) = of(events, "tool_complete")
    assert end["is_error"]
    assert "within the hard limit" in end["tool_result"]
    assert events[-1]["content"] == "Too slow."
    assert (failed[-1]["type"], failed[-1]["code"]) == ("error", "internal")


async def test_server_that_is_down_stops_nothing_and_joins_the_conversation_later(
    kb: Knowledge, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolbox_module, "RETRY_INTERVAL", 0.01)
    late = tmp_path / "late.py"
    program = {"name": "late", "command": sys.executable, "args": ["-I", "-S", str(late)]}
    dying, again = calls(("late__exit", {})), calls(("late__say", {"text": "hi"}), start=2)
    script = [SEARCH, "So.", dying, again, "Both."]
    async with kb.served() as entry, chat_of(settings(program, entry), place, *script) as chat:
        events = await chat.ask()
        joined = asyncio.Event()
        chat.toolbox.listeners.add(joined.set)
        late.write_bytes(ECHO.read_bytes())
        await joined.wait()
        later = await chat.ask("more", conversation_id=events[0]["conversation_id"])

    assert events[-1]["content"] == "So."
    lost, answered = of(later, "tool_complete")  # it ends during a call, and is started again
    assert (lost["outcome"], answered["tool_result"]) == ("failed", "hi")
    assert set(chat.model.offered[0]) == {"kb__search", "kb__wait"}
    assert set(chat.model.offered[2]) > {"kb__search", "kb__wait", "late__say"}


# The token


# A server whose tools return its environment.
ENVIRONMENT = """
import json, os, sys
sys.path.insert(0, {folder!r})
import echo
echo.call = lambda *_: {{"content": [{{"type": "text", "text": json.dumps(dict(os.environ))}}]}}
echo.main()
"""


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize("token", [CANARY, f"{CANARY}-wrong"])
async def test_server_token_is_in_no_log_file_or_answer(
    kb: Knowledge,
    place: Path,
    tmp_path: Path,
    token: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    inner = tmp_path / "inner.py"
    inner.write_text(ENVIRONMENT.format(folder=str(ECHO.parent)))
    program = {"name": "inner", "command": sys.executable, "args": ["-I", "-S", str(inner)]}
    script = [calls(("kb__search", {"query": "x"}), ("inner__say", {})), "So."]
    async with kb.served(token=token) as entry:
        environ = settings(entry, program)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)  # the process may have them, too
        async with chat_of(environ, place, *script) as chat:
            events = await chat.ask()
            shown = repr(chat.toolbox.status) + repr(chat.toolbox) + repr(chat.toolbox.tools)

    ends = {each["tool_name"]: each for each in of(events, "tool_complete")}
    variables = json.loads(ends["inner:say"]["tool_result"])
    assert "PATH" in variables
    assert not [name for name in variables if name.startswith("MCP_")]
    files = b"".join(each.read_bytes() for each in place.parent.glob("chat*"))
    assert b"inner__say" in files
    assert (kb.searched == ["x"]) == (token == CANARY)
    for text in (caplog.text, json.dumps(events), shown, files.decode("latin-1")):
        assert CANARY not in text
