"""`interlock hook`: apply the policy to Claude Code's interactive sessions, and record calls."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from msgspec import Raw, Struct

from interlock.cli import config_option
from interlock.cli.terminal import safe_line, say
from interlock.errors import ConfigError, InterlockError
from interlock.text.surrogates import repair_json

if TYPE_CHECKING:
    from interlock.calls import Call
    from interlock.calls.decision import Decision
    from interlock.config import Config

DENIED = 2  # the exit code that stops the call; with any other code Claude Code makes it
FAILED = 1
_ADDRESS = re.compile(r"/|:\d")  # part of a URL, or of host:port
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
@click.option(
    "--gateway",
    metavar="NAME",
    help="The name of an interlock gateway among Claude Code's servers: a call of its tool "
    "SERVER__TOOL is judged as a call of SERVER.",
)
@config_option.config_option
def hook(gateway: str | None, config: Path | None) -> int:
    """Decide about a tool call by the policy and record it, as a hook of Claude Code.

    Reads the call as JSON from stdin. As a PreToolUse hook, exits with 2 and prints the reason if
    the policy denies the call, or if anything fails. If the policy requires an approval, Claude
    Code asks the user. As a PostToolUse or PostToolUseFailure hook, records how the call ended.

    The command goes into settings.json of Claude Code, under hooks, for each of these events.

    \b
    Example:
      interlock hook --config ~/policy.json < call.json
    """
    event = ""
    try:
        asked = msgspec.json.decode(_stdin(), type=HookInput)
        event = asked.hook_event_name
        if _ADDRESS.search(gateway or ""):
            # No call has such a server, so the calls of the gateway would be misjudged.
            raise ConfigError(
                "--gateway takes the gateway's name in Claude Code, not its address; see the "
                "names with: claude mcp list"
            )
        found = _Hook(asked, _loaded(config), gateway)
        if event in ENDS:
            asyncio.run(found.report())
            return 0
        if event == "PreToolUse":
            return found.decide()
        reason = f"{event} has no policy; use PreToolUse"
    except (msgspec.DecodeError, RecursionError) as error:
        reason = f"the call on stdin is malformed: {error}"
    except InterlockError as error:
        reason = str(error)
    except Exception as error:  # deny, because an unchecked call must not run
        reason = f"internal error: {type(error).__name__}"
    _say(f"interlock: {safe_line(reason)}")
    return FAILED if event in ENDS else DENIED


def _stdin() -> bytes:
    if sys.stdin is None:
        raise ConfigError("stdin is closed; Claude Code passes the call there")
    return repair_json(sys.stdin.buffer.read())


def _loaded(path: Path | None) -> Config:
    config = config_option.load(path)
    if config.path is None and config.gateway is None and not config.servers:
        raise ConfigError(
            "no configuration was found, so no policy can be applied; name a file with --config, "
            "or remove this hook from settings.json"
        )
    return config


def _say(text: str) -> None:
    """Print a reason; a stream that cannot be written must not change the exit code."""
    try:
        say(text)
    except OSError:
        sys.stderr = None  # or Python writes again, and exits with 120


class _Hook:
    """One run of the hook.

    Args:
        asked: The input of Claude Code.
        config: The configuration with the policy.
        gateway: Claude Code's name for an interlock gateway; None if it uses none.
    """

    def __init__(self, asked: HookInput, config: Config, gateway: str | None) -> None:
        self._asked = asked
        self._config = config
        self._gateway = gateway
        self._is_recorded_elsewhere = False  # by a gateway, which the call goes through
        self._call = self._read_call()

    def decide(self) -> int:
        from interlock.policy import Policy

        call, item = self._call, self._call.entry
        policy = Policy.from_config(self._config)
        call.decision = decision = policy.decide(call.caller, item, call.arguments)
        if self._config.gateway is not None and not self._is_recorded_elsewhere:
            asyncio.run(self._announce(decision))
        address = safe_line(item.address)
        by = f" by rule {safe_line(decision.rule)}" if decision.rule else ""
        if decision.effect == "deny":
            _say(f"interlock: {address} is denied{by} ({decision.reason})")
            return DENIED
        if decision.effect == "ask":
            output = {
                "hookEventName": "PreToolUse",
                "permissionDecision": "ask",
                "permissionDecisionReason": f"{address} needs an approval{by}",
            }
            try:
                click.echo(msgspec.json.encode({"hookSpecificOutput": output}).decode())
            except OSError:
                sys.stdout = None  # as in `_say`
                raise
        return 0

    async def _announce(self, decision: Decision) -> None:
        from interlock.gateway.local_calls import local_trail

        call = self._call
        async with local_trail(self._config) as trail:
            if trail is None:
                return
            if decision.effect == "deny":
                trail.refused(
                    call.caller, decision.reason, entry=call.entry, call=call.id, rule=decision.rule
                )
            else:
                await trail.announce(call)

    async def report(self) -> None:
        from interlock.gateway.local_calls import local_trail

        asked = self._asked
        if not asked.tool_use_id or self._is_recorded_elsewhere:
            return
        status, size = ENDS[asked.hook_event_name], len(asked.tool_response)
        async with local_trail(self._config) as trail:
            if trail is not None:
                await trail.report(self._call, status, ms=asked.duration_ms, size=size)

    def _read_call(self) -> Call:
        """Return the call, whose id is the same in all of the call's hooks."""
        from interlock.calls import Call, Caller, Item
        from interlock.calls.call import call_id_of, new_call_id

        asked = self._asked
        own = f"{asked.session_id}\n{asked.tool_use_id}".encode()
        id = call_id_of(own) if asked.tool_use_id else new_call_id()
        origin = {
            "session": asked.session_id,
            "toolUse": asked.tool_use_id,
            "agent": asked.agent_id,
        }
        item = Item("tools", *self._parts())
        return Call(item, asked.tool_input, Caller(surface="claude"), id=id, origin=origin)

    def _parts(self) -> tuple[str, str]:
        """Return a call's server and tool; for a gateway's tool, the server behind the gateway.

        Raises:
            ConfigError: A server of Claude Code has the name that stands for its own tools.
        """
        from interlock.claude.names import PREFIX, as_written
        from interlock.config.gateway import BUILT_IN

        name = self._asked.tool_name
        if not name.startswith(PREFIX):
            return BUILT_IN, name
        server, tool = self._split(name.removeprefix(PREFIX))
        gateway = as_written(self._gateway or "")
        if "__" in gateway:
            raise ConfigError('--gateway takes a name without "__"; rename the gateway')
        if as_written(server) == gateway and "__" in tool:
            server, tool = self._split(tool)
            self._is_recorded_elsewhere = True
        if server == BUILT_IN:
            raise ConfigError(
                f"{name}: no server may have the name {BUILT_IN!r}, which stands "
                "for Claude Code's own tools; rename it"
            )
        return server, tool

    def _split(self, name: str) -> tuple[str, str]:
        """Split "SERVER__TOOL"; the server has its name in the configuration, if it is there.

        Raises:
            ConfigError: The name may be of another server of the configuration as well.
        """
        from interlock.claude.names import as_written

        server, _, tool = name.partition("__")
        found = [each for each in self._config.servers if name.startswith(f"{as_written(each)}__")]
        if len(found) > 1 or (found and as_written(found[0]) != server):
            raise ConfigError(
                f"{self._asked.tool_name} can be a tool of {' or '.join(map(repr, found))}; "
                'give each server a name that differs in [A-Za-z0-9_-] and has no "__"'
            )
        return (found[0] if found else server), tool
