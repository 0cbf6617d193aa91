"""The tool `approve`, which Claude Code calls through its option `--permission-prompt-tool`.

1. Claude Code asks before it uses one of its own tools. The policy decides as if this were a tool
   of a server named "claude-built-in", with the usual limits, approvals and audit records.
2. A call that needs approval is denied until another person approves it. The client is not asked,
   because it would then approve its own call.
3. If anything fails, the call is denied.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw
from msgspec.structs import replace

from interlock.calls import Call, Caller, Item, Outcome
from interlock.config.gateway import BUILT_IN, OWN
from interlock.errors import InterlockError
from interlock.gateway.forwarding.tool import CLAUDE_CODE
from interlock.layers import Layers
from interlock.protocol.envelope import encode_large
from interlock.store.approvals import Approval
from interlock.toolbox.own_tools import OwnTool
from interlock.types import JsonObject, Tool, ToolAnnotations

MAX_NAME = 200  # characters in the name of a tool
APPROVE = Tool(
    name="approve",
    title="Decide about a tool of Claude Code",
    description=(
        "For Claude Code's --permission-prompt-tool, not for models. Returns whether the policy of "
        "the gateway lets a tool run. It cannot approve a call that a person must approve."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "tool_name": {"type": "string", "minLength": 1, "maxLength": MAX_NAME},
            "input": {"type": "object"},
            "tool_use_id": {"type": "string"},
        },
        "required": ["tool_name", "input"],
    },
    annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False),
)


class PermissionPrompts:
    """Answers Claude Code's calls of the tool `approve`.

    Args:
        layers: Returns the current layers that decide about a call: refusals, policy, limits,
            approvals and audit trail.

    Attributes:
        tool: The tool `approve`, which only clients named `CLAUDE_CODE` see.
        address: The tool's address. Calls of `approve` itself skip limits and audit trail, because
            the calls that it decides about pass through both.
    """

    def __init__(self, layers: Callable[[], Layers]) -> None:
        self._layers = layers
        self.tool = OwnTool(APPROVE, self.answer, _is_claude_code)
        self.address = f"{OWN}:{APPROVE.name}"

    async def answer(self, call: Call) -> Outcome:
        """Decide about the tool call that Claude Code asks about."""
        asked = replace(
            call,
            entry=Item("tools", BUILT_IN, call.arguments["tool_name"]),
            arguments=call.arguments["input"],
        )
        try:
            return await self._layers().build(_allow)(asked)
        except InterlockError as error:
            return _verdict({"behavior": "deny", "message": str(error)})


async def ask_nobody(_: Call, __: Approval | None) -> None:
    """Ask no client, so that only other approvers decide about a call."""


async def _allow(call: Call) -> Outcome:
    return _verdict({"behavior": "allow", "updatedInput": call.arguments})


def _verdict(verdict: JsonObject) -> Outcome:
    text = encode_large(verdict).decode()
    return Outcome(Raw(encode_large({"content": [{"type": "text", "text": text}]})))


def _is_claude_code(caller: Caller) -> bool:
    return caller.client == CLAUDE_CODE
