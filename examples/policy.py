"""Pass every tool call through a layer of your own: here one that denies tools that write.

Run: python examples/policy.py
"""

import asyncio

from interlock import Server, Toolbox
from interlock.calls import Call, CallHandler, Outcome
from interlock.errors import ToolError

notes = Server("notes", version="1.0.0")


@notes.tool(read_only=True)
def read(name: str) -> str:
    """Return a note."""
    return f"This is {name}."


@notes.tool
def delete(name: str) -> str:
    """Delete a note."""
    return f"deleted {name}"


def read_only(handle: CallHandler) -> CallHandler:
    """Deny calls of tools that may change something."""

    async def checked(call: Call) -> Outcome:
        annotations = call.entry.tool.annotations
        if annotations is None or not annotations.read_only_hint:
            raise ToolError(f"{call.entry.address} may change something and was not called")
        return await handle(call)

    return checked


async def main() -> None:
    async with Toolbox({"notes": notes}, around=[read_only]) as toolbox:
        print((await toolbox.call("notes:read", {"name": "tea"})).text)
        try:
            await toolbox.call("notes:delete", {"name": "tea"})
        except ToolError as error:
            print("denied:", error)


if __name__ == "__main__":
    asyncio.run(main())
