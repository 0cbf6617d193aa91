"""Tools that run only as tasks are called like any other tool, in both eras."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock import Client, Context, Server
from interlock.client import tasks
from interlock.errors import CapabilityError, RemoteError, RequestTimeout
from interlock.protocol import Progress
from interlock.types import ElicitParams, ElicitResult
from tests.support.clock import run_stepped
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text, tool

EXTENSION = "io.modelcontextprotocol/tasks"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "POLL_INTERVAL", 0.0)
    monkeypatch.setattr(tasks, "SHORTEST_POLL", 0.0)


class LegacyTasks(ScriptedServer):
    """A server of 2025-11-25 whose tool runs only as a task."""

    def __init__(self, *states: Json) -> None:
        super().__init__(
            LEGACY, capabilities={"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
        )
        self.states = list(states) or [{"status": "completed"}]
        required = {"execution": {"taskSupport": "required"}}
        self.answers["tools/list"] = {"tools": [tool("slow", **required)]}
        self.answers["tools/call"] = self._create
        self.answers["tasks/get"] = lambda _: self._state()
        self.answers["tasks/result"] = text("done")
        self.answers["tasks/cancel"] = {}

    def _create(self, params: Json) -> Json:
        if "task" not in params:
            raise RemoteError(-32601, "this tool runs only as a task")
        return {"task": {"taskId": "t1", "status": "working", "ttl": None}}

    def _state(self) -> Json:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {"taskId": "t1", "ttl": None, **state}


async def test_tool_of_a_legacy_server_that_runs_only_as_a_task_returns_its_result():
    server = LegacyTasks(
        {"status": "working", "statusMessage": "half"},
        {"status": "working", "statusMessage": "almost"},
        {"status": "completed"},
    )
    told: list[str | None] = []

    def note(progress: Progress) -> None:
        told.append(progress.message)

    async with Client.memory(server, revision=LEGACY) as client:
        await client.list_tools()
        result = await client.call_tool("slow", progress=note)

    assert result.text == "done"
    assert told == ["half", "almost"]


async def test_cancelling_the_call_cancels_the_task():
    server = LegacyTasks({"status": "working"})
    async with Client.memory(server, revision=LEGACY) as client:
        await client.list_tools()
        call = asyncio.create_task(client.call_tool("slow"))
        await server.heard("tasks/get", times=2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    assert server.sent("tasks/cancel") == [{"taskId": "t1"}]


def test_task_that_does_not_end_in_time_is_cancelled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tasks, "POLL_INTERVAL", 1.0)
    server = LegacyTasks({"status": "working"})

    async def use() -> None:
        async with Client.memory(server, revision=LEGACY, hard_timeout=50, timeout=50) as client:
            await client.list_tools()
            with pytest.raises(RequestTimeout, match=r"the task did not end within 50 s"):
                await client.call_tool("slow")

    run_stepped(use())
    assert server.sent("tasks/cancel") == [{"taskId": "t1"}]


def slow_server() -> Server:
    """A modern server with a tool that runs only as a task, and asks in between."""
    server = Server("slow")

    @server.tool(task=True)
    async def slow(context: Context, fails: bool = False) -> str:
        """Take long."""
        if fails:
            raise RemoteError(-32000, "it broke")
        answer = await context.elicit("who?", {"type": "object", "properties": {}})
        return f"done, {answer.action}"

    return server


async def accept(_: ElicitParams) -> ElicitResult:
    return ElicitResult(action="accept", content={})


async def test_tool_of_a_modern_server_that_runs_only_as_a_task_returns_its_result():
    async with Client.memory(slow_server(), revision=MODERN, elicitation=accept) as client:
        assert (await client.call_tool("slow")).text == "done, accept"


async def test_failed_task_of_a_modern_server_raises_its_error():
    def call(params: Json) -> Json:
        if EXTENSION not in params["_meta"][f"{'io.modelcontextprotocol'}/clientCapabilities"].get(
            "extensions", {}
        ):
            required = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
            raise RemoteError(-32021, "this tool runs only as a task", required)
        return {"resultType": "task", "taskId": "t1", "status": "working", "ttlMs": None}

    failed: dict[str, Any] = {"taskId": "t1", "status": "failed", "ttlMs": None}
    failed["error"] = {"code": -32000, "message": "it broke"}
    server = ScriptedServer(MODERN, {"tools/call": call, "tasks/get": failed})
    async with Client.memory(server, revision=MODERN) as client:
        with pytest.raises(RemoteError, match="it broke"):
            await client.call_tool("slow")


async def test_task_whose_question_cannot_be_answered_is_cancelled():
    question = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}
    waiting = {"status": "input_required", "inputRequests": {"q": question}}
    task = {"resultType": "task", "taskId": "t1", "ttlMs": None, **waiting}
    server = ScriptedServer(MODERN, {"tools/call": task, "tasks/cancel": {}})
    async with Client.memory(server, revision=MODERN) as client:
        with pytest.raises(CapabilityError):
            await client.call_tool("slow")

    assert [each["taskId"] for each in server.sent("tasks/cancel")] == ["t1"]


async def test_tool_that_runs_only_as_a_task_can_be_forwarded_for_a_modern_caller():
    server = LegacyTasks()
    async with Client.memory(server, revision=LEGACY) as client:
        await client.list_tools()
        params = b'{"name":"slow","arguments":{}}'
        raw = await client.forward("tools/call", params, name="slow", returns_questions=True)

    assert b"done" in bytes(raw)
