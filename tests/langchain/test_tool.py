"""Tools of a toolbox in LangChain."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import pickle
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_anthropic.chat_models import convert_to_anthropic_tool
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.tools import ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool

from interlock.calls import Caller
from interlock.config import StdioServer
from interlock.errors import CallRefused, LimitExceeded, WrongLoop
from interlock.langchain import tools
from interlock.toolbox import Toolbox
from tests.langchain.support import call, content
from tests.providers.schema_rules import anthropic, openai
from tests.support.chat_model import ScriptedChatModel, calls
from tests.support.rows import each_row
from tests.support.scripted_server import LEGACY, Json
from tests.support.toolboxes import box, described, expire_list, kb

ECHO = Path(__file__).parents[1] / "servers" / "echo.py"
READER = "interlock__read_result"
PNG = {"type": "image", "mimeType": "image/png", "data": "AAAA"}


# Definitions


async def test_a_tool_has_the_wire_name_the_exact_schema_and_its_address() -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string", "pattern": "^x$"}}}
    hints = {"readOnlyHint": True}
    async with box(kb([described("find it", schema, annotations=hints)])) as toolbox:
        tool = tools(toolbox)[0]

    assert tool.name.startswith("kb__find_it__")
    assert tool.description == "find it"
    assert tool.args == schema["properties"]
    assert convert_to_openai_tool(tool)["function"]["parameters"] == schema
    assert tool.tags == ["mcp", "server:kb"]
    assert tool.metadata["interlock"]["address"] == "kb:find it"
    assert tool.metadata["interlock"]["server"] == "scripted 1"
    assert tool.metadata["interlock"]["annotations"]["readOnlyHint"] is True


@each_row(
    ("members", "expected"),
    [({"description": "D", "title": "T"}, "D"), ({"title": "T"}, "T"), ({}, "get")],
)
async def test_a_description_is_never_empty(members: Json, expected: str) -> None:
    async with box(kb([described("get", **members)])) as toolbox:
        assert tools(toolbox)[0].description == expected


async def test_a_schema_without_properties_gets_some() -> None:
    async with box(kb([described("get", {"type": "object"})])) as toolbox:
        assert tools(toolbox)[0].args == {}


@each_row("reference", ["#/$defs/A~1B", "#/$defs/A%7E1B", "#anchor"])
async def test_a_reference_that_langchain_cannot_read_is_rewritten(reference: str) -> None:
    inner = {"type": "object", "properties": {"next": {"$ref": reference}}, "$anchor": "anchor"}
    schema = {"type": "object", "properties": {"a": {"$ref": reference}}, "$defs": {"A/B": inner}}
    async with box(kb([described("get", schema)])) as toolbox:
        (found,) = tools(toolbox, reader=False)
    parameters = convert_to_openai_tool(found)["function"]["parameters"]
    assert parameters["properties"]["a"]["type"] == "object"


async def test_large_result_becomes_an_excerpt_and_a_tool_reads_the_rest() -> None:
    whole = "".join(f"line {number}\n" for number in range(9_000))
    answer = content({"type": "text", "text": whole})
    async with box(kb([described("get")], lambda _: answer)) as toolbox:
        get, read_on = tools(toolbox)
        excerpt = (await get.ainvoke(call("kb__get"))).content
        arguments = json.loads(excerpt.partition(f"{READER} ")[2])
        rest = (await read_on.ainvoke(call(READER, arguments))).content

    assert len(excerpt) < 65_536
    assert rest.startswith(f"line {arguments['line'] - 1}\n")
    assert "line 8999" in rest


async def test_select_takes_patterns_of_addresses() -> None:
    async with box(kb([described("get"), described("git_log"), described("git_add")])) as toolbox:
        found = tools(toolbox, "kb:git_*")
        assert [tool.name for tool in found] == ["kb__git_log", "kb__git_add", READER]
        found = tools(toolbox, ["kb:get", "other:*"], reader=False)
        assert [tool.name for tool in found] == ["kb__get"]


async def test_tools_are_made_again_only_when_their_definition_changed() -> None:
    definitions = [described("a"), described("b")]
    server = kb(definitions)
    async with box(server) as toolbox:
        first = tools(toolbox)
        assert [each is other for each, other in zip(first, tools(toolbox), strict=True)] == [
            True,
            True,
            True,
        ]

        definitions[1] = described("b", description="Changed.")
        expire_list(toolbox)
        await toolbox.refresh()

        second = tools(toolbox)
        assert second[0] is first[0]
        assert second[1].description == "Changed."


async def test_removed_tool_is_not_kept_in_memory() -> None:
    definitions = [described("a"), described("b")]
    async with box(kb(definitions)) as toolbox:
        gone = weakref.ref(tools(toolbox)[1])
        del definitions[1]
        expire_list(toolbox)
        await toolbox.refresh()
        tools(toolbox)
        gc.collect()

    assert gone() is None


async def test_tools_call_on_behalf_of_the_caller_they_were_made_for() -> None:
    def watch(handle: Any) -> Any:
        async def watched(call: Any) -> Any:
            seen.append(call.caller.session)
            return await handle(call)

        return watched

    seen: list[str] = []
    async with box(kb([described("get")]), around=[watch]) as toolbox:
        for session in ("one", "two"):
            tool = tools(toolbox, caller=Caller(session=session))[0]
            await tool.ainvoke(call("kb__get"))

    assert seen == ["one", "two"]


async def test_status_of_a_server_is_read_once_for_all_its_tools() -> None:
    class Watched(Toolbox):
        @property
        def status(self) -> Any:
            looked.append(1)
            return super().status

    looked: list[int] = []
    server = kb([described(f"t{number}") for number in range(9)])
    async with Watched({"kb": server}, environ={}, revision=LEGACY) as toolbox:
        looked.clear()
        assert len(tools(toolbox)) == 10

    assert len(looked) == 1


async def test_tools_do_not_keep_a_toolbox_that_nothing_else_uses() -> None:
    async with box(kb([described("get")])) as toolbox:
        assert tools(toolbox)[0] is tools(toolbox)[0]
    freed = weakref.ref(toolbox)
    del toolbox
    gc.collect()

    assert freed() is None


# Arguments


# Each is a parameter or an attribute somewhere in LangChain, or a word of Python.
NAMES = (
    *("config", "run_manager", "runtime", "self", "cls", "callbacks", "kwargs", "args", "input"),
    *("tool_input", "tool_call_id", "type", "id", "name", "tags", "metadata", "run_id", "run_name"),
    *("state", "store", "verbose", "stop", "class", "", "__x", "x-y"),
)


async def test_arguments_with_any_name_reach_the_tool() -> None:
    schema = {"type": "object", "properties": {name: {} for name in NAMES}}
    seen: list[Json] = []

    def keep(params: Json) -> Json:
        seen.append(params["arguments"])
        return content()

    async with box(kb([described("get", schema)], keep)) as toolbox:
        await tools(toolbox)[0].ainvoke(call("kb__get", dict.fromkeys(NAMES, 1)))

    assert seen == [dict.fromkeys(NAMES, 1)]


async def test_one_message_goes_to_the_server_for_a_call() -> None:
    server = kb([described("get")])
    async with box(server) as toolbox:
        before = len(server.received)
        await tools(toolbox)[0].ainvoke(call("kb__get"))
        assert len(server.received) == before + 1


# Failures


async def test_wrong_arguments_are_returned_as_an_error_message() -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    server = kb([described("get", schema)])
    async with box(server) as toolbox:
        message = await tools(toolbox)[0].ainvoke(call("kb__get"))

    assert message.status == "error"
    assert "q" in message.content
    assert message.additional_kwargs["interlock"]["outcome"] == "failed"
    assert "tools/call" not in [each.get("method") for each in server.received]


async def test_call_that_takes_too_long_is_returned_as_an_error_message() -> None:
    async with box(kb([described("get")], lambda _: None), hard_timeout=0.05) as toolbox:
        message = await tools(toolbox)[0].ainvoke(call("kb__get"))

    assert message.status == "error"
    assert "no answer" in message.content


@pytest.mark.slow("starts a program")
async def test_call_of_a_lost_server_returns_an_error_and_later_calls_work() -> None:
    server = StdioServer(command=sys.executable, args=("-I", "-S", str(ECHO)))
    async with Toolbox({"echo": server}, environ={}) as toolbox:
        by_name = {each.name: each for each in tools(toolbox)}
        lost = await by_name["echo__exit"].ainvoke(call("echo__exit"))
        again = await by_name["echo__say"].ainvoke(call("echo__say", {"text": "hi"}))

    assert (lost.status, lost.additional_kwargs["interlock"]["outcome"]) == ("error", "failed")
    assert (again.status, again.content) == ("success", "hi")


@each_row(
    ("error", "outcome"),
    [
        (LimitExceeded("too fast", "rate_limited", 1.0), "limited"),
        (CallRefused("no", "tool_quarantined"), "held"),
        (CallRefused("no", "denied_by_rule"), "refused"),
        (RuntimeError("secret"), "failed"),
    ],
)
async def test_a_call_that_a_layer_refuses_is_returned_with_its_reason(
    error: Exception, outcome: str
) -> None:
    def refuse(handle: Any) -> Any:
        async def refused(call: Any) -> Any:
            raise error

        return refused

    async with box(kb([described("get")]), around=[refuse]) as toolbox:
        message = await tools(toolbox)[0].ainvoke(call("kb__get"))

    assert message.status == "error"
    assert message.additional_kwargs["interlock"]["outcome"] == outcome
    assert message.additional_kwargs["interlock"].get("reason", "") == getattr(error, "reason", "")
    assert "secret" not in message.content


async def test_call_of_a_removed_tool_returns_an_error() -> None:
    definitions = [described("get")]
    async with box(kb(definitions)) as toolbox:
        tool = tools(toolbox)[0]
        definitions[:] = [described("other")]
        expire_list(toolbox)
        await toolbox.refresh()

        message = await tool.ainvoke(call("kb__get"))

    assert message.status == "error"
    assert "no tool 'kb:get'" in message.content


class Listener(AsyncCallbackHandler):
    """Keeps what LangChain reports."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    async def on_tool_start(self, serialized: Any, input_str: str, **_: Any) -> None:
        self.told.append(("start", input_str))

    async def on_tool_end(self, output: Any, **_: Any) -> None:
        self.told.append(("end", output.content))


