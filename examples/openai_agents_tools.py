"""Tools of a toolbox for the OpenAI Agents SDK: from functions, and with the exact schemas."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
from agents import FunctionTool, function_tool
from agents.tool_context import ToolContext

from interlock import StdioServer, Toolbox
from interlock.agent import text_of
from interlock.callables import callables
from interlock.calls import Entry
from interlock.errors import InterlockError

NOTES = StdioServer(command=sys.executable, args=(str(Path(__file__).with_name("demo_server.py")),))


def exact(toolbox: Toolbox, entry: Entry) -> FunctionTool:
    async def invoke(_: Any, arguments: str) -> str:
        try:
            return text_of(await toolbox.call(entry.address, json.loads(arguments or "{}")))
        except InterlockError as error:
            return f"error: {error}"

    return FunctionTool(
        name=entry.wire_name,
        description=entry.tool.description,
        params_json_schema=msgspec.json.decode(entry.input_schema),
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )


async def main() -> None:
    async with Toolbox({"notes": NOTES}) as toolbox:
        simple = [function_tool(each, strict_mode=False) for each in callables(toolbox)]
        precise = [exact(toolbox, entry) for entry in toolbox.tools]
        for tools in (simple, precise):
            search = next(tool for tool in tools if tool.name == "notes__search")
            arguments = json.dumps({"query": "apples"})
            context = ToolContext(
                None, tool_name=search.name, tool_call_id="1", tool_arguments=arguments
            )
            print(await search.on_invoke_tool(context, arguments))


asyncio.run(main())
