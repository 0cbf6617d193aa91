"""Answers to requests from Claude Code that are not MCP messages: permissions, hooks, forms."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Struct

from interlock.claude.decisions import BROKEN, Allow, Decisions, Deny, PermissionRequest
from interlock.client.features import Elicit
from interlock.protocol.envelope import encode, encode_lossy
from interlock.schema.elicitation import fitting_form
from interlock.types import ElicitParams, JsonObject

HOOK = "decide"  # the id of our hook callback
HOOK_TIMEOUT = 3_600  # seconds that Claude Code waits for a decision; ours ends earlier
_log = logging.getLogger("interlock.claude")


class UnsupportedQuestion(Exception):
    """Claude Code sent a request that is not supported."""


class Questions:
    """Answers Claude Code's requests about permissions, hooks and elicitations.

    Args:
        decisions: Makes one decision for each call.
        address: Converts Claude Code's name for a tool to the tool's address.
        agent_of: Returns the subagent that makes the call with this id.
        elicitation: Asks the user for a server to which Claude Code itself connects.
    """

    def __init__(
        self,
        decisions: Decisions,
        address: Callable[[str], str],
        agent_of: Callable[[str], str],
        elicitation: Elicit | None,
    ) -> None:
        self._decisions = decisions
        self._address = address
        self._agent_of = agent_of
        self._elicitation = elicitation

    @staticmethod
    def hooks() -> JsonObject:
        """Return the hooks that make Claude Code ask about every call."""
        hook = {"matcher": None, "hookCallbackIds": [HOOK], "timeout": HOOK_TIMEOUT}
        return {"PreToolUse": [{**hook, "onFailure": "block"}]}

    def answer(self, subtype: str, line: bytes) -> bytes | Coroutine[Any, Any, bytes]:
        """Return the encoded answer to a control request, or a coroutine that returns it.

        Raises:
            UnsupportedQuestion: The request is not supported.
        """
        if subtype == "can_use_tool":
            asked = _decode_permission(line).request
            id = asked.tool_use_id or ""
            request = PermissionRequest(
                self._address(asked.tool_name),
                asked.input,
                id,
                self._agent_of(id) or asked.agent_id or "",
                asked.title or asked.description or "",
                tuple(asked.permission_suggestions or ()),
            )
            verdict = self._decisions.made(request)  # usually made by our hook before
            return self._permission(request) if verdict is None else _permission(verdict)
        if subtype == "hook_callback":
            return self._hook(line)
        if subtype == "elicitation" and self._elicitation is not None:
            return self._elicited(self._elicitation, _decode_elicitation(line).request.params())
        raise UnsupportedQuestion(subtype)

    async def _permission(self, request: PermissionRequest) -> bytes:
        return _permission(await self._decisions.of(request))

    async def _hook(self, line: bytes) -> bytes:
        try:
            asked = _decode_hook(line).request
        except msgspec.DecodeError:
            # Deny explicitly: most versions run the call if the hook fails.
            _log.exception("a hook of Claude Code could not be read")
            return _hook({"permissionDecision": "deny", "permissionDecisionReason": BROKEN})
        hook = asked.input
        if asked.callback_id != HOOK or hook.hook_event_name != "PreToolUse":
            return b"{}"
        id = asked.tool_use_id or hook.tool_use_id or ""
        agent = self._agent_of(id) or hook.agent_id or ""
        verdict = await self._decisions.of(
            PermissionRequest(self._address(hook.tool_name), hook.tool_input, id, agent)
        )
        if isinstance(verdict, Deny):
            denied = {"permissionDecision": "deny", "permissionDecisionReason": verdict.message}
            return _hook(denied)
        return _hook({"permissionDecision": "allow", "updatedInput": verdict.arguments})

    async def _elicited(self, elicitation: Elicit, params: ElicitParams) -> bytes:
        return encode(await elicitation(params))


def _permission(verdict: Allow | Deny) -> bytes:
    if isinstance(verdict, Allow):
        # Old programs refuse an "allow" without arguments.
        return encode_lossy({"behavior": "allow", "updatedInput": verdict.arguments})
    denied = {"behavior": "deny", "message": verdict.message}
    return encode_lossy({**denied, "interrupt": True} if verdict.interrupt else denied)


def _hook(output: JsonObject) -> bytes:
    return encode_lossy({"hookSpecificOutput": {"hookEventName": "PreToolUse", **output}})


class _Permission(Struct):
    tool_name: str
    input: JsonObject
    tool_use_id: str | None = None
    agent_id: str | None = None
    title: str | None = None
    description: str | None = None
    permission_suggestions: list[JsonObject] | None = None


class _HookInput(Struct, frozen=True):
    hook_event_name: str = ""
    tool_name: str = ""
    tool_input: JsonObject = {}
    tool_use_id: str | None = None
    agent_id: str | None = None


class _Hook(Struct):
    callback_id: str = ""
    input: _HookInput = _HookInput()
    tool_use_id: str | None = None


class _Elicitation(Struct):
    message: str = ""
    mode: str | None = None
    requested_schema: JsonObject | None = None
    url: str | None = None

    def params(self) -> ElicitParams:
        form = self.requested_schema
        return ElicitParams(
            message=self.message,
            mode="url" if self.mode == "url" else "form",
            requested_schema=None if form is None else fitting_form(form),
            url=self.url,
        )


class _PermissionLine(Struct):
    request: _Permission


class _HookLine(Struct):
    request: _Hook


class _ElicitationLine(Struct):
    request: _Elicitation


_decode_permission = msgspec.json.Decoder(_PermissionLine).decode
_decode_hook = msgspec.json.Decoder(_HookLine).decode
_decode_elicitation = msgspec.json.Decoder(_ElicitationLine).decode
