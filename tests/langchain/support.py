"""Calls of a model by LangChain, and the results that a server returns."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import ToolMessage

from interlock.langchain import tools
from tests.support.scripted_server import Json
from tests.support.toolboxes import box, described, kb


def call(name: str, arguments: Json | None = None) -> dict[str, Any]:
    return {"type": "tool_call", "id": "call_1", "name": name, "args": arguments or {}}


async def message_for(answer: Json, **options: Any) -> ToolMessage:
    """Return what a model gets of a result."""
    async with box(kb([described("get")], lambda _: answer)) as toolbox:
        found: ToolMessage = await tools(toolbox, **options)[0].ainvoke(call("kb__get"))
        return found


def content(*blocks: Json, **members: Any) -> Json:
    return {"content": list(blocks), **members}
