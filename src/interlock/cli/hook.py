"""`interlock hook`: the policy, as a hook of Claude Code's interactive sessions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import Struct

from interlock.cli import config_option
from interlock.cli.terminal import safe_line, say
from interlock.errors import InterlockError

if TYPE_CHECKING:
    from interlock.config import Config

DENIED = 2  # the exit code that stops the call; Claude Code ignores all others


class HookInput(Struct):
    """What Claude Code writes to the hook's stdin."""

    hook_event_name: str
    tool_name: str
    tool_input: dict[str, Any] = {}


@click.command()
@config_option.config_option
def hook(config: Path | None) -> int:
    """Decide about a tool call by the policy, as a PreToolUse hook of Claude Code.

    Reads the call as JSON from stdin. Exits with 2 and prints the reason if the policy denies it,
    or if anything fails. If the policy wants an approval, Claude Code asks the user.

    The command goes into settings.json of Claude Code, under hooks, PreToolUse.

    \b
    Example:
      interlock hook --config ~/policy.json < call.json
    """
    try:
        return _decide(config)
    except InterlockError as error:
        reason = str(error)
    except Exception as error:  # a call that is not judged must not run
        reason = f"internal error: {type(error).__name__}"
    say(f"interlock: {safe_line(reason)}")
    return DENIED


def _decide(path: Path | None) -> int:
    from interlock.calls import LOCAL, Item
    from interlock.policy import Policy

    loaded = config_option.load(path)
    try:
        asked = msgspec.json.decode(sys.stdin.buffer.read(), type=HookInput)
    except (msgspec.DecodeError, RecursionError) as error:
        say(f"interlock: the call on stdin is malformed: {error}")
        return DENIED
    if asked.hook_event_name != "PreToolUse":
        say(f"interlock: {safe_line(asked.hook_event_name)} has no policy; use PreToolUse only")
        return DENIED
    server, tool = _parts(asked.tool_name, loaded)
    item = Item("tools", server, tool)
    decision = Policy.from_config(loaded).decide(LOCAL, item, asked.tool_input)
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


def _parts(name: str, config: Config) -> tuple[str, str]:
    """Return server and tool; tools of a gateway are those of its servers."""
    from interlock.claude import split
    from interlock.config.gateway import BUILT_IN

    parts = split(name)
    if parts is None:
        return BUILT_IN, name
    server, tool = parts
    names = {each.namespace or key for key, each in config.servers.items()} | {*config.python}
    inner, separator, rest = tool.partition("__")
    if server not in names and separator and inner in names:
        return inner, rest
    return server, tool
