"""The events of a turn of the graph, and the turns that are refused."""

from __future__ import annotations

import asyncio
from contextvars import Context
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.types import Command, interrupt

from interlock.agent import Done, Stopped, ToolFinished, ToolProgress, ToolStarted
from interlock.errors import ConversationBusy, UnknownConversation
from interlock.langgraph import InvalidInput, chat_graph
from interlock.models import TextDelta
from tests.langgraph.support import CONFIG, events_of, kinds, state_of
from tests.support.chat_model import ScriptedChatModel, calls
from tests.support.recorded_spans import named, recorded_spans, tree
from tests.support.rows import each_row
from tests.support.scripted_server import Json, text
from tests.support.toolboxes import box, described, kb


async def test_a_turn_streams_text_calls_and_the_answer() -> None:
    model = ScriptedChatModel(
        calls(("kb__get", {"x": 1}), ("kb__get", {"x": 2}), text="Let me see."), "It is so."
    )
    async with box(kb([described("get")])) as toolbox:
        graph = chat_graph(model, toolbox, checkpointer=InMemorySaver(), system="Be brief.")
        events = await events_of(graph)
        messages = await state_of(graph)

    texts = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(texts) == "Let me see.It is so."
    assert len(texts) == 6
    started = {event.id: event for event in events if isinstance(event, ToolStarted)}
    ended = {event.id: event for event in events if isinstance(event, ToolFinished)}
    assert {id: (each.address, each.arguments) for id, each in started.items()} == {
        "call_1": ("kb:get", {"x": 1}),
        "call_2": ("kb:get", {"x": 2}),
    }
    assert {id: each.result for id, each in ended.items()} == {
        "call_1": '{"x": 1}',
        "call_2": '{"x": 2}',
    }
    assert started["call_1"].call_id == ended["call_1"].call_id
    assert isinstance(events[-1], Done)
    assert events[-1].message.content == "It is so."
    assert kinds(messages) == ["human", "ai", "tool", "tool", "ai"]
    assert [each.tool_call_id for each in messages[2:4]] == ["call_1", "call_2"]
    assert kinds(model.requests[0]) == ["system", "human"]


async def test_a_model_that_does_not_stream_gives_one_delta() -> None:
    class Whole(ScriptedChatModel):
        _stream = None  # type: ignore[assignment]
        _astream = None  # type: ignore[assignment]

    model = Whole("It is so.")
    model.disable_streaming = True
    events = await events_of(chat_graph(model))

    assert [event.text for event in events[:-1]] == ["It is so."]


async def test_tokens_of_a_model_inside_a_tool_are_not_part_of_the_answer() -> None:
    inner = ScriptedChatModel("inner words")

    @tool
    async def think(x: int) -> str:
        """Think."""
        return (await inner.ainvoke("x")).text

    model = ScriptedChatModel(calls(("think", {"x": 1})), "done")
    events = await events_of(chat_graph(model, local_tools=[think]))

    assert [event.text for event in events if isinstance(event, TextDelta)] == ["done"]
    finished = next(event for event in events if isinstance(event, ToolFinished))
    assert finished.result == "inner words"


async def test_local_tool_that_asks_a_person_continues_with_the_answer() -> None:
    @tool
    async def ask(question: str) -> str:
        """Ask a person."""
        begun.append(question)
        return f"they said {interrupt(question)}"

    begun: list[str] = []
    other = kb([described("get")])
    script = calls(("ask", {"question": "why?"}), ("kb__get", {})), "done"
    async with box(other) as toolbox:
        graph = chat_graph(
            ScriptedChatModel(*script), toolbox, local_tools=[ask], checkpointer=InMemorySaver()
        )
        waiting = await events_of(graph)
        events = await events_of(graph, Command(resume="because"))

    assert waiting[-1] == Stopped("waiting")
    finished = [each.result for each in events if isinstance(each, ToolFinished)]
    assert finished == ["they said because"]
    assert isinstance(events[-1], Done)
    assert begun == ["why?", "why?"]  # LangGraph resumes a task from its beginning
    assert len(other.sent("tools/call")) == 1