async def test_callbacks_receive_the_call_and_handled_errors_become_text() -> None:
    listener = Listener()
    async with box(kb([described("get")])) as toolbox:
        tool = tools(toolbox)[0]
        answer = await tool.ainvoke(call("kb__get", {"x": 1}), {"callbacks": [listener]})
        plain = await tool.ainvoke(call("kb__get", {"x": 1}))
        tool.handle_tool_error = True
        handled = await tool.ainvoke("1")

    assert listener.told == [("start", "{'x': 1}"), ("end", answer.content)]
    assert plain.content == answer.content
    assert "must be an object" in handled


async def test_a_call_without_id_returns_text_and_raises_failures() -> None:
    async with box(kb([described("get")])) as toolbox:
        tool = tools(toolbox)[0]
        assert await tool.ainvoke({"x": 1}) == '{"x": 1}'
        with pytest.raises(ToolException, match="must be an object, not str"):
            await tool.ainvoke("1")

    failure = content({"type": "text", "text": "no such order"}, isError=True)
    async with box(kb([described("get")], lambda _: failure)) as toolbox:
        with pytest.raises(ToolException, match=r"^no such order$"):
            await tools(toolbox)[0].ainvoke({})


async def test_cancelling_a_call_sends_a_cancellation_to_the_server() -> None:
    server = kb([described("get")], lambda _: None)
    async with box(server) as toolbox:
        running = asyncio.create_task(tools(toolbox)[0].ainvoke(call("kb__get")))
        await server.heard("tools/call")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await server.heard("notifications/cancelled")


