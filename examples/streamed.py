"""Show an answer while it happens, with a scripted model instead of a real one.

Run: python examples/streamed.py      (needs mcp-server-time)
"""

import asyncio

from interlock import Agent, StdioServer, Toolbox
from interlock.agent import Done, ToolFinished, ToolStarted
from interlock.messages import AssistantMessage, Message, ToolCall, UserMessage
from interlock.models import ScriptedModel, TextDelta

SCRIPT = [
    AssistantMessage(
        tool_calls=(ToolCall("call_1", "time__get_current_time", {"timezone": "UTC"}),)
    ),
    "It is time for tea.",
]


async def main() -> None:
    messages: list[Message] = [UserMessage("Is it time for tea?")]
    async with Toolbox({"time": StdioServer(command="mcp-server-time")}) as toolbox:
        async for event in Agent(ScriptedModel(SCRIPT), toolbox).stream(messages):
            match event:
                case TextDelta():
                    print(event.text, end="", flush=True)
                case ToolStarted():
                    print("calling", event.address, event.arguments)
                case ToolFinished():
                    print(
                        "it took",
                        f"{event.duration:.3f} s and",
                        "failed" if event.is_error else "worked",
                    )
                case Done():
                    print()
    print(len(messages), "messages now, ready for the next turn")


if __name__ == "__main__":
    asyncio.run(main())
