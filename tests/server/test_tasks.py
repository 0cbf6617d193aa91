"""Tasks: calls that run on after they were answered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from interlock import revisions
from interlock.auth.principal import Principal
from interlock.client import Client
from interlock.client.features import ClientFeatures
from interlock.client.handshake import meta_of
from interlock.connection import Connection
from interlock.context import Context, elicitation
from interlock.errors import (
    InterlockError,
    LocalProtocolError,
    MissingCapability,
    RemoteError,
    ToolError,
    to_wire,
)
from interlock.protocol import Notification, Protocol, Request, RequestOptions
from interlock.protocol.envelope import encode
from interlock.server import Server, tasks
from interlock.server.task_store import MemoryTasks, Task
from interlock.types import ClientCapabilities, ElicitResult, Implementation
from tests.support.rows import each_row

NAME = revisions.TASKS_EXTENSION
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
METHODS = ["tasks/get", "tasks/update", "tasks/cancel"]


async def _fill_in(question: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "Ada"})


@asynccontextmanager
async def task_client(server: Server, **options: Any) -> AsyncIterator[Client]:
    """Connect a client that declares tasks and elicitation."""
    options = {"extensions": {NAME: {}}, "elicitation": _fill_in, **options}
    async with Client.memory(server, revision=revisions.NEWEST, **options) as client:
        yield client


async def call(client: Client, name: str, arguments: Any = None, **more: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments or {}, **more}
    return msgspec.json.decode(await client.request("tools/call", params))


async def ask(client: Client, method: str, id: str, **more: Any) -> dict[str, Any]:
    return msgspec.json.decode(await client.request(method, {"taskId": id, **more}))


async def wait_for_status(client: Client, id: str, *statuses: str) -> dict[str, Any]:
    """Get a task until it has one of these statuses."""
    for _ in range(200):
        task = await ask(client, "tasks/get", id)
        if task["status"] in statuses:
            return task
    raise AssertionError(f"the task stays {task['status']}")


async def wait_for_end(client: Client, id: str) -> dict[str, Any]:
    return await wait_for_status(client, id, "completed", "failed", "cancelled")


class Work:
    """A tool's function that waits for `go_on`, and notes when it is cancelled."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, context: Context) -> str:
        self.started.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "done"


def slow_server(**options: Any) -> tuple[Server, Work]:
    server, work = Server("test", **options), Work()

    @server.tool(task=True)
    async def slow(context: Context) -> str:
        return await work(context)

    return server, work


# From the call to the result


async def test_a_call_is_answered_with_a_task_and_the_task_gets_the_result():
    server, work = slow_server()
    async with task_client(server) as client:
        made = await call(client, "slow")
        await work.started.wait()
        during = await ask(client, "tasks/get", made["taskId"])
        work.go_on.set()
        after = await wait_for_end(client, made["taskId"])

    assert made["resultType"] == "task"
    assert set(made) == {
        "resultType", "taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs",
        "pollIntervalMs", "_meta",
    }  # fmt: skip
    assert (made["status"], made["ttlMs"], made["pollIntervalMs"]) == ("working", 3_600_000, 1_000)
    assert datetime.fromisoformat(made["createdAt"]) <= datetime.now(UTC)
    assert during["resultType"] == "complete"
    assert not {"result", "error", "inputRequests", "requestState"} & set(during)
    assert {"taskId", "createdAt"} <= set(during)
    assert (after["resultType"], after["status"]) == ("complete", "completed")
    assert after["result"]["content"] == [{"type": "text", "text": "done"}]
    assert after["ttlMs"] >= 3_600_000
    assert after["createdAt"] == made["createdAt"]
    assert after["lastUpdatedAt"] > made["createdAt"]


async def test_ids_cannot_be_guessed():
    server, _ = slow_server()
    async with task_client(server) as client:
        ids = [(await call(client, "slow"))["taskId"] for _ in range(20)]

    assert len(set(ids)) == 20
    assert {len(each) for each in ids} == {32}  # 192 bits
    assert all(each.isascii() for each in ids)


