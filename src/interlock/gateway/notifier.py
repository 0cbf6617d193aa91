"""Notifies approvers of waiting calls, by a request to the URL in `gateway.notify`.

1. The database is the queue: the pending approvals whose message was not sent yet. So a slow
   receiver delays no call and fills no memory, and decided or expired approvals send no message.
2. Of several gateways on one database, the one that marks the row first sends its message. A
   gateway that ends unmarks the rows of unfinished messages, so that another one sends them.
   Receivers can recognise a repetition by `webhook-id`.
3. Callers who may decide about their own call are asked by their client or page. A message is
   sent only if the call still waits after `GRACE` seconds.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from interlock.config.gateway import CALLER, Notify
from interlock.errors import InterlockError, StoreError, UnknownApproval
from interlock.gateway import notice
from interlock.store.approvals import Approval, ApprovalStore
from interlock.store.database.changes import ChangeFeed
from interlock.text import urls
from interlock.text.timestamps import now_micros

if TYPE_CHECKING:
    from interlock.oauth.fetcher import FetchedResponse

GRACE = 10.0  # seconds in which callers may decide about their own call before a message is sent
MAX_SENDING = 8  # messages that are sent, or wait for their next attempt, at the same time
PAUSES = (5.0, 30.0, 120.0)  # seconds before each further attempt
MAX_READ = 100  # rows that are read at once
MAX_ANSWER = 65_536  # bytes of a receiver's answer
_LATER = (408, 425, 429)  # statuses below 500 after which a further attempt may succeed

_URL = re.compile(r"https?://\S*\s*")  # its path may be secret
_log = logging.getLogger("interlock.notify")


class Post(Protocol):
    """Sends a POST request; raises an `InterlockError` if the receiver does not answer."""

    async def __call__(self, url: str, body: bytes, headers: dict[str, str]) -> int:
        """Return the answer's status."""
        ...


class Notifier:
    """Sends messages about the approvals in a database.

    Args:
        settings: Returns the receiver; None to tell nobody.
        link: Returns the URL of the page where an approval is decided; None without pages.
        post: Sends a request.
        now: Returns the time in microseconds since 1970.
    """

    def __init__(
        self,
        store: ApprovalStore,
        settings: Callable[[], Notify | None],
        link: Callable[[Approval], str | None],
        *,
        post: Post | None = None,
        now: Callable[[], int] = now_micros,
    ) -> None:
        self._store = store
        self._settings = settings
        self._link = link
        self._post = post or _post
        self._now = now
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._has_more = False

    @asynccontextmanager
    async def running(self, feed: ChangeFeed) -> AsyncGenerator[None, None]:
        """Send messages while the context is open.

        Args:
            feed: Reports changes in the database.
        """
        try:
            async with feed.follow("approvals", self.step, _log, "approvals"):
                yield
        finally:
            unfinished = dict(self._sending)
            for task in unfinished.values():
                task.cancel()
            await asyncio.gather(*unfinished.values(), return_exceptions=True)
            with suppress(StoreError):
                await self._store.untell(unfinished)

    async def step(self, has_changed: bool = True) -> None:
        """Begin to send the messages that are due, as far as `MAX_SENDING` allows."""
        if self._settings() is None or not (has_changed or self._has_more):
            self._has_more |= has_changed
            return
        self._has_more = True
        if len(self._sending) >= MAX_SENDING:
            return
        now = self._now()
        waiting = await self._store.untold(now, MAX_READ)
        self._has_more = bool(waiting)
        due = [each for each in waiting if _is_due(each, now)]
        for approval in due[: MAX_SENDING - len(self._sending)]:
            if await self._store.tell(approval.id, now):
                task = asyncio.create_task(self._tell(approval))
                self._sending[approval.id] = task
                task.add_done_callback(partial(self._end, approval.id))

    def _end(self, id: str, _: asyncio.Task[None]) -> None:
        self._sending.pop(id, None)

    async def _tell(self, approval: Approval) -> None:
        problem = ""
        for pause in (0.0, *PAUSES):
            await asyncio.sleep(pause)
            notify = self._settings()
            if notify is None or not await self._is_waiting(approval.id):
                return
            problem, is_final = await self._attempt(approval, notify)
            if not problem:
                return
            if is_final:
                break
        host = urls.split(notify.url).hostname if notify else ""
        _log.warning("no approver was notified of %s: %s %s", approval.id, host, problem)

    async def _is_waiting(self, id: str) -> bool:
        try:
            return (await self._store.get(id)).state_at(self._now()) == "pending"
        except UnknownApproval:
            return False
        except StoreError:  # send anyway: a second message does less harm than none
            return True

    async def _attempt(self, approval: Approval, notify: Notify) -> tuple[str, bool]:
        """Return why the message was not received, and whether a further attempt is futile."""
        at = self._now() // 1_000_000
        body, headers = notice.request_of(approval, self._link(approval), notify, at)
        try:
            status = await self._post(notify.url, body, headers)
        except InterlockError as error:
            return _URL.sub("", str(error)), False
        if 200 <= status < 300:
            return "", False
        return f"answers {status}", 400 <= status < 500 and status not in _LATER


def _is_due(approval: Approval, now: int) -> bool:
    asks_caller_only = approval.approvers == (CALLER,)
    return not asks_caller_only or now - approval.created >= GRACE * 1_000_000


async def _post(url: str, body: bytes, headers: dict[str, str]) -> int:
    from interlock.oauth.fetcher import Fetcher  # loads aiohttp

    fetcher = Fetcher(near=url, max_bytes=MAX_ANSWER)
    answer: FetchedResponse = await fetcher.post(url, json=msgspec.Raw(body), headers=headers)
    return answer.status
