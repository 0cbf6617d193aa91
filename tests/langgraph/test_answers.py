"""What LangChain's models answer: text, reasoning, tokens, and calls that are not valid."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langgraph.checkpoint.memory import InMemorySaver

from interlock.agent import AgentEvent, Done
from interlock.langgraph import chat_graph
from interlock.langgraph.answers import deltas, normalized
from interlock.models import ReasoningDelta, TextDelta, Usage
from tests.langgraph.support import events_of, state_of
from tests.support.chat_model import ScriptedChatModel, calls
from tests.support.rows import each_row
from tests.support.toolboxes import box, described, kb


@each_row(
    ("content", "expected"),
    [
        ("a", [TextDelta("a")]),
        ([{"type": "text", "text": "a"}], [TextDelta("a")]),
        ([{"type": "reasoning", "reasoning": "b"}], [ReasoningDelta("b")]),
        ([{"type": "thinking", "thinking": "b"}], [ReasoningDelta("b")]),
        ([{"type": "reasoning", "summary": [{"text": "b"}]}], [ReasoningDelta("b")]),
        ([{"type": "tool_use", "name": "x", "id": "1"}, {"type": "text", "text": ""}], []),
    ],
)
def test_blocks_become_text_or_reasoning(content: Any, expected: list[AgentEvent]) -> None:
    assert list(deltas(AIMessageChunk(content))) == expected


async def test_usage_is_the_sum_of_all_rounds() -> None:
    def used(message: AIMessage) -> AIMessage:
        message.usage_metadata = {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
        return message

    model = ScriptedChatModel(used(calls(("kb__get", {}))), used(AIMessage("done")))
    async with box(kb([described("get")])) as toolbox:
        events = await events_of(chat_graph(model, toolbox))

    assert events[-1].usage == Usage(4, 6)


@each_row(
    ("metadata", "reason"),
    [
        ({"finish_reason": "length"}, "length"),
        ({"stop_reason": "max_tokens"}, "length"),
        ({"finish_reason": "stop"}, "end"),
    ],
)
async def test_truncated_answer_is_marked_as_truncated(metadata: Any, reason: str) -> None:
    model = ScriptedChatModel(AIMessage("It is", response_metadata=metadata))
    events = await events_of(chat_graph(model))

    assert events[-1].stop_reason == reason


def test_replaced_tool_call_ids_also_appear_in_the_content_blocks() -> None:
    blocks: list[Any] = [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "call_1", "name": "kb__get", "input": {}},
    ]
    answer = calls(("kb__get", {})).model_copy(update={"content": blocks})
    found = normalized(answer, ["call_1"])

    assert found.tool_calls[0]["id"] == found.content[1]["id"] != "call_1"  # type: ignore[index]


async def test_arguments_that_are_not_json_are_answered_with_an_error() -> None:
    broken = AIMessage(
        "",
        invalid_tool_calls=[
            {"name": "kb__get", "args": "{", "id": "1", "error": None, "type": "invalid_tool_call"}
        ],
    )
    server = kb([described("get")])
    model = ScriptedChatModel(broken, "done")
    async with box(server) as toolbox:
        graph = chat_graph(model, toolbox, checkpointer=InMemorySaver())
        events = await events_of(graph)
        messages = await state_of(graph)

    assert messages[2].content == "error: the arguments are not a JSON object: {"
    assert messages[1].tool_calls[0]["args"] == {}
    assert messages[1].invalid_tool_calls == []
    assert isinstance(events[-1], Done)
    assert server.sent("tools/call") == []


async def test_ids_that_are_empty_or_used_twice_are_replaced() -> None:
    first, second = calls(("kb__get", {"x": 1}), ("kb__get", {"x": 2})), calls(("kb__get", {}))
    first.tool_calls[1]["id"] = "call_1"
    second.tool_calls[0]["id"] = "call_1"
    async with box(kb([described("get")])) as toolbox:
        graph = chat_graph(
            ScriptedChatModel(first, second, "done"), toolbox, checkpointer=InMemorySaver()
        )
        await events_of(graph)
        messages = await state_of(graph)

    ids = [call["id"] for each in messages if each.type == "ai" for call in each.tool_calls]
    assert len(set(ids)) == 3
    assert [each.tool_call_id for each in messages if each.type == "tool"] == ids