async def test_a_plain_function_may_be_a_task():
    server = Server("test")
    go_on = threading.Event()

    @server.tool(task=True)
    def slow() -> str:
        go_on.wait()
        return "done"

    async with task_client(server) as client:
        made = await call(client, "slow")
        assert (await ask(client, "tasks/get", made["taskId"]))["status"] == "working"
        go_on.set()
        while (task := await ask(client, "tasks/get", made["taskId"]))["status"] == "working":
            pass
    server.close()

    assert task["result"]["content"][0]["text"] == "done"


@each_row("more", [{}, {"task": {"ttl": 60_000}}], ids=["no hint", "old hint"])
async def test_a_tool_without_task_answers_with_its_result(more):
    server, _ = slow_server()

    @server.tool
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    async with task_client(server) as client:
        result = await call(client, "greet", {"name": "Ada"}, **more)

    assert result["resultType"] == "complete"
    assert "taskId" not in result


# Failures


async def test_a_tool_error_completes_its_task():
    server = Server("test")

    @server.tool(task=True)
    async def failing() -> str:
        raise ToolError("no such city")

    async with task_client(server) as client:
        task = await wait_for_end(client, (await call(client, "failing"))["taskId"])

    assert task["status"] == "completed"
    assert task["result"]["isError"] is True
    assert "error" not in task


async def test_wrong_arguments_complete_the_task_with_an_error():
    server = Server("test")

    @server.tool(task=True)
    async def wait(seconds: int) -> str:
        return ""

    async with task_client(server) as client:
        task = await wait_for_end(client, (await call(client, "wait", {"seconds": "x"}))["taskId"])

    assert task["result"]["isError"] is True
    assert "seconds" in task["result"]["content"][0]["text"]


async def test_a_json_rpc_error_fails_the_task():
    server = Server("test")

    @server.tool(task=True)
    async def failing(context: Context) -> str:
        await context.roots()  # which the client did not declare
        return ""

    async with task_client(server) as client:
        task = await wait_for_end(client, (await call(client, "failing"))["taskId"])

    assert task["status"] == "failed"
    assert task["error"]["code"] == revisions.MISSING_CAPABILITY
    assert task["error"]["data"] == {"requiredCapabilities": {"roots": {}}}
    assert task["statusMessage"] == task["error"]["message"]
    assert "result" not in task


async def test_a_task_that_takes_too_long_fails():
    server, work = slow_server(task_ttl=0.01)
    async with task_client(server) as client:
        made = await call(client, "slow")
        await work.cancelled.wait()
        task = await wait_for_end(client, made["taskId"])

    assert task["status"] == "failed"
    assert "0.01 s" in task["error"]["message"]
    assert made["ttlMs"] == 10


# Cancelling


async def test_cancelling_a_task_cancels_its_function():
    server, work = slow_server()
    async with task_client(server) as client:
        id = (await call(client, "slow"))["taskId"]
        await work.started.wait()
        acknowledged = await ask(client, "tasks/cancel", id)
        task = await ask(client, "tasks/get", id)
        await work.cancelled.wait()

    assert set(acknowledged) == {"resultType", "_meta"}
    assert acknowledged["resultType"] == "complete"
    assert task["status"] == "cancelled"
    assert not {"result", "error"} & set(task)


async def test_a_result_after_the_cancellation_is_ignored():
    server = Server("test")
    started, stubborn, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @server.tool(task=True)
    async def slow(context: Context) -> str:
        try:
            started.set()
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            context.progress(1, message="going on all the same")
            stubborn.set()
            await go_on.wait()
        return "done all the same"

    async with task_client(server) as client:
        id = (await call(client, "slow"))["taskId"]
        await started.wait()
        await ask(client, "tasks/cancel", id)
        await stubborn.wait()
        during = await ask(client, "tasks/get", id)
        go_on.set()
        after = await ask(client, "tasks/get", id)

    assert (during["status"], during["statusMessage"]) == ("cancelled", "cancelled by the client")
    assert after == during


