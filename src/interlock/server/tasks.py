"""Calls that go on after they were answered: the extension `io.modelcontextprotocol/tasks`.

A call of a tool that is marked `task` runs in an asyncio task of the server's. The client gets
a handle at once, and asks by it for the state, answers questions and cancels::

    tools/call -> Tasks.call -> _Run -> FunctionTool.call -> your function
    tasks/get, tasks/update, tasks/cancel -> Tasks.table -> _Run, or what the store has kept

Rules:

1. A handle exists, and can be asked for, before the client is told of it.
2. A task ends exactly once; what its function does after that changes nothing.
3. A handle is of use to the principal whose call it was; to others it looks like none.

Modern clients only, and only those that declare the extension with the request. Over HTTP the
header `Mcp-Name` of the three methods is `taskId`. SEP-2663, and the extension's specification
2026-07-28: tasks.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import asdict, replace

from interlock.auth.principal import Principal
from interlock.context import Context, Question
from interlock.errors import (
    InterlockError,
    InvalidArguments,
    LocalProtocolError,
    MissingCapability,
    RemoteError,
    RequestTimeout,
    to_wire,
)
from interlock.protocol import Request
from interlock.protocol.envelope import encode
from interlock.revisions import METHOD_NOT_FOUND, TASKS_EXTENSION
from interlock.server.encoders import Encoder
from interlock.server.subscribers import Subscribers
from interlock.server.task_store import MemoryTasks, Status, Task, TaskStore
from interlock.server.tools import FunctionTool
from interlock.types import Wire

TASK_TTL = 3_600.0  # seconds that a task may take, and that its end is kept
POLL_INTERVAL_MS = 1_000
MAX_RUNNING = 1_000
MAX_RUNNING_EACH = 100  # of one principal

Handler = Callable[[Request, Context], Awaitable[bytes]]
_ENDED = frozenset({"completed", "failed", "cancelled"})
_CAPABILITY = f"extensions.{TASKS_EXTENSION}"
_NO_SUCH_TASK = "no task has this id, or it has expired"
_T = TypeVar("_T")
_log = logging.getLogger("interlock.server")


# Running


class _Waiting(Struct):
    """A question of a running task."""

    question: Question
    answer: asyncio.Future[Raw]


class _Run:
    """One call of a tool that is a task, or may become one."""

    def __init__(self, owner: str, ttl: float, save: Callable[[_Run], Awaitable[None]]) -> None:
        now = datetime.now(UTC)
        self.task = Task(
            id=secrets.token_urlsafe(24),
            owner=owner,
            status="working",
            created_at=now,
            updated_at=now,
            ttl=ttl,
        )
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_task = False
        self.waiting: dict[str, _Waiting] = {}
        self.work: asyncio.Task[bytes | None]
        self.saving = asyncio.Lock()
        self._ttl = ttl
        self._save = save

    @property
    def has_ended(self) -> bool:
        return self.task.status in _ENDED

    async def begin(self) -> None:
        """Become a task, if it is none yet."""
        if not self.is_task:
            self.is_task = True
            try:
                await self._save(self)
            except BaseException:
                self.is_task = False
                raise
            self.begun.set_result(None)

    def say(self, message: str) -> None:
        """Tell how far the work is."""
        if not self.has_ended:
            self.task = replace(self.task, message=message)

    async def change(self, status: Status, **members: Any) -> None:
        """Take a new status, unless it has ended."""
        if self.has_ended:
            return
        now = datetime.now(UTC)
        if status in _ENDED:
            members |= {"ttl": (now - self.task.created_at).total_seconds() + self._ttl}
            members |= {"questions": {}}
        self.task = replace(self.task, status=status, updated_at=now, **members)
        await self._save(self)

    async def settle(self) -> None:
        """Take the status that follows from the questions that are open."""
        questions = {
            key: Raw(encode({"method": each.question.method, "params": each.question.params}))
            for key, each in self.waiting.items()
            if not each.answer.done()
        }
        await self.change("input_required" if questions else "working", questions=questions)

    async def fail(self, error: BaseException) -> None:
        """End with a JSON-RPC error."""
        code, message, data = to_wire(error)
        told = {"code": code, "message": message} | ({} if data is None else {"data": data})
        await self.change("failed", outcome=Raw(encode(told)), message=message)

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Raw]:
        """Wait until the client has answered all of them."""
        twice = sorted(set(questions) & set(self.waiting))
        if twice:
            raise LocalProtocolError(f"the task asks already under the keys {', '.join(twice)}")
        loop = asyncio.get_running_loop()
        asked = {key: _Waiting(each, loop.create_future()) for key, each in questions.items()}
        self.waiting |= asked
        try:
            await self.settle()
            await asyncio.wait([each.answer for each in asked.values()])
            return {key: each.answer.result() for key, each in asked.items()}
        finally:
            answered = all(each.answer.done() for each in asked.values())
            for key in asked:
                del self.waiting[key]
            if not answered:  # the function has given up waiting
                await self.settle()

    async def update(self, answers: Mapping[str, Raw]) -> None:
        """Hand over answers; those to no open question are ignored."""
        taken = {
            key: each
            for key, each in self.waiting.items()
            if key in answers and not each.answer.done()
        }
        for key, each in taken.items():
            _check_answer(key, each.question, answers[key])
        for key, each in taken.items():
            each.answer.set_result(Raw(bytes(answers[key])))  # not the whole request with it
        if taken:
            await self.settle()


class TaskContext(Context, eq=False, kw_only=True):
    """The context of a call that is a task, or may become one: what it asks, the task asks."""

    run: _Run

    async def begin_task(self) -> None:
        """Go on as a task: see `Context.begin_task`."""
        await self.run.begin()
        self.finished = True  # the request is answered: nothing may follow on its stream

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Tell how far the work is: a task's `message` is its status message."""
        if not self.run.is_task:
            super().progress(progress, total, message)
        elif message is not None:
            self.loop.call_soon_threadsafe(self.run.say, message)

    async def ask(self, questions: Mapping[str, Question]) -> dict[str, Any]:
        """Ask several things at once; the function waits for the answers where it is."""
        if not self.run.is_task:
            return await super().ask(questions)
        for question in questions.values():
            self._check(question)
        missing = {key: each for key, each in questions.items() if key not in self.answers}
        if missing:
            self.answers |= await self.run.ask(missing)
        return {key: self._recorded(key, each) for key, each in questions.items()}


