"""Tasks of servers behind a gateway: the client holds an id of the gateway's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import Context, Server
from interlock.errors import ToolError
from interlock.revisions import INVALID_PARAMS, TASKS_EXTENSION
from interlock.server.task_store import MemoryTasks, Task
from interlock.store.audit.reading import AuditReader
from interlock.telemetry import names
from interlock.telemetry.span import CLIENT, SERVER
from tests.gateway.conftest import RunningGateway, bearer
from tests.server.http.conftest import Reply
from tests.support.recorded_spans import named, recorded_spans
from tests.support.scripted_server import Json

EXECUTOR = "interlock__call_write_tool"
TASKS = {"extensions": {TASKS_EXTENSION: {}}}
NAME = {"type": "string", "default": 5}  # the default does not fit
FORM = {"type": "object", "properties": {"name": NAME}, "required": ["name"]}
ALLOWED = {
    "policy": {"rules": [{"id": "all", "effect": "allow", "who": ["*"], "tools": ["*:*"]}]},
    "views": {"search": {"toolSearch": "on"}},
}


class ForgetfulTasks(MemoryTasks):
    """The tasks of a server, until it has forgotten all of them."""

    has_forgotten = False

    async def get(self, id: str) -> Task | None:
        return None if self.has_forgotten else await super().get(id)


class Jobs:
    """A server whose tools are tasks."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.was_cancelled = asyncio.Event()
        self.kept = ForgetfulTasks()
        self.server = Server("jobs", task_store=self.kept)
        self.server.tool(task=True)(self.slow)
        self.server.tool(task="required")(self.greet)

    async def slow(self, size: int = 4) -> str:
        """Wait, and return a text."""
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise
        if size == 0:
            raise ToolError("there is nothing")
        return "done" * (size // 4)

    async def greet(self, context: Context) -> str:
        """Greet a person by name."""
        answer = await context.elicit("Who is it?", FORM)
        return f"Hello, {(answer.content or {})['name']}!"


@pytest.fixture
async def jobs() -> Jobs:
    return Jobs()


async def ask(gateway: RunningGateway, method: str, key: str, task: str, **more: Any) -> Json:
    params = {"taskId": task, **more}
    can = TASKS | {"elicitation": {"form": {}}}
    headers = bearer(key) | {"mcp-name": task}
    reply = await gateway.http.ask(method, params, capabilities=can, headers=headers)
    found: Json = reply.json
    return found


class Way:
    """How a client calls a tool: by its own name, or by way of an executor."""

    def __init__(self, *, is_direct: bool) -> None:
        self._is_direct = is_direct

    def named(self, tool: str) -> str:
        """Return the name that the client calls."""
        return tool if self._is_direct else EXECUTOR

    async def call(self, gateway: RunningGateway, key: str, tool: str, **arguments: Any) -> Reply:
        """Call a tool, without tasks."""
        return await self._send(gateway, key, tool, arguments)

    async def begin(self, gateway: RunningGateway, key: str, tool: str, **arguments: Any) -> Json:
        """Return the result of a call as a client that has tasks and answers questions."""
        can = TASKS | {"elicitation": {"form": {}}}
        found: Json = (await self._send(gateway, key, tool, arguments, capabilities=can)).json
        assert isinstance(found, dict)
        return found.get("result") or found

    async def _send(
        self, gateway: RunningGateway, key: str, tool: str, arguments: Json, **more: Any
    ) -> Reply:
        if self._is_direct:
            return await gateway.http.call(tool, arguments, headers=bearer(key), **more)
        given = {"name": tool, "arguments": arguments}
        return await gateway.http.call(
            EXECUTOR, given, path="/mcp/search", headers=bearer(key), **more
        )


@pytest.fixture(params=[True, False], ids=["directly", "by an executor"])
def way(request: pytest.FixtureRequest) -> Way:
    return Way(is_direct=request.param)


async def state(gateway: RunningGateway, key: str, task: str, status: str) -> Json:
    """Poll until a task has a status."""
    while True:
        found: Json = (await ask(gateway, "tasks/get", key, task))["result"]
        if found["status"] == status:
            return found
        await asyncio.sleep(0)


async def events(folder: Path) -> list[tuple[str, str, str]]:
    """Return kind, reason and event of the records of calls and of their tasks."""
    async with AuditReader.open(folder / "gateway.db") as reader:
        every = [each async for piece in reader.export() for each in piece]
    assert len({each["call"] for each in every if each.get("call")}) == 1
    assert {each["tool"] for each in every if each.get("call")} <= {"jobs:slow", "jobs:greet"}
    return [
        (each["kind"], each.get("reason", ""), each.get("event", ""))
        for each in every
        if each.get("call")
    ]


async def test_task_is_polled_under_an_id_of_the_gateway_and_recorded_to_its_end(
    running: Callable[..., Any], jobs: Jobs, tmp_path: Path, way: Way
):
    async with running(ALLOWED, jobs=jobs.server) as gateway:
        key = await gateway.key()
        made = await way.begin(gateway, key, "jobs__slow")
        during = (await ask(gateway, "tasks/get", key, made["taskId"]))["result"]
        jobs.go_on.set()
        after = await state(gateway, key, made["taskId"], "completed")
        again = await state(gateway, key, made["taskId"], "completed")

    assert made["resultType"] == "task"
    assert (during["taskId"], during["status"]) == (made["taskId"], "working")
    assert during["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "interlock"
    assert after["result"]["content"] == [{"type": "text", "text": "done"}]
    assert again == after
    assert await events(tmp_path) == [
        ("intent", "", ""),
        ("outcome", "task_begun", ""),
        ("task", "", "completed"),
    ]


async def test_task_is_cancelled_at_its_server(running: Callable[..., Any], jobs: Jobs, way: Way):
    async with running(ALLOWED, jobs=jobs.server) as gateway:
        key = await gateway.key()
        made = await way.begin(gateway, key, "jobs__slow")
        reply = await ask(gateway, "tasks/cancel", key, made["taskId"])
        await jobs.was_cancelled.wait()
        await state(gateway, key, made["taskId"], "cancelled")

    assert reply["result"]["resultType"] == "complete"


async def test_requests_about_a_task_have_spans_that_are_linked_to_its_call(
    running: Callable[..., Any], jobs: Jobs, way: Way
):
    with recorded_spans() as spans:
        async with running(ALLOWED, jobs=jobs.server) as gateway:
            key = await gateway.key()
            made = await way.begin(gateway, key, "jobs__slow")
            await ask(gateway, "tasks/get", key, made["taskId"])
            await ask(gateway, "tasks/cancel", key, made["taskId"])
            await jobs.was_cancelled.wait()

    call = named(spans, f"tools/call {way.named('jobs__slow')}")
    for method in ("tasks/get", "tasks/cancel"):
        sent = next(each for each in spans if (each.kind, each.name) == (CLIENT, method))
        (served,) = (each for each in spans if each.id == sent.parent)
        assert (served.kind, served.name) == (SERVER, method)
        assert [each.parent[36:52] for each in served.links] == [call.id]
        assert served.attributes[names.CALL] == call.attributes[names.CALL]


async def test_question_of_a_task_is_answered_by_the_client(
    running: Callable[..., Any], jobs: Jobs, tmp_path: Path, way: Way
):
    async with running(ALLOWED, jobs=jobs.server) as gateway:
        key = await gateway.key()
        made = await way.begin(gateway, key, "jobs__greet")
        asking = await state(gateway, key, made["taskId"], "input_required")
        ((question, asked),) = asking["inputRequests"].items()
        answers = {question: {"action": "accept", "content": {"name": "Ada"}}}
        await ask(gateway, "tasks/update", key, made["taskId"], inputResponses=answers)
        after = await state(gateway, key, made["taskId"], "completed")

    assert asked["params"]["message"] == "jobs asks: Who is it?"
    assert asked["params"]["requestedSchema"]["properties"] == {"name": {"type": "string"}}
    assert after["result"]["content"] == [{"type": "text", "text": "Hello, Ada!"}]
    assert ("task", "", "answered") in await events(tmp_path)


async def test_task_id_gives_no_access_to_another_user_or_without_the_right_to_its_tool(
    running: Callable[..., Any], jobs: Jobs, way: Way
):
    async with running(ALLOWED, jobs=jobs.server) as gateway:
        anna, ben = await gateway.key("anna"), await gateway.key("ben")
        made = await way.begin(gateway, anna, "jobs__slow")
        replies = [
            await ask(gateway, method, ben, made["taskId"], **more)
            for method, more in [
                ("tasks/get", {}),
                ("tasks/update", {"inputResponses": {}}),
                ("tasks/cancel", {}),
            ]
        ]
        replies.append(await ask(gateway, "tasks/get", anna, "c_made_up"))
        assert (await ask(gateway, "tasks/get", anna, made["taskId"]))["result"]
        await gateway.reload(
            {"policy": {"rules": [{"id": "no", "effect": "deny", "who": ["*"], "tools": ["*:*"]}]}},
            jobs=jobs.server,
        )
        replies.append(await ask(gateway, "tasks/get", anna, made["taskId"]))

    assert {each["error"]["code"] for each in replies} == {INVALID_PARAMS}
    assert len({each["error"]["message"] for each in replies}) == 1


async def test_result_of_a_task_stays_within_the_budget(
    running: Callable[..., Any], jobs: Jobs, way: Way
):
    async with running(ALLOWED, jobs=jobs.server) as gateway:
        key = await gateway.key()
        made = await way.begin(gateway, key, "jobs__slow", size=400_000)
        jobs.go_on.set()
        after = await state(gateway, key, made["taskId"], "completed")

    shown = "".join(each.get("text", "") for each in after["result"]["content"])
    assert len(shown) < 100_000
    assert "interlock__read_result" in shown


async def test_client_without_tasks_waits_for_the_result_or_gets_the_missing_capability(
    running: Callable[..., Any], jobs: Jobs, way: Way
):
    async with running(ALLOWED, jobs=jobs.server) as gateway:
        key = await gateway.key()
        jobs.go_on.set()
        plain = await way.call(gateway, key, "jobs__slow")
        required = await way.call(gateway, key, "jobs__greet")

    assert plain.text == "done"
    needed = required.json["error"]["data"]["requiredCapabilities"]
    assert TASKS_EXTENSION in needed["extensions"]


async def test_task_unknown_to_its_server_looks_like_a_task_that_never_existed(
    running: Callable[..., Any], jobs: Jobs, way: Way
):
    async with running(ALLOWED, jobs=jobs.server) as gateway:
        key = await gateway.key()
        made = await way.begin(gateway, key, "jobs__slow")
        jobs.go_on.set()
        await state(gateway, key, made["taskId"], "completed")
        jobs.kept.has_forgotten = True
        gone = await ask(gateway, "tasks/get", key, made["taskId"])
        never = await ask(gateway, "tasks/get", key, "c_made_up")

    assert gone["error"] == never["error"]
