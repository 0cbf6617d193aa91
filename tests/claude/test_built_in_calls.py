"""Claude Code's own tools pass the layers of every call, and leave them with their result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from interlock.calls import Call, Caller, CallHandler, Outcome
from interlock.claude import Allow, ClaudeCode, Deny, PermissionRequest
from interlock.claude.built_in_calls import BuiltInCalls
from interlock.claude.decisions import allow_all
from interlock.config import loads
from interlock.errors import CallRefused
from interlock.gateway.local_calls import local_calls
from interlock.store import AuditReader
from interlock.types import JsonObject
from tests.claude.messages_api import MessagesApi, call, say, script
from tests.support.rows import each_row

CALLER = Caller(surface="claude")
BASH = PermissionRequest("claude-built-in:Bash", {"command": "ls"}, "toolu_1")


class Layer:
    """A layer that records how each call ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, str]] = []

    def __call__(self, handle: CallHandler) -> CallHandler:
        async def keep(call: Call) -> Outcome:
            try:
                outcome = await handle(call)
            except asyncio.CancelledError:
                self.ended.append((call.entry.address, "cancelled"))
                raise
            status = "failed" if outcome.is_error else "ok"
            self.ended.append((call.entry.address, status))
            return outcome

        return keep


async def approved(*_: object) -> bool:
    return True


def refuse(_: CallHandler) -> CallHandler:
    async def refused(call: Call) -> Outcome:
        raise CallRefused(f"{call.entry.address} is over its limit", "limited")

    return refused


def calls_of(*around: Callable[[CallHandler], CallHandler]) -> BuiltInCalls:
    return BuiltInCalls(around, CALLER, lambda *_: {})


@each_row(("is_error", "status"), [(False, "ok"), (True, "failed")])
async def test_layers_surround_a_call_until_its_result(is_error: bool, status: str):
    layer = Layer()
    calls = calls_of(layer)
    assert await calls.enter(BASH) == Allow({"command": "ls"})
    calls.finish("toolu_2", "another call", False)
    assert layer.ended == []

    calls.finish("toolu_1", "made", is_error)
    calls.finish("toolu_1", "again", False)
    await calls.close()
    assert layer.ended == [("claude-built-in:Bash", status)]


async def test_refusal_of_a_layer_denies_the_call():
    assert await calls_of(refuse).enter(BASH) == Deny("claude-built-in:Bash is over its limit")


async def test_end_of_a_turn_cancels_its_calls_except_calls_of_subagents():
    layer = Layer()
    calls = calls_of(layer)
    await calls.enter(BASH)
    await calls.enter(PermissionRequest("claude-built-in:Write", {}, "toolu_2", agent="toolu_0"))

    calls.cancel(with_agents=False)
    await asyncio.sleep(0)
    assert layer.ended == [("claude-built-in:Bash", "cancelled")]
    await calls.close()
    assert layer.ended[1:] == [("claude-built-in:Write", "cancelled")]


async def test_withdrawn_question_ends_its_call_in_the_layers():
    layer = Layer()

    def waiting(handle: CallHandler) -> CallHandler:
        async def wait(call: Call) -> Outcome:
            await asyncio.Event().wait()
            return await handle(call)

        return wait

    entering = asyncio.create_task(calls_of(layer, waiting).enter(BASH))
    await asyncio.sleep(0)
    entering.cancel()
    await asyncio.gather(entering, return_exceptions=True)
    await asyncio.sleep(0)
    assert layer.ended == [("claude-built-in:Bash", "cancelled")]


async def test_gateway_section_decides_and_records(tmp_path: Path):
    rule = {"id": "shell", "effect": "allow", "who": ["*"], "tools": ["claude-built-in:Bash"]}
    gateway = {"database": str(tmp_path / "gateway.db"), "policy": {"rules": [rule]}}
    config = loads(json.dumps({"mcpServers": {}, "gateway": gateway}).encode())
    origin = {"session": "s-1", "toolUse": "toolu_1", "agent": ""}
    async with local_calls(config, approved) as local:
        calls = BuiltInCalls(local.layers, CALLER, lambda *_: {**origin})
        assert isinstance(await calls.enter(BASH), Allow)
        calls.finish("toolu_1", "made", False)
        denied = await calls.enter(PermissionRequest("claude-built-in:Write", {}, "toolu_2"))
        assert isinstance(denied, Deny)
        await calls.close()

    intent, outcome, refused = await told(tmp_path / "gateway.db")
    assert (intent["kind"], intent["tool"]) == ("intent", "claude-built-in:Bash")
    assert (intent["surface"], intent["origin"]) == ("claude", origin)
    assert (outcome["kind"], outcome["status"]) == ("outcome", "ok")
    assert (refused["kind"], refused["tool"]) == ("refused", "claude-built-in:Write")


async def told(database: Path) -> list[JsonObject]:
    """Return the records about calls, by tool and time."""
    async with AuditReader.open(database) as reader:
        every = [each async for piece in reader.export() for each in piece]
    calls = [each for each in every if each["kind"] in ("intent", "outcome", "refused")]
    return sorted(calls, key=lambda each: (each["tool"], each["at"]))


# With the real program


async def test_tools_of_claude_code_and_its_subagents_pass_the_layers(
    claude: Callable[..., ClaudeCode], api: MessagesApi, claude_program: str
):
    layer = Layer()
    bash = call(("Bash", {"command": "echo made", "description": "x"}))
    agent = {
        "description": "list",
        "prompt": script(bash, say("sub done")),
        "subagent_type": "general-purpose",
        "run_in_background": False,
    }
    name = "Agent" if claude_program == "2.1.330" else "Task"
    fails = call(("Bash", {"command": "exit 3", "description": "x"}))
    async with claude(permissions=allow_all, around=[layer]) as opened:
        await opened.ask(script(fails, call((name, agent)), say("ok")))

    *shell, (subagent, status) = layer.ended
    assert shell == [("claude-built-in:Bash", "failed"), ("claude-built-in:Bash", "ok")]
    assert subagent in ("claude-built-in:Agent", "claude-built-in:Task")  # 2.1.176 uses both names
    assert status == "ok"
