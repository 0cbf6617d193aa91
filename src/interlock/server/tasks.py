"""Tasks: calls that go on after the client got a handle (`io.modelcontextprotocol/tasks`).

A call to a tool marked `task` runs in an asyncio task of the server. The client immediately gets a
handle, and uses it to read the state, answer questions and cancel the task::

    tools/call -> Tasks.call -> _Run -> FunctionTool.call -> your function
    tasks/get, tasks/update, tasks/cancel -> Tasks.table -> _Run, or a task from the store

Rules:

1. A task is stored before the client gets its handle, so that `tasks/get` always finds the task.
2. A task ends exactly once. Whatever its function does afterwards is ignored.
3. Only the principal that made the call can use the handle; for others the task does not exist.

Only modern clients that declare the extension in the request can get a task. Over HTTP, the header
`Mcp-Name` of the three methods is the `taskId`. SEP-2663, and the extension's specification
2026-07-28: tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import asdict, replace

from interlock.context import Context, Question
from interlock.errors import InterlockError, InvalidArguments, MissingCapability, RemoteError
from interlock.protocol import Request
from interlock.protocol.envelope import encode, encode_lossy
from interlock.protocol.leniency import decode_leniently
from interlock.revisions import METHOD_NOT_FOUND, TASKS_EXTENSION
from interlock.server.encoders import Encoder
from interlock.server.parked_calls import ParkedCall, ParkedCalls, owner_of
from interlock.server.subscribers import Subscribers
from interlock.server.task_store import MemoryTasks, Status, Task, TaskStore
from interlock.server.tools import FunctionTool
from interlock.server.wire_errors import wire_error
from interlock.types import Wire

TASK_TTL = 3_600.0  # seconds; the default time limit of a task, and lifetime of its result
POLL_INTERVAL_MS = 1_000  # how often clients should call `tasks/get`
MAX_RUNNING = 1_000
MAX_RUNNING_EACH = 100  # running tasks of one principal

Handler = Callable[[Request, Context], Awaitable[bytes]]
_ENDED = frozenset({"completed", "failed", "cancelled"})
_CAPABILITY = f"extensions.{TASKS_EXTENSION}"
NO_SUCH_TASK = "no task has this id, or it has expired"
_T = TypeVar("_T")
_log = logging.getLogger("interlock.server")


# Running


class _Run(ParkedCall):
    """A running call to a tool that is a task, or may become a task."""

    def __init__(self, owner: str, ttl: float, save: Callable[[_Run], Awaitable[None]]) -> None:
        super().__init__(owner, ttl, self._questions_changed)
        now = datetime.now(UTC)
        self.task = Task(
            id=self.id,
            owner=owner,
            status="working",
            created_at=now,
            updated_at=now,
            ttl=ttl,
        )
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_task = False
        self.saving = asyncio.Lock()
        self._save = save

    @property
    def has_ended(self) -> bool:
        return self.task.status in _ENDED

    async def begin(self) -> None:
        if not self.is_task:
            self.is_task = True
            try:
                await self._save(self)
            except BaseException:
                self.is_task = False
                raise
            self.begun.set_result(None)

    def set_message(self, message: str) -> None:
        if not self.has_ended:
            self.task = replace(self.task, message=message)

    async def change(self, status: Status, **members: Any) -> None:
        if self.has_ended:
            return
        now = datetime.now(UTC)
        if status in _ENDED:
            members |= {"ttl": (now - self.task.created_at).total_seconds() + self._ttl}
            members |= {"questions": {}}
        self.task = replace(self.task, status=status, updated_at=now, **members)
        await self._save(self)

    async def fail(self, error: BaseException) -> None:
        code, message, data = wire_error(f"task {self.id}", error)
        outcome = {"code": code, "message": message} | ({} if data is None else {"data": data})
        await self.change("failed", outcome=Raw(encode(outcome)), message=message)

    async def _questions_changed(self) -> None:
        questions = {
            key: Raw(encode_lossy({"method": each.method, "params": each.params}))
            for key, each in self.questions.items()
        }
        await self.change("input_required" if questions else "working", questions=questions)


class TaskContext(Context, eq=False, kw_only=True):
    """The context of a call that is a task, or may become a task."""

    run: _Run

    async def begin_task(self) -> None:
        """Turn the call into a task; see `Context.begin_task`."""
        await self.run.begin()
        self.finished = True  # the handle answers the request, so the request's stream ends

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress. The last `message` becomes the task's status message."""
        if not self.run.is_task:
            super().progress(progress, total, message)
        elif message is not None:
            self.loop.call_soon_threadsafe(self.run.set_message, message)

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask the client, and wait for its answers; the function is not run again for them."""
        if not self.run.is_task:
            return await super().ask(questions)
        for question in questions.values():
            self._check(question)
        missing = {key: each for key, each in questions.items() if key not in self.answers}
        if missing:
            self.answers |= await self.run.ask(missing)
        return {key: self._recorded(key, each) for key, each in questions.items()}


# Methods


class TaskBegun(InterlockError):
    """A call to another server was answered with a task instead of a result.

    Attributes:
        handle: The task's members, with the id that this server's client uses.
    """

    def __init__(self, handle: bytes) -> None:
        super().__init__("the call continues as a task")
        self.handle = handle


class TaskParams(Wire, frozen=True):
    """Params of `tasks/get` and `tasks/cancel`."""

    task_id: str


class TaskUpdateParams(TaskParams, frozen=True):
    """Params of `tasks/update`."""

    input_responses: dict[str, Raw]


class _Handle(Wire, frozen=True):
    """A task, encoded as in the protocol."""

    task_id: str
    status: Status
    created_at: datetime
    last_updated_at: datetime
    ttl_ms: int
    poll_interval_ms: int
    status_message: str | None = None
    input_requests: dict[str, Raw] | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class Tasks:
    """A server's tasks. `table` contains the handlers of the task methods.

    Args:
        store: The store of the tasks; None to keep them in memory.
        ttl: The seconds that a task may run, and that its result is kept after it ends.
        subscribers: The clients that are notified of changes.
        encoder: Encodes results for each protocol revision.
    """

    def __init__(
        self, store: TaskStore | None, ttl: float, subscribers: Subscribers, encoder: Encoder
    ) -> None:
        self._store = MemoryTasks() if store is None else store
        self._ttl = ttl
        self._subscribers = subscribers
        self._encoder = encoder
        self._runs: ParkedCalls[_Run] = ParkedCalls("tasks", MAX_RUNNING, MAX_RUNNING_EACH)
        self.table: dict[str, Handler] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    async def call(self, tool: FunctionTool, arguments: Raw | None, context: Context) -> bytes:
        """Answer a call to a tool marked `task`, with a task's handle or with the tool's result.

        Raises:
            MissingCapability: The tool requires a task, and the client does not support tasks.
            InputRequired: The client must answer questions before a task begins.
            InterlockError: Too many tasks are running.
        """
        if not supports_tasks(context):
            if tool.task == "required":
                raise MissingCapability(_CAPABILITY)
            result = await tool.call(arguments, context)
            return self._encoder.call(result, context.revision, tool.definition)
        run = _Run(owner_of(context.principal), self._ttl, self._save)
        self._runs.add(run)
        inner = TaskContext(**asdict(context), run=run)
        work = run.work = asyncio.create_task(self._work(run, tool, arguments, inner))
        try:
            either: set[asyncio.Future[Any]] = {run.begun, work}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            work.cancel()  # the client got no handle, so it could never read the result
            raise
        if run.is_task:
            return self._encoder.task(encode(_handle(run.task)))
        encoded: bytes = work.result()
        return encoded

    async def _work(
        self, run: _Run, tool: FunctionTool, arguments: Raw | None, context: TaskContext
    ) -> bytes:
        """Run the tool; if the call is a task, store its result. Return the encoded result."""
        try:
            if tool.task != "later":
                await context.begin_task()
            result = await run.limited(tool.call(arguments, context))
            encoded = self._encoder.call(result, context.revision, tool.definition)
            if run.is_task:
                await self._complete(run, encoded)
            return encoded
        except asyncio.CancelledError:
            if run.is_task:
                await run.change("cancelled", message="the server has stopped")
            raise
        except BaseException as error:
            if not run.is_task:
                raise
            await self._fail(run, error)
            return b""
        finally:
            self._runs.remove(run)

    async def _complete(self, run: _Run, result: bytes) -> None:
        before = run.task
        try:
            await run.change("completed", outcome=Raw(result))
        except InterlockError:  # the store has no room for the result, but it has for an error
            run.task = before
            raise

    async def _fail(self, run: _Run, error: BaseException) -> None:
        try:
            await run.fail(error)
        except Exception:
            _log.exception("the end of task %s could not be kept", run.id)

    async def _save(self, run: _Run) -> None:
        async with run.saving:
            await self._store.put(run.task)
        self._subscribers.task_changed(
            run.id,
            encode(_detailed(run.task)),
            lambda principal: owner_of(principal) == run.owner,
        )

    # Methods

    async def _get(self, request: Request, context: Context) -> bytes:
        params = decode_params(TaskParams, request, context)
        task = await self._find(params.task_id, context)
        return self._encoder.result(encode(_detailed(task)), context.revision)

    async def _update(self, request: Request, context: Context) -> bytes:
        params = decode_params(TaskUpdateParams, request, context)
        await self._find(params.task_id, context)
        run = self._runs.find(params.task_id, owner_of(context.principal))
        if run is not None:
            await run.update(params.input_responses)
        return self._encoder.result(b"{}", context.revision)

    async def _cancel(self, request: Request, context: Context) -> bytes:
        params = decode_params(TaskParams, request, context)
        await self._find(params.task_id, context)
        run = self._runs.find(params.task_id, owner_of(context.principal))
        if run is not None and not run.has_ended:
            run.work.cancel()
            await run.change("cancelled", message="cancelled by the client")
        return self._encoder.result(b"{}", context.revision)

    async def _find(self, id: str, context: Context) -> Task:
        owner = owner_of(context.principal)
        run = self._runs.find(id, owner)
        task = await self._store.get(id) if run is None else run.task
        if task is None or task.owner != owner:
            raise InvalidArguments(NO_SUCH_TASK)
        return task

    async def listenable(self, ids: list[str], context: Context) -> list[str]:
        """Return those of the ids that belong to tasks of the caller.

        Raises:
            MissingCapability: `ids` is not empty, and the client does not support tasks.
        """
        if ids and not supports_tasks(context):
            raise MissingCapability(_CAPABILITY)
        found = []
        for id in dict.fromkeys(ids):
            try:
                await self._find(id, context)
            except InvalidArguments:
                continue
            found.append(id)
        return found

    async def close(self) -> None:
        await self._runs.close()


# Helpers


def supports_tasks(context: Context) -> bool:
    """Return whether the client declares in this request that it supports tasks."""
    return context.is_modern and context.can(_CAPABILITY)


def decode_params(type: type[_T], request: Request, context: Context) -> _T:
    """Decode the params of a task method.

    Raises:
        RemoteError: -32601: the client's revision does not define the method.
        MissingCapability: The client does not support tasks.
        InvalidArguments: The params are malformed.
    """
    if not context.is_modern:  # revision 2025-11-25 has different methods with these names
        raise RemoteError(METHOD_NOT_FOUND, f"unknown method {request.method!r}")
    if not supports_tasks(context):
        raise MissingCapability(_CAPABILITY)
    try:
        return decode_leniently(type, request.params)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArguments(f"params of {request.method}: {error}") from None


def _handle(task: Task) -> _Handle:
    return _Handle(
        task_id=task.id,
        status=task.status,
        status_message=task.message,
        created_at=task.created_at,
        last_updated_at=task.updated_at,
        ttl_ms=round(task.ttl * 1_000),
        poll_interval_ms=POLL_INTERVAL_MS,
    )


def _detailed(task: Task) -> _Handle:
    return replace(
        _handle(task),
        input_requests=task.questions or UNSET,
        result=task.outcome if task.status == "completed" else UNSET,
        error=task.outcome if task.status == "failed" else UNSET,
    )