@each_row("method", ["tasks/cancel", "tasks/update"])
async def test_updating_or_cancelling_an_ended_task_changes_nothing(method):
    server, work = slow_server()
    work.go_on.set()
    more = {"inputResponses": {}} if method == "tasks/update" else {}
    async with task_client(server) as client:
        id = (await call(client, "slow"))["taskId"]
        before = await wait_for_end(client, id)
        acknowledged = await ask(client, method, id, **more)

        assert set(acknowledged) == {"resultType", "_meta"}
        assert await ask(client, "tasks/get", id) == before


async def test_a_call_that_is_cancelled_before_it_is_a_task_ends():
    server, work = Server("test"), Work()

    @server.tool(task="later")
    async def slow(context: Context) -> str:
        return await work(context)

    async with task_client(server) as client:
        calling = asyncio.create_task(call(client, "slow"))
        await work.started.wait()
        calling.cancel()
        await work.cancelled.wait()


async def test_tasks_are_cancelled_before_the_lifespan_ends():
    order: list[str] = []

    @asynccontextmanager
    async def lifespan(_server: Server) -> AsyncIterator[None]:
        yield
        order.append("closed")

    server = Server("test", lifespan=lifespan)
    started = asyncio.Event()

    @server.tool(task=True)
    async def slow() -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            order.append("cancelled")

    before = asyncio.all_tasks()
    async with server.running():
        made = await as_principal(server, "ada", "tools/call", {"name": "slow"})
        await started.wait()

    assert order == ["cancelled", "closed"]
    assert asyncio.all_tasks() == before
    task = await as_principal(server, "ada", "tasks/get", {"taskId": made["taskId"]})
    assert (task["status"], task["statusMessage"]) == ("cancelled", "the server has stopped")


async def test_a_task_outlives_its_connection():
    server, work = slow_server()
    async with server.running():
        async with task_client(server) as client:
            id = (await call(client, "slow"))["taskId"]
        work.go_on.set()
        async with task_client(server) as client:
            assert (await wait_for_end(client, id))["status"] == "completed"


# Questions


def asking_server(**options: Any) -> Server:
    server = Server("test", **options)
    runs: list[int] = []

    @server.tool(task=True)
    async def confirm(context: Context) -> str:
        runs.append(1)
        answer = await context.elicit("Who are you?", FORM, key="who")
        return f"{answer.action} {answer.content} in run {len(runs)}"

    @server.tool(task=True)
    async def both(context: Context) -> str:
        answers = await context.ask(
            {"one": elicitation("One?", FORM), "two": elicitation("Two?", FORM)}
        )
        return " ".join(answers[key].content["name"] for key in ("one", "two"))

    return server


