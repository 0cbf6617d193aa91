"""`interlock hook`: apply the policy to Claude Code's interactive sessions, and record calls."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import Raw, Struct

from interlock.cli import config_option
from interlock.cli.terminal import safe_line, say
from interlock.errors import InterlockError
from interlock.text.surrogates import repair_json

if TYPE_CHECKING:
    from interlock.calls import Call
    from interlock.calls.decision import Decision
    from interlock.config import Config

DENIED = 2  # the exit code that stops the call; with any other code Claude Code makes it
FAILED = 1
ENDS = {
    "PostToolUse": "ok",
    "PostToolUseFailure": "tool_error",
}  # hook event -> status in the audit record


class HookInput(Struct):
    """The tool call that Claude Code passes to the hook on stdin."""

    hook_event_name: str
    tool_name: str
    tool_input: dict[str, Any] = {}
    tool_response: Raw = Raw(b"")
    tool_use_id: str = ""
    session_id: str = ""
    agent_id: str = ""
    duration_ms: float = 0.0


@click.command()
@config_option.config_option
def hook(config: Path | None) -> int:
    """Decide about a tool call by the policy and record it, as a hook of Claude Code.

    Reads the call as JSON from stdin. As a PreToolUse hook, exits with 2 and prints the reason if
    the policy denies the call, or if anything fails. If the policy requires an approval, Claude
    Code asks the user. As a PostToolUse or PostToolUseFailure hook, records how the call ended.

    The command goes into settings.json of Claude Code, under hooks, for each of these events.

    \b
    Example:
      interlock hook --config ~/policy.json < call.json
    """
    try:
        asked = _read()
    except (msgspec.DecodeError, RecursionError) as error:
        say(f"interlock: the call on stdin is malformed: {safe_line(str(error))}")
        return DENIED
    try:
        if asked.hook_event_name in ENDS:
            asyncio.run(_report(asked, config_option.load(config)))
            return 0
        if asked.hook_event_name == "PreToolUse":
            return _decide(asked, config_option.load(config))
        reason = f"{asked.hook_event_name} has no policy; use PreToolUse"
    except InterlockError as error:
        reason = str(error)
    except Exception as error:  # deny, because an unchecked call must not run
        reason = f"internal error: {type(error).__name__}"
    say(f"interlock: {safe_line(reason)}")
    return FAILED if asked.hook_event_name in ENDS else DENIED


def _read() -> HookInput:
    return msgspec.json.decode(repair_json(sys.stdin.buffer.read()), type=HookInput)


def _decide(asked: HookInput, config: Config) -> int:
    from interlock.policy import Policy

    call = _call(asked, config)
    item = call.entry
    call.decision = decision = Policy.from_config(config).decide(call.caller, item, call.arguments)
    if config.gateway is not None and not _is_recorded_elsewhere(call, asked.tool_name):
        asyncio.run(_announce(call, decision, config))
    by = f" by rule {decision.rule}" if decision.rule else ""
    if decision.effect == "deny":
        say(f"interlock: {safe_line(item.address)} is denied{safe_line(by)} ({decision.reason})")
        return DENIED
    if decision.effect == "ask":
        output = {
            "hookEventName": "PreToolUse",
            "permissionDecision": "ask",
            "permissionDecisionReason": f"{item.address} needs an approval{by}",
        }
        click.echo(msgspec.json.encode({"hookSpecificOutput": output}).decode())
    return 0


async def _announce(call: Call, decision: Decision, config: Config) -> None:
    from interlock.gateway.local_calls import local_trail

    async with local_trail(config) as trail:
        if trail is None:
            return
        if decision.effect == "deny":
            trail.refused(
                call.caller, decision.reason, entry=call.entry, call=call.id, rule=decision.rule
            )
        else:
            await trail.announce(call)


async def _report(asked: HookInput, config: Config) -> None:
    from interlock.gateway.local_calls import local_trail

    call = _call(asked, config)
    if not asked.tool_use_id or _is_recorded_elsewhere(call, asked.tool_name):
        return
    status, size = ENDS[asked.hook_event_name], len(asked.tool_response)
    async with local_trail(config) as trail:
        if trail is not None:
            await trail.report(call, status, ms=asked.duration_ms, size=size)


def _call(asked: HookInput, config: Config) -> Call:
    """Return the call, whose id is the same in all of the call's hooks."""
    from interlock.calls import Call, Caller, Item
    from interlock.calls.call import call_id_of, new_call_id

    own = f"{asked.session_id}\n{asked.tool_use_id}".encode()
    id = call_id_of(own) if asked.tool_use_id else new_call_id()
    origin = {
        "session": asked.session_id,
        "toolUse": asked.tool_use_id,
        "agent": asked.agent_id,
    }
    item = Item("tools", *_parts(asked.tool_name, config))
    return Call(item, asked.tool_input, Caller(surface="claude"), id=id, origin=origin)


def _parts(name: str, config: Config) -> tuple[str, str]:
    """Return a call's server and tool; for a gateway's tool, the server behind the gateway."""
    from interlock.claude import split
    from interlock.config.gateway import BUILT_IN

    parts = split(name)
    if parts is None:
        return BUILT_IN, name
    server, tool = parts
    names = {each.namespace or key for key, each in config.servers.items()}
    inner, separator, rest = tool.partition("__")
    if server not in names and separator and inner in names:
        return inner, rest
    return server, tool


def _is_recorded_elsewhere(call: Call, name: str) -> bool:
    """Return whether the call goes through a gateway, which itself records the call."""
    from interlock.claude import split

    return split(name) not in (None, (call.entry.server, call.name))