# Methods


class _GetParams(Wire, frozen=True):
    task_id: str


class _UpdateParams(_GetParams, frozen=True):
    input_responses: dict[str, Raw]


class _Handle(Wire, frozen=True):
    """A task on the wire."""

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
    """The tasks of a server. `table` has the handlers of their methods.

    Args:
        store: Where they are kept; in memory when None.
        ttl: Seconds that a task may take, and that its end is kept after that.
        subscribers: Who wants to be told of changes.
        encoder: The server's.
    """

    def __init__(
        self, store: TaskStore | None, ttl: float, subscribers: Subscribers, encoder: Encoder
    ) -> None:
        self._store = MemoryTasks() if store is None else store
        self._ttl = ttl
        self._subscribers = subscribers
        self._encoder = encoder
        self._runs: dict[str, _Run] = {}
        self.table: dict[str, Handler] = {
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }

    async def call(self, tool: FunctionTool, arguments: Raw | None, context: Context) -> bytes:
        """Answer a call of a tool that is marked: with a task, or with its result.

        Raises:
            MissingCapability: The tool gives nothing but tasks, which the client does not know.
            InputRequired: The client must answer before there is a task.
            InterlockError: Too many tasks run.
        """
        if not _knows_tasks(context):
            if tool.task == "required":
                raise MissingCapability(_CAPABILITY)
            result = await tool.call(arguments, context)
            return self._encoder.call(result, context.revision, tool.definition)
        run = _Run(_owner(context), self._ttl, self._save)
        self._admit(run)
        inner = TaskContext(**asdict(context), run=run)
        run.work = asyncio.create_task(self._work(run, tool, arguments, inner))
        try:
            either: set[asyncio.Future[Any]] = {run.begun, run.work}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            run.work.cancel()  # nobody has been told of it
            raise
        if run.is_task:
            return self._encoder.task(encode(_handle(run.task)))
        answer = run.work.result()
        assert answer is not None  # noqa: S101 - only tasks end without
        return answer

    def _admit(self, run: _Run) -> None:
        owner = run.task.owner
        of_owner = sum(each.task.owner == owner for each in self._runs.values()) if owner else 0
        if len(self._runs) >= MAX_RUNNING or of_owner >= MAX_RUNNING_EACH:
            raise InterlockError(
                f"{len(self._runs)} tasks run (at most {MAX_RUNNING}), {of_owner} of them yours "
                f"(at most {MAX_RUNNING_EACH}); try again later"
            )
        self._runs[run.task.id] = run

    async def _work(
        self, run: _Run, tool: FunctionTool, arguments: Raw | None, context: TaskContext
    ) -> bytes | None:
        """Run the tool. Gives its encoded result, or None when the task has it."""
        try:
            if tool.task != "later":
                await context.begin_task()
            async with asyncio.timeout(self._ttl) as limit:
                result = await tool.call(arguments, context)
            encoded = self._encoder.call(result, context.revision, tool.definition)
            if not run.is_task:
                return encoded
            await self._end(run, encoded)
        except asyncio.CancelledError:
            if run.is_task:
                await run.change("cancelled", message="the server has stopped")
            raise
        except BaseException as error:
            if not run.is_task:
                raise
            if isinstance(error, TimeoutError) and limit.expired():
                error = RequestTimeout(f"the task did not end within {self._ttl:g} s")
            elif not isinstance(error, InterlockError):
                _log.exception("a task of %s failed", tool.definition.name)
            await self._fail(run, error)
        finally:
            del self._runs[run.task.id]
        return None

    async def _end(self, run: _Run, result: bytes) -> None:
        before = run.task
        try:
            await run.change("completed", outcome=Raw(result))
        except InterlockError:  # there is no room for the result, but for an error there is
            run.task = before
            raise

    async def _fail(self, run: _Run, error: BaseException) -> None:
        try:
            await run.fail(error)
        except Exception:
            _log.exception("the end of task %s could not be kept", run.task.id)

    async def _save(self, run: _Run) -> None:
        """Keep a task as it is now, and tell who listens."""
        async with run.saving:
            await self._store.put(run.task)
        owner = run.task.owner
        self._subscribers.task_changed(
            run.task.id,
            encode(_detailed(run.task)),
            lambda principal: _id(principal) == owner,
        )

    # Asking for them

    async def _get(self, request: Request, context: Context) -> bytes:
        params = _decode(_GetParams, request, context)
        task = await self._find(params.task_id, context)
        return self._encoder.result(encode(_detailed(task)), context.revision)

    async def _update(self, request: Request, context: Context) -> bytes:
        params = _decode(_UpdateParams, request, context)
        await self._find(params.task_id, context)
        run = self._runs.get(params.task_id)
        if run is not None:
            await run.update(params.input_responses)
        return self._encoder.result(b"{}", context.revision)

    async def _cancel(self, request: Request, context: Context) -> bytes:
        params = _decode(_GetParams, request, context)
        await self._find(params.task_id, context)
        run = self._runs.get(params.task_id)
        if run is not None and not run.has_ended:
            run.work.cancel()
            await run.change("cancelled", message="cancelled by the client")
        return self._encoder.result(b"{}", context.revision)

    async def _find(self, id: str, context: Context) -> Task:
        run = self._runs.get(id)
        task = await self._store.get(id) if run is None else run.task
        if task is None or task.owner != _owner(context):
            raise InvalidArguments(_NO_SUCH_TASK)
        return task

    async def listenable(self, ids: list[str], context: Context) -> list[str]:
        """Give those of the tasks that the client may be told of.

        Raises:
            MissingCapability: It asks for tasks and does not know what they are.
        """
        if ids and not _knows_tasks(context):
            raise MissingCapability(_CAPABILITY)
        found = []
        for id in dict.fromkeys(ids):
            try:
                await self._find(id, context)
            except InvalidArguments:
                continue
            found.append(id)
        return found

    # Closing

    async def close(self) -> None:
        """Cancel what runs, and wait until it has ended."""
        works = [run.work for run in self._runs.values()]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)


# Small things


def _knows_tasks(context: Context) -> bool:
    return context.is_modern and context.can(_CAPABILITY)


def _owner(context: Context) -> str:
    return _id(context.principal)


def _id(principal: Principal | None) -> str:
    return principal.owner if principal else ""


def _decode(type: type[_T], request: Request, context: Context) -> _T:
    if not context.is_modern:  # older clients mean something else by these names
        raise RemoteError(METHOD_NOT_FOUND, f"unknown method {request.method!r}")
    if not _knows_tasks(context):
        raise MissingCapability(_CAPABILITY)
    try:
        return msgspec.json.decode(request.params, type=type)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArguments(f"params of {request.method}: {error}") from None


def _check_answer(key: str, question: Question, answer: Raw) -> None:
    try:
        msgspec.json.decode(answer, type=question.answer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArguments(f"inputResponses.{key} is not an answer: {error}") from None


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
