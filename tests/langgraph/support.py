"""Turns of a graph for tests."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage

from interlock.langgraph import stream


async def events_of(
    graph: Any, content: Any = "go", thread: str = "t", **options: Any
) -> list[Any]:
    return [event async for event in stream(graph, content, thread=thread, **options)]


async def state_of(graph: Any, thread: str = "t") -> list[Any]:
    snapshot = await graph.aget_state({"configurable": {"thread_id": thread}})
    found: list[Any] = snapshot.values["messages"]
    return found


def kinds(messages: list[Any]) -> list[str]:
    return [each.type for each in messages]


async def crashed(graph: Any, config: Any) -> None:
    """Leave a turn after the model's answer, as a process does that was killed there."""
    async for _ in graph.astream(
        {"messages": [HumanMessage("go")]}, config, durability="sync", interrupt_before=["tool"]
    ):
        pass


CONFIG = {"configurable": {"thread_id": "t"}}
