"""Claude Code uses a server of this program; every call is decided here."""

import asyncio

from interlock import Server
from interlock.claude import Allow, ClaudeCode, Deny, PermissionRequest, TextDelta, ToolFinished

server = Server("math")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def decide(request: PermissionRequest) -> Allow | Deny:
    """Allow arithmetic, and nothing that Claude Code has itself."""
    if request.address.startswith("math:"):
        return Allow()
    return Deny("only arithmetic is allowed here")


async def main() -> None:
    async with ClaudeCode({"math": server}, permissions=decide) as claude:
        answer = await claude.ask("What is 2 + 3?")
        print(answer.text)

        async for event in claude.stream("And plus 4?"):
            if isinstance(event, TextDelta):
                print(event.text, end="")
            elif isinstance(event, ToolFinished):
                print(f"[{event.address} -> {event.result}]")
        print()


asyncio.run(main())
