"""`create_agent` with the tools of a toolbox as they are at each request."""

from __future__ import annotations

from contextvars import Context
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool

from interlock.errors import ConfigError
from interlock.langchain import ToolboxMiddleware
from interlock.messages import SEARCH_TOOLS
from interlock.toolbox import Toolbox
from tests.providers.schema_rules import anthropic
from tests.support.chat_model import ScriptedChatModel, calls
from tests.support.rows import each_row
from tests.support.scripted_server import Json
from tests.support.toolboxes import box, described, expire_list, kb


def agent_of(model: ScriptedChatModel, toolbox: Toolbox, *own: Any, **options: Any) -> Any:
    return create_agent(model, list(own), middleware=[ToolboxMiddleware(toolbox, **options)])


async def ask(agent: Any, *messages: Any) -> list[Any]:
    result = await agent.ainvoke({"messages": list(messages) or [HumanMessage("go")]})
    found: list[Any] = result["messages"]
    return found


async def test_a_tool_that_appears_between_two_rounds_is_offered_and_called() -> None:
    definitions = [described("get")]
    server = kb(definitions)

    async with box(server) as toolbox:

        def change(_: Any) -> AIMessage:
            definitions[:] = [described("put")]
            expire_list(toolbox)
            return calls(("kb__get", {"x": 1}))

        model = ScriptedChatModel(
            change, calls(("kb__put", {"x": 2}), ("kb__get", {}), start=2), "done"
        )
        messages = await ask(agent_of(model, toolbox))

    assert model.offered == [["kb__get"], ["kb__put"], ["kb__put"]]
    answers = [each for each in messages if isinstance(each, ToolMessage)]
    assert [each.status for each in answers] == ["success", "success", "error"]
    assert answers[1].content == '{"x": 2}'
    assert "kb__get" in answers[2].content


ODD: Json = {"type": "object", "properties": {"$top": {"type": "integer"}}}


async def test_renamed_arguments_reach_the_server_under_its_names() -> None:
    model = ScriptedChatModel(calls(("kb__get", {"top": 5})), "done")
    async with box(kb([described("get", ODD)])) as toolbox:
        messages = await ask(agent_of(model, toolbox))

    function = model.bound[0][0]["function"]
    assert anthropic(function["name"], function["parameters"]) == ""
    assert messages[2].content == '{"$top": 5}'


async def test_an_unknown_tool_is_answered_with_an_error() -> None:
    model = ScriptedChatModel(calls(("kb__gett", {})), "done")
    async with box(kb([described("get", annotations={"readOnlyHint": True})])) as toolbox:
        messages = await ask(agent_of(model, toolbox))

    assert messages[2].status == "error"
    assert "kb__get" in messages[2].content


async def test_a_tool_that_is_not_selected_cannot_be_called() -> None:
    model = ScriptedChatModel(calls(("kb__put", {})), "done")
    async with box(kb([described("get"), described("put")])) as toolbox:
        messages = await ask(agent_of(model, toolbox, select="kb:get"))

    assert model.offered[0] == ["kb__get"]
    assert messages[2].status == "error"


async def test_a_tool_of_the_agent_wins_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    @tool("kb__get")
    async def own(x: int) -> str:
        """Mine."""
        return f"mine {x}"

    model = ScriptedChatModel(calls(("kb__get", {"x": 1})), "done")
    async with box(kb([described("get")])) as toolbox:
        messages = await ask(agent_of(model, toolbox, own))

    assert messages[2].content == "mine 1"
    assert model.offered == [["kb__get"], ["kb__get"]]
    assert caplog.text.count("hides the one of the toolbox") == 1