def accepted(name: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": name}}


async def test_a_task_that_asks_continues_once_its_answer_arrives():
    async with task_client(asking_server()) as client:
        id = (await call(client, "confirm"))["taskId"]
        asking = await wait_for_status(client, id, "input_required")
        acknowledged = await ask(
            client, "tasks/update", id, inputResponses={"who": accepted("Ada")}
        )
        task = await wait_for_end(client, id)

    assert asking["inputRequests"]["who"]["method"] == "elicitation/create"
    assert asking["inputRequests"]["who"]["params"]["message"] == "Who are you?"
    assert "requestState" not in asking
    assert set(acknowledged) == {"resultType", "_meta"}
    assert "inputRequests" not in task
    assert task["result"]["content"][0]["text"] == "accept {'name': 'Ada'} in run 1"


async def test_questions_of_a_task_may_be_answered_one_by_one():
    async with task_client(asking_server()) as client:
        id = (await call(client, "both"))["taskId"]
        first = await wait_for_status(client, id, "input_required")
        await ask(client, "tasks/update", id, inputResponses={"one": accepted("Ada")})
        second = await ask(client, "tasks/get", id)
        await ask(client, "tasks/update", id, inputResponses={"one": accepted("Eve")})
        third = await ask(client, "tasks/get", id)
        await ask(client, "tasks/update", id, inputResponses={"two": accepted("Bob")})
        task = await wait_for_end(client, id)

    assert set(first["inputRequests"]) == {"one", "two"}
    assert (second["status"], set(second["inputRequests"])) == ("input_required", {"two"})
    assert third["inputRequests"] == second["inputRequests"]
    assert task["result"]["content"][0]["text"] == "Ada Bob"  # a second answer is ignored


async def test_answers_to_unknown_questions_are_ignored():
    async with task_client(asking_server()) as client:
        id = (await call(client, "confirm"))["taskId"]
        before = await wait_for_status(client, id, "input_required")
        await ask(client, "tasks/update", id, inputResponses={"other": {"ignored": True}})

        assert await ask(client, "tasks/get", id) == before


@each_row("answers", [{"one": accepted("Ada"), "two": 7}, {"two": {"action": 1}}, None])
async def test_a_malformed_answer_is_refused_as_a_whole(answers):
    async with task_client(asking_server()) as client:
        id = (await call(client, "both"))["taskId"]
        before = await wait_for_status(client, id, "input_required")
        with pytest.raises(RemoteError) as refused:
            await ask(client, "tasks/update", id, inputResponses=answers)

        assert refused.value.code == revisions.INVALID_PARAMS
        assert await ask(client, "tasks/get", id) == before


async def test_questions_that_the_function_stops_waiting_for_are_withdrawn():
    server = Server("test")
    asked, given_up, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @server.tool(task=True)
    async def impatient(context: Context) -> str:
        question = asyncio.create_task(context.elicit("Who?", FORM, key="who"))
        await asked.wait()
        question.cancel()
        await asyncio.wait({question})
        given_up.set()
        await go_on.wait()
        return "without you"

    async with task_client(server) as client:
        id = (await call(client, "impatient"))["taskId"]
        await wait_for_status(client, id, "input_required")
        asked.set()
        await given_up.wait()
        task = await ask(client, "tasks/get", id)
        await ask(client, "tasks/update", id, inputResponses={"who": accepted("late")})
        go_on.set()
        after = await wait_for_end(client, id)

    assert task["status"] == "working"
    assert "inputRequests" not in task
    assert after["result"]["content"][0]["text"] == "without you"


async def test_question_key_cannot_be_used_twice_at_the_same_time():
    server = Server("test")

    @server.tool(task=True)
    async def confused(context: Context) -> str:
        first = asyncio.create_task(context.elicit("One?", FORM, key="same"))
        await asyncio.sleep(0)
        try:
            await context.elicit("Two?", FORM, key="same")
        except LocalProtocolError as error:
            return str(error)
        finally:
            first.cancel()
        return "no error"

    async with task_client(server) as client:
        task = await wait_for_end(client, (await call(client, "confused"))["taskId"])

    assert "same" in task["result"]["content"][0]["text"]


async def test_a_task_that_waits_for_an_answer_can_be_cancelled():
    async with task_client(asking_server()) as client:
        id = (await call(client, "confirm"))["taskId"]
        await wait_for_status(client, id, "input_required")
        await ask(client, "tasks/cancel", id)
        task = await ask(client, "tasks/get", id)

    assert task["status"] == "cancelled"
    assert "inputRequests" not in task


# Questions before the task


def server_that_begins_tasks_later() -> Server:
    server = Server("test")

    @server.tool(task="later")
    async def slow_greeting(context: Context) -> str:
        first = await context.elicit("Your name?", FORM, key="user_name")
        context.progress(1, 2, "of the call")
        await context.begin_task()
        second = await context.elicit("Your friend's?", FORM, key="friend_name")
        again = await context.elicit("Your name?", FORM, key="user_name")
        assert again == first
        return f"{first.content['name']} and {second.content['name']}"

    return server


async def test_a_tool_may_ask_before_and_after_it_becomes_a_task():
    async with task_client(server_that_begins_tasks_later()) as client:
        asking = await call(client, "slow_greeting")
        made = await call(
            client,
            "slow_greeting",
            inputResponses={"user_name": accepted("Ada")},
            requestState=asking["requestState"],
        )
        during = await wait_for_status(client, made["taskId"], "input_required")
        await ask(
            client, "tasks/update", made["taskId"], inputResponses={"friend_name": accepted("Bob")}
        )
        task = await wait_for_end(client, made["taskId"])

    assert asking["resultType"] == "input_required"
    assert "taskId" not in asking
    assert made["resultType"] == "task"
    assert not {"requestState", "inputRequests"} & set(made)
    assert set(during["inputRequests"]) == {"friend_name"}
    assert task["result"]["content"][0]["text"] == "Ada and Bob"


async def test_a_later_tool_that_never_begins_a_task_answers_with_its_result():
    server = Server("test")

    @server.tool(task="later")
    async def quick(fast: bool, context: Context) -> str:
        if not fast:
            await context.begin_task()
            await context.begin_task()  # it is a task already
        return "done"

    async with task_client(server) as client:
        assert (await call(client, "quick", {"fast": True}))["content"][0]["text"] == "done"
        made = await call(client, "quick", {"fast": False})
        task = await wait_for_end(client, made["taskId"])

    assert made["resultType"] == "task"
    assert task["result"]["content"][0]["text"] == "done"


async def test_progress_of_a_call_is_the_status_message_of_its_task():
    server = Server("test")
    said, go_on = asyncio.Event(), asyncio.Event()

    @server.tool(task="later")
    async def slow(context: Context) -> str:
        context.log("info", "before")
        await context.begin_task()
        context.progress(2, 3, "half of it")
        context.progress(3, 3)
        context.log("error", "never seen")
        said.set()
        await go_on.wait()
        return "done"

    async with wire(server) as (connection, notices):
        members = {"progressToken": "t", revisions.LOG_LEVEL_KEY: "debug"}
        made = await request(connection, "tools/call", {"name": "slow", "_meta": members})
        await said.wait()
        during = await request(connection, "tasks/get", {"taskId": made["taskId"]})
        go_on.set()

    assert during["statusMessage"] == "half of it"
    assert [each["data"] for _, each in notices] == ["before"]  # nothing after the answer


# Clients without the extension


async def test_modern_clients_without_the_extension_wait_for_the_result():
    async with task_client(asking_server(), extensions={}) as client:
        result = await client.call_tool("confirm")

    assert result.text == "accept {'name': 'Ada'} in run 2"  # asked in rounds, not by a task


async def test_legacy_clients_wait_for_the_result():
    async with Client.memory(asking_server(), revision="legacy", elicitation=_fill_in) as client:
        assert (await client.call_tool("confirm")).text == "accept {'name': 'Ada'} in run 1"
        assert client.capabilities.extensions is None
        for method in METHODS:
            with pytest.raises(RemoteError) as refused:
                await ask(client, method, "x", inputResponses={})
            assert refused.value.code == revisions.METHOD_NOT_FOUND


async def test_legacy_client_gets_no_task_even_if_it_declares_tasks():
    server, work = slow_server()
    work.go_on.set()
    params = {"name": "slow", "task": {"ttl": 60_000}}

    result = await as_principal(server, "ada", "tools/call", params, "2025-11-25")

    assert result == {"content": [{"type": "text", "text": "done"}]}


async def test_begin_task_does_nothing_without_the_extension():
    async with task_client(server_that_begins_tasks_later(), extensions={}) as client:
        assert (await client.call_tool("slow_greeting")).text == "Ada and Ada"


@each_row("revision", [revisions.NEWEST, "legacy"])
async def test_a_tool_that_requires_tasks_refuses_clients_without_the_extension(revision):
    server = Server("test")
    ran = []

    @server.tool(task="required")
    async def slow() -> None:
        ran.append(1)

    async with Client.memory(server, revision=revision) as client:
        with pytest.raises(RemoteError) as refused:
            await call(client, "slow")

    assert refused.value.code == revisions.MISSING_CAPABILITY
    assert refused.value.data == {"requiredCapabilities": {"extensions": {NAME: {}}}}
    assert ran == []


async def test_a_tool_that_requires_tasks_answers_with_one():
    server = Server("test")

    @server.tool(task="required")
    async def slow() -> None: ...

    async with task_client(server) as client:
        assert (await call(client, "slow"))["resultType"] == "task"


@each_row("method", METHODS)
async def test_methods_of_tasks_need_the_declared_extension(method):
    server, work = slow_server()
    async with task_client(server) as client, task_client(server, extensions={}) as other:
        id = (await call(client, "slow"))["taskId"]
        with pytest.raises(RemoteError) as refused:
            await ask(other, method, id, inputResponses={})
        work.go_on.set()

    assert refused.value.code == revisions.MISSING_CAPABILITY
    assert refused.value.data == {"requiredCapabilities": {"extensions": {NAME: {}}}}


# Capabilities


async def test_the_extension_is_advertised_if_a_tool_may_be_a_task():
    server, _ = slow_server()
    async with task_client(server) as client:
        assert client.capabilities.extensions == {NAME: {}}
    server.remove_tool("slow")
    async with task_client(server) as client:
        assert client.capabilities.extensions is None


@each_row("method", METHODS)
async def test_methods_of_tasks_are_unknown_if_no_tool_has_tasks(method):
    async with task_client(Server("test")) as client:
        with pytest.raises(RemoteError) as refused:
            await ask(client, method, "x", inputResponses={})

    assert refused.value.code == revisions.METHOD_NOT_FOUND


@each_row("method", ["tasks/result", "tasks/list"])
async def test_methods_of_the_tasks_of_2025_11_25_are_unknown(method):
    server, _ = slow_server()
    async with task_client(server) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request(method, {})

    assert refused.value.code == revisions.METHOD_NOT_FOUND


# Owners


class NoClient:
    """A back channel without a client."""

    def notify(self, method: str, params: bytes) -> None: ...

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        raise AssertionError("modern clients are not asked")


async def as_principal(
    server: Server,
    who: str | Principal | None,
    method: str,
    params: dict[str, Any],
    revision: str = revisions.NEWEST,
) -> dict[str, Any]:
    context = Context(
        revision=revision,
        request_id=1,
        link=NoClient(),
        loop=asyncio.get_running_loop(),
        client_capabilities=ClientCapabilities(extensions={NAME: {}}),
        principal=Principal(who) if isinstance(who, str) else who,
    )
    return msgspec.json.decode(
        await server.answer(Request(1, method, Raw(encode(params))), context)
    )


@each_row("method", METHODS)
@each_row("other", ["eve", "", "ad", None, Principal("ada", tenant="other")])
async def test_a_task_of_another_principal_looks_unknown(method, other):
    server, work = slow_server()
    async with server.running():
        made = await as_principal(server, "ada", "tools/call", {"name": "slow"})
        await work.started.wait()
        refusals = []
        for id in (made["taskId"], "no-such-task"):
            params = {"taskId": id, "inputResponses": {}}
            with pytest.raises(InterlockError) as refused:
                await as_principal(server, other, method, params)
            refusals.append(to_wire(refused.value))

        own = await as_principal(server, "ada", "tasks/get", {"taskId": made["taskId"]})
        assert own["status"] == "working"
        assert not work.cancelled.is_set()

    assert refusals[0] == refusals[1]
    assert refusals[0][0] == revisions.INVALID_PARAMS


@each_row("params", [{}, {"taskId": 7}, {"taskId": None}])
@each_row("method", METHODS)
async def test_params_without_an_id_are_invalid(method, params):
    server, _ = slow_server()
    async with task_client(server) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request(method, {"inputResponses": {}, **params})

    assert refused.value.code == revisions.INVALID_PARAMS


async def test_running_tasks_are_limited_in_all_and_for_each_principal(monkeypatch):
    monkeypatch.setattr(tasks, "MAX_RUNNING_EACH", 2)
    monkeypatch.setattr(tasks, "MAX_RUNNING", 3)
    server, work = slow_server()
    async with server.running():
        for _ in range(2):
            await as_principal(server, "ada", "tools/call", {"name": "slow"})
        with pytest.raises(InterlockError, match="limit 2"):
            await as_principal(server, "ada", "tools/call", {"name": "slow"})
        made = await as_principal(server, "bob", "tools/call", {"name": "slow"})
        with pytest.raises(InterlockError, match="limit 3"):
            await as_principal(server, "eve", "tools/call", {"name": "slow"})

        await as_principal(server, "bob", "tasks/cancel", {"taskId": made["taskId"]})
        await work.cancelled.wait()
        await asyncio.sleep(0)
        await as_principal(server, "eve", "tools/call", {"name": "slow"})


# Notifications


@asynccontextmanager
async def wire(
    server: Server, extensions: Any = None
) -> AsyncIterator[tuple[Connection, list[tuple[str, dict[str, Any]]]]]:
    """Open a connection that keeps every notification."""
    notices: list[tuple[str, dict[str, Any]]] = []

    def keep(notice: Notification) -> None:
        notices.append((notice.method, msgspec.json.decode(notice.params)))

    async def refuse(request: Request) -> None:
        raise AssertionError(request.method)

    protocol = Protocol()
    asks = ClientFeatures(None, None, _fill_in, {NAME: {}} if extensions is None else extensions)
    protocol.meta = meta_of(
        revisions.NEWEST, asks.capabilities(revisions.NEWEST), Implementation(name="test")
    )
    connection = Connection(
        protocol,
        server.connect(),
        on_request=refuse,
        on_notification=keep,
        on_loss=lambda error: None,
    )
    await connection.open()
    try:
        yield connection, notices
    finally:
        await connection.close()


async def request(connection: Connection, method: str, params: dict[str, Any]) -> dict[str, Any]:
    others = dict(params)
    members = encode(others.pop("_meta", {}))[1:-1]
    options = RequestOptions(hard_timeout=10, meta=members)
    raw = await connection.request(method, encode(others), options)
    return msgspec.json.decode(raw)


async def turns(notices: list[Any], count: int) -> None:
    for _ in range(200):
        if len(notices) >= count:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{len(notices)} of {count}: {notices}")


async def test_a_subscriber_is_notified_of_each_status_as_tasks_get_returns_it():
    async with wire(asking_server()) as (connection, notices):
        id = (await request(connection, "tools/call", {"name": "confirm"}))["taskId"]
        wanted = {"notifications": {"taskIds": [id, "unknown", id]}}
        listening = asyncio.create_task(request(connection, "subscriptions/listen", wanted))
        await turns(notices, 1)
        answers = {"who": accepted("Ada")}
        await request(connection, "tasks/update", {"taskId": id, "inputResponses": answers})
        await turns(notices, 3)
        task = await request(connection, "tasks/get", {"taskId": id})
        listening.cancel()

    (acknowledged, granted), *changes = notices
    assert acknowledged == "notifications/subscriptions/acknowledged"
    assert granted["notifications"] == {"taskIds": [id]}  # unknown tasks are left out
    assert [method for method, _ in changes] == ["notifications/tasks"] * 2
    assert [each["status"] for _, each in changes] == ["working", "completed"]
    _, last = changes[-1]
    subscription = granted["_meta"][revisions.SUBSCRIPTION_KEY]
    assert last.pop("_meta") == {revisions.SUBSCRIPTION_KEY: subscription}
    assert last == {key: task[key] for key in task if key not in ("_meta", "resultType")}


async def test_a_subscriber_is_not_notified_of_tasks_of_others():
    server, work = slow_server()
    async with server.running(), wire(server) as (connection, notices):
        foreign = (await as_principal(server, "ada", "tools/call", {"name": "slow"}))["taskId"]
        own = (await request(connection, "tools/call", {"name": "slow"}))["taskId"]
        wanted = {"notifications": {"taskIds": [foreign, own]}}
        listening = asyncio.create_task(request(connection, "subscriptions/listen", wanted))
        await turns(notices, 1)
        work.go_on.set()
        await turns(notices, 2)
        listening.cancel()

    assert notices[0][1]["notifications"] == {"taskIds": [own]}
    assert {each["taskId"] for _, each in notices[1:]} == {own}


async def test_subscribing_to_tasks_needs_the_declared_extension():
    server, _ = slow_server()
    async with wire(server, extensions={}) as (connection, notices):
        with pytest.raises(RemoteError) as refused:
            await request(connection, "subscriptions/listen", {"notifications": {"taskIds": ["x"]}})

    assert refused.value.code == revisions.MISSING_CAPABILITY
    assert notices == []


# Stores


async def test_a_store_without_room_for_a_result_fails_the_task():
    server, work = slow_server(task_store=MemoryTasks(max_bytes=300))
    work.go_on.set()

    @server.tool(task=True)
    async def large() -> str:
        return "x" * 1_000

    async with task_client(server) as client:
        assert (await wait_for_end(client, (await call(client, "slow"))["taskId"]))["status"] == (
            "completed"
        )
        task = await wait_for_end(client, (await call(client, "large"))["taskId"])

    assert task["status"] == "failed"
    assert "no room" in task["error"]["message"]


@pytest.mark.parametrize("tool", ["now", "later"])
async def test_a_store_without_room_for_a_task_refuses_the_call(tool, caplog):
    server = Server("test", task_store=MemoryTasks(max_tasks=0))

    @server.tool(task=True)
    async def now() -> str:
        return "done"

    @server.tool(task="later")
    async def later(context: Context) -> str:
        try:
            await context.begin_task()
        except InterlockError as error:
            raise ToolError(str(error)) from None
        return "done"

    async with task_client(server) as client:
        if tool == "now":
            with pytest.raises(RemoteError, match="no room"):
                await call(client, "now")
        else:
            result = await call(client, "later")
            assert result["isError"] is True
            assert "no room" in result["content"][0]["text"]


async def test_a_task_is_stored_before_the_client_gets_its_handle():
    putting, may_put = asyncio.Event(), asyncio.Event()

    class Slow(MemoryTasks):
        async def put(self, task: Task) -> None:
            putting.set()
            await may_put.wait()
            await super().put(task)

    server, _ = slow_server(task_store=Slow())
    async with task_client(server) as client:
        calling = asyncio.create_task(call(client, "slow"))
        await putting.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not calling.done()
        may_put.set()

        assert (await ask(client, "tasks/get", (await calling)["taskId"]))["status"] == "working"


async def test_a_store_may_be_any_object_with_put_and_get():
    class Store:
        def __init__(self) -> None:
            self.history: list[Task] = []
            self.putting = False

        async def put(self, task: Task) -> None:
            assert not self.putting  # calls for one task never overlap
            self.putting = True
            await asyncio.sleep(0)
            self.putting = False
            self.history.append(task)

        async def get(self, id: str) -> Task | None:
            await asyncio.sleep(0)
            return next((each for each in reversed(self.history) if each.id == id), None)

    store = Store()
    async with task_client(asking_server(task_store=store)) as client:
        id = (await call(client, "confirm"))["taskId"]
        await wait_for_status(client, id, "input_required")
        answers = {"who": accepted("Ada")}
        await asyncio.gather(
            ask(client, "tasks/update", id, inputResponses=answers),
            ask(client, "tasks/cancel", id),
        )
        task = await ask(client, "tasks/get", id)

    assert task["status"] == "cancelled"
    assert [each.status for each in store.history][:2] == ["working", "input_required"]
    assert store.history[-1].status == "cancelled"
    assert store.history[-1].questions == {}


def test_a_missing_extension_is_named_as_capabilities_are():
    error = MissingCapability(f"extensions.{NAME}")

    assert error.required == {"extensions": {NAME: {}}}
