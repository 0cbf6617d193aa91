"""Calls that a server runs as tasks: poll a task, and answer its questions, until it has a result.

Modern servers use the extension `io.modelcontextprotocol/tasks`; servers with revision 2025-11-25
use an incompatible kind of tasks. For a caller of `Client.call_tool`, either kind is an ordinary
call that takes longer. Status messages are reported as progress, and cancelling the call cancels
the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from interlock import revisions
from interlock.client.features import Answers, answer_all
from interlock.errors import InterlockError, RemoteError, RemoteProtocolError, RequestTimeout
from interlock.protocol import Progress
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode
from interlock.types import ErrorObject, InputRequest, Result, Wire

POLL_INTERVAL = 1.0  # seconds, unless the server names an interval
SHORTEST_POLL, LONGEST_POLL = 0.05, 30.0  # seconds; limits on the server's interval
CANCEL_TIMEOUT = 5.0  # seconds for the request that cancels the task

# Takes a method, encoded params and a task's id; sends the request and returns the encoded result.
Ask = Callable[[str, bytes, str], Awaitable[Raw]]


class TaskState(Wire, frozen=True):
    """The state of a task, with the members of modern and legacy revisions."""

    task_id: str
    status: str
    status_message: str | None = None
    poll_interval_ms: float | None = None  # modern
    poll_interval: float | None = None  # revision 2025-11-25; milliseconds too
    input_requests: dict[str, InputRequest] | None = None  # modern
    result: Raw | UnsetType = UNSET  # modern
    error: ErrorObject | None = None  # modern


class _Created(Wire, frozen=True):
    task: TaskState


def created(raw: Raw, revision: str) -> TaskState:
    """Decode the answer to a call that the server runs as a task.

    Raises:
        RemoteProtocolError: The answer is malformed.
    """
    if revisions.is_modern(revision):
        return decode(TaskState, raw, "task")
    return decode(_Created, raw, "task").task


async def finish(
    task: TaskState,
    ask: Ask,
    answers: Answers,
    revision: str,
    *,
    hard_timeout: float,
    progress: Callable[[Progress], None] | None = None,
) -> Raw:
    """Poll a task until it has ended, and return the result of its call.

    Args:
        task: The state that `created` returned.
        ask: Sends a request about the task.
        answers: Answers the task's questions.
        revision: The protocol revision.
        hard_timeout: Seconds until the task is cancelled.
        progress: Called with each new status message.

    Raises:
        RemoteError: The task failed, or the server cancelled it.
        RequestTimeout: The task did not end in time.
        InterlockError: The task can no longer be polled.
    """
    try:
        async with asyncio.timeout(hard_timeout):
            return await _follow(task, ask, answers, revision, progress)
    except TimeoutError as error:
        await _cancel(task, ask)
        if isinstance(error, InterlockError):
            raise
        raise RequestTimeout(f"the task did not end within {hard_timeout:g} s") from None
    except asyncio.CancelledError:
        await asyncio.shield(_cancel(task, ask))
        raise
    except RemoteError:  # the task has ended, or is unknown to the server
        raise
    except Exception:  # for example because a question could not be answered
        await _cancel(task, ask)
        raise


async def _follow(
    task: TaskState,
    ask: Ask,
    answers: Answers,
    revision: str,
    progress: Callable[[Progress], None] | None,
) -> Raw:
    id, named = task.task_id, encode({"taskId": task.task_id})
    modern = revisions.is_modern(revision)
    messages = 0
    message = None
    while True:
        if progress is not None and task.status_message not in (None, message):
            messages += 1
            message = task.status_message
            progress(Progress(id, messages, message=message))
        if modern and (ended := _ending(task)) is not None:
            return ended
        if not modern and task.status != "working":
            return await ask("tasks/result", named, id)  # the server answers when the task ends
        if task.status == "input_required" and task.input_requests:
            responses = await answer_all(
                answers, Result(input_requests=task.input_requests), revision
            )
            params: dict[str, Any] = {"taskId": id, "inputResponses": responses}
            await ask("tasks/update", encode(params), id)
        else:
            await asyncio.sleep(_pause(task))
        task = decode(TaskState, await ask("tasks/get", named, id), "tasks/get result")


def _ending(task: TaskState) -> Raw | None:
    if task.status == "completed":
        if task.result is UNSET:
            raise RemoteProtocolError("a completed task has no result")
        return task.result
    if task.status in ("failed", "cancelled"):
        error = task.error or ErrorObject(revisions.INTERNAL_ERROR)
        text = error.message or task.status_message or f"the task is {task.status}"
        raise RemoteError(error.code, text, error.data)
    return None


def _pause(task: TaskState) -> float:
    milliseconds = task.poll_interval_ms or task.poll_interval
    seconds = POLL_INTERVAL if milliseconds is None else milliseconds / 1000
    return min(max(seconds, SHORTEST_POLL), LONGEST_POLL)


async def _cancel(task: TaskState, ask: Ask) -> None:
    # Ignore a server that does not answer: its own time limit ends the task.
    with suppress(InterlockError, TimeoutError):
        async with asyncio.timeout(CANCEL_TIMEOUT):
            await ask("tasks/cancel", encode({"taskId": task.task_id}), task.task_id)
