"""The tool `approve`, which Claude Code asks before it uses a tool: `--permission-prompt-tool`.

1. The policy decides about the tool that Claude Code names, as one of the server
   "claude-built-in". The record, the limits and the approvals of that call are those of any other.
2. A call that must be approved is denied until others have approved it. The client is not asked,
   as it would then approve its own call.
3. Whatever fails is a denial.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Raw
from msgspec.structs import replace

from interlock.calls import Call, Caller, Item, Outcome
from interlock.config.gateway import BUILT_IN, OWN
from interlock.errors import InterlockError
from interlock.layers import Layers
from interlock.protocol.envelope import encode_large
from interlock.store.approvals import Approval
from interlock.toolbox.own_tools import OwnTool
from interlock.types import JsonObject, Tool, ToolAnnotations

CLIENT = "claude-code"  # what Claude Code calls itself
MAX_NAME = 200  # characters of the name of a tool
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
    """Answers calls of the tool `approve`.

    Args:
        layers: Returns what decides about a call now: record of refusals, policy, limits,
            approvals and audit trail.

    Attributes:
        tool: The tool. Only clients that call themselves Claude Code see it.
        address: Of the tool. Its calls pass no limits and no trail of their own, as the tool that
            is decided about does.
    """

    def __init__(self, layers: Callable[[], Layers]) -> None:
        self._layers = layers
        self.tool = OwnTool(APPROVE, self.answer, _is_claude_code)
        self.address = f"{OWN}:{APPROVE.name}"

    async def answer(self, call: Call) -> Outcome:
        """Decide about the tool that a call of `approve` names."""
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
    """Leave a call to the people who decide about approvals."""


async def _allow(call: Call) -> Outcome:
    return _verdict({"behavior": "allow", "updatedInput": call.arguments})


def _verdict(verdict: JsonObject) -> Outcome:
    text = encode_large(verdict).decode()
    return Outcome(Raw(encode_large({"content": [{"type": "text", "text": text}]})))


def _is_claude_code(caller: Caller) -> bool:
    return caller.client == CLIENT
