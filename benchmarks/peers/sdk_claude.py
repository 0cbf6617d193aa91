"""claude-agent-sdk as the host of the stand-in program."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    ResultMessage,
    create_sdk_mcp_server,
    tool,
)

from benchmarks.peers.claude_host import PROGRAM, TEXT, Ask, serve


@tool("add", "Add two numbers.", {"a": int, "b": int})
async def add(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(args["a"] + args["b"])}]}


@tool("text", "Return a text.", {"size": int})
async def text(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": TEXT * args["size"]}]}


async def allow(*_: Any) -> PermissionResultAllow:
    return PermissionResultAllow()


async def hook(*_: Any) -> dict[str, Any]:
    output = {"hookEventName": "PreToolUse", "permissionDecision": "allow"}
    return {"hookSpecificOutput": output}


@asynccontextmanager
async def opened(decides: bool) -> AsyncIterator[Ask]:
    options = ClaudeAgentOptions(
        mcp_servers={"math": create_sdk_mcp_server("math", tools=[add, text])}, cli_path=PROGRAM
    )
    if decides:
        options.can_use_tool = allow
        options.hooks = {"PreToolUse": [HookMatcher(hooks=[hook])]}
    async with ClaudeSDKClient(options) as client:

        async def ask(prompt: str) -> str:
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    return message.result or ""
            raise RuntimeError("no result")

        yield ask


if __name__ == "__main__":
    serve(opened)