async def test_names_of_an_old_history_are_fitted_for_the_request_only() -> None:
    model = ScriptedChatModel("done")
    old = calls(("kb:get", {"x": 1}))
    history = [HumanMessage("hi"), old, ToolMessage("1", tool_call_id="call_1"), HumanMessage("go")]
    async with box(kb([described("get")])) as toolbox:
        messages = await ask(agent_of(model, toolbox), *history)

    assert model.requests[0][1].tool_calls[0]["name"] == "kb__get"  # type: ignore[attr-defined]
    assert model.requests[0][2].name == "kb__get"
    assert messages[1].tool_calls[0]["name"] == "kb:get"


@each_row(
    ("options", "kind"),
    [({}, str), ({"images": True}, list), ({"images": True, "max_image_bytes": 2}, str)],
)
async def test_images_up_to_the_limit_are_passed_on_if_enabled(options: Any, kind: type) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    model = ScriptedChatModel(calls(("kb__get", {})), "done")
    async with box(kb([described("get")], lambda _: {"content": [image]})) as toolbox:
        messages = await ask(agent_of(model, toolbox, **options))

    assert isinstance(messages[2].content, kind)


async def test_progress_reaches_the_custom_stream() -> None:
    definitions = [described("get")]
    model = ScriptedChatModel(calls(("kb__get", {})), "done")
    server = kb(definitions)

    async def report(params: Json) -> Json:
        token = params["_meta"]["progressToken"]
        # As the messages of a process arrive: outside of the task that called.
        Context().run(
            server.notify, "notifications/progress", progressToken=token, progress=1, total=2
        )
        return {"content": []}

    server.answers["tools/call"] = report
    async with box(server) as toolbox:
        agent = agent_of(model, toolbox)
        events = [
            each
            async for each in agent.astream(
                {"messages": [HumanMessage("go")]}, stream_mode="custom"
            )
        ]

    assert [(each.id, each.progress, each.total) for each in events] == [("call_1", 1, 2)]


# Search for tools

SHOP = [
    described(f"{verb}_{n}", description=f"{verb} {n}") for verb in ("list", "drop") for n in "abc"
]


async def test_found_tools_are_offered_from_the_next_request_on() -> None:
    found = calls((SEARCH_TOOLS, {"query": "list a"}))
    model = ScriptedChatModel(found, calls(("kb__list_a", {"x": 1}), start=2), "done")
    async with box(kb(SHOP)) as toolbox:
        agent = agent_of(model, toolbox, tool_search="on", select="kb:list_*")
        messages = await ask(agent)
        again = ScriptedChatModel("hello")
        await ask(agent_of(again, toolbox, tool_search="auto", select="kb:list_*"), *messages)

    loads = ["kb__list_a", "kb__list_b", "kb__list_c"]
    result = messages[2]
    assert result.additional_kwargs["interlock"]["loads"] == loads
    assert "kb__drop" not in result.content
    own = [SEARCH_TOOLS, "interlock__read_result"]
    assert model.offered == [own, own + loads, own + loads]
    assert "Servers:\nkb" in model.bound[0][0]["function"]["description"]
    assert messages[4].content == '{"x": 1}'
    assert again.offered == [own + loads]


@pytest.mark.slow("needs a newer LangChain than the oldest that is allowed")
@each_row("is_outer", [True, False])
async def test_provider_that_also_searches_for_tools_is_an_error(is_outer: bool) -> None:
    @tool
    def mine(x: int) -> str:
        """Mine."""
        return f"mine {x}"

    class ChatOpenAI(ScriptedChatModel):
        """A model whose provider LangChain knows by this name."""

    from langchain.agents.middleware import ProviderToolSearchMiddleware

    async with box(kb(SHOP)) as toolbox:
        ours = ToolboxMiddleware(toolbox, tool_search="on")
        deferred = "mine" if is_outer else SEARCH_TOOLS
        theirs = ProviderToolSearchMiddleware(searchable_tools=[deferred])
        middleware: list[Any] = [theirs, ours] if is_outer else [ours, theirs]
        agent = create_agent(ChatOpenAI("never"), [mine], middleware=middleware)
        with pytest.raises((ConfigError, TypeError), match="ProviderToolSearchMiddleware"):
            await ask(agent)