# Loops and copies


async def test_a_tool_can_be_called_from_another_event_loop() -> None:
    async with box(kb([described("get")])) as toolbox:
        tool = tools(toolbox)[0]
        result = await asyncio.to_thread(lambda: asyncio.run(tool.ainvoke({"x": 1})))
        assert result == '{"x": 1}'


async def test_a_graph_in_a_thread_can_call_a_tool() -> None:
    model = ScriptedChatModel(calls(("kb__get", {"x": 1})), "done")
    async with box(kb([described("get")])) as toolbox:
        agent = create_agent(model, tools(toolbox))
        result = await asyncio.to_thread(agent.invoke, {"messages": [("user", "go")]})

    assert result["messages"][2].content == '{"x": 1}'


async def test_a_blocking_call_on_the_toolbox_event_loop_raises() -> None:
    async with box(kb([described("get")])) as toolbox:
        with pytest.raises(WrongLoop, match="use ainvoke"):
            tools(toolbox)[0].invoke({"x": 1})


@each_row("do", [pickle.dumps, copy.copy, copy.deepcopy])
async def test_a_tool_cannot_be_copied(do: Any) -> None:
    async with box(kb([described("get")])) as toolbox:
        with pytest.raises(TypeError, match="kb:get cannot be pickled or copied"):
            do(tools(toolbox)[0])


# Cost


@pytest.mark.slow("imports langchain_core in a new process")
def test_import_of_the_tools_loads_no_graph_and_no_agent() -> None:
    code = "import interlock.langchain, sys; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in ran.stdout.split()}

    assert "langchain_core" in loaded
    assert not loaded & {"langgraph", "langchain"}


@pytest.mark.slow("imports langchain_core in a new process")
@each_row(
    ("missing", "statement", "advice"),
    [
        ("langchain_core", "import interlock.langchain", "needs the extra langchain: "),
        ("langchain", "from interlock.langchain import ToolboxMiddleware", "langchain>=1.4"),
    ],
)
def test_a_missing_package_is_named(missing: str, statement: str, advice: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; {statement}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert advice in ran.stderr


async def test_a_tool_that_some_provider_refuses_is_offered_and_called_by_all() -> None:
    schema = {
        "type": "object",
        "properties": {"ids[]": {"type": "array", "items": [{"type": "string"}]}, "b": {}},
        "anyOf": [{"required": ["ids[]"]}, {"required": ["b"]}],
    }
    async with box(kb([described("get", schema)])) as toolbox:
        found = tools(toolbox)[0]
        offered = convert_to_openai_tool(found)["function"]
        claude = convert_to_anthropic_tool(found)
        answers = [
            await found.ainvoke(call(found.name, {name: ["x"]})) for name in ("ids", "ids[]")
        ]

    assert offered["description"] == "get\n\nUse one of these sets: ids[]; b."
    assert claude["description"] == "get\n\nUse one of these sets: ids; b."
    assert openai(offered["name"], offered["parameters"]) == ""
    assert anthropic(claude["name"], claude["input_schema"]) == ""
    assert [each.content for each in answers] == ['{"ids[]": ["x"]}'] * 2