async def test_answer_of_the_model_is_stored_before_its_calls_are_made() -> None:
    class Slow(InMemorySaver):
        async def aput(self, config: Any, checkpoint: Any, *more: Any) -> Any:
            for _ in range(200):
                await asyncio.sleep(0)
            stored.append(len(checkpoint["channel_values"].get("messages", ())))
            return await super().aput(config, checkpoint, *more)

    stored: list[int] = []
    before: list[int] = []
    server = kb([described("get")], lambda _: before.append(stored[-1]) or text("so"))
    async with box(server) as toolbox:
        model = ScriptedChatModel(calls(("kb__get", {})), "done")
        graph = chat_graph(model, toolbox, checkpointer=Slow())
        await events_of(graph, user="ann")
        values = (await graph.aget_state(CONFIG)).values

    assert before == [2]  # the message of the user and the answer
    assert (values["conversation_id"], values["user_id"]) == ("t", "ann")


async def test_other_writes_to_the_custom_stream_are_left_out() -> None:
    @tool
    async def think() -> str:
        """Think."""
        get_stream_writer()({"step": 1})
        return "so"

    events = await events_of(
        chat_graph(ScriptedChatModel(calls(("think", {})), "done"), local_tools=[think])
    )

    assert not [each for each in events if isinstance(each, dict)]


async def test_progress_of_a_tool_is_an_event() -> None:
    server = kb([described("get")])

    def report(params: Json) -> Json:
        token = params["_meta"]["progressToken"]
        # As the messages of a process arrive: outside of the task that called.
        Context().run(
            server.notify, "notifications/progress", progressToken=token, progress=1, total=2
        )
        return text("done")

    server.answers["tools/call"] = report
    async with box(server) as toolbox:
        events = await events_of(
            chat_graph(ScriptedChatModel(calls(("kb__get", {})), "x"), toolbox)
        )

    assert ToolProgress("call_1", 1, 2, "") in events


@each_row("content", ["", " \n", "x" * 11])
async def test_a_message_that_is_empty_or_too_long_is_refused(content: str) -> None:
    model = ScriptedChatModel("done")
    with pytest.raises(InvalidInput, match=r"empty|limit 10"):
        await events_of(chat_graph(model, max_input=10), content)

    assert model.requests == []


async def test_a_second_turn_of_a_conversation_is_refused_while_one_runs() -> None:
    async def wait(_: Json) -> None:
        await asyncio.get_running_loop().create_future()

    server = kb([described("get")], wait)
    async with box(server) as toolbox:
        graph = chat_graph(ScriptedChatModel(calls(("kb__get", {}))), toolbox)
        running = asyncio.create_task(events_of(graph))
        await server.heard("tools/call")
        with pytest.raises(ConversationBusy):
            await events_of(graph)
        running.cancel()
        await asyncio.wait({running})
        await server.heard("notifications/cancelled")


async def test_a_conversation_of_another_user_does_not_exist() -> None:
    graph = chat_graph(ScriptedChatModel("a", "b"), checkpointer=InMemorySaver())
    await events_of(graph, user="ann")

    with pytest.raises(UnknownConversation):
        await events_of(graph, user="bob")


async def test_a_turn_has_a_span_above_its_calls() -> None:
    model = ScriptedChatModel(calls(("kb__get", {"x": 1})), "It is so.")
    with recorded_spans() as spans:
        async with box(kb([described("get")])) as toolbox:
            graph = chat_graph(model, toolbox, checkpointer=InMemorySaver())
            spans.clear()
            await events_of(graph)

    assert {each[1:] for each in tree(spans)} == {
        ("invoke_agent interlock", ""),
        ("execute_tool get", "invoke_agent interlock"),
        ("tools/call get", "execute_tool get"),
    }
    assert "gen_ai.conversation.id" in named(spans, "invoke_agent interlock").attributes
    assert named(spans, "execute_tool get").attributes["gen_ai.tool.call.id"] == "call_1"
