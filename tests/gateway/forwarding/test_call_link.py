"""What a server sends during a call, on its way back to the client."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw

from interlock.gateway.forwarding.call_link import CallLink
from interlock.protocol import Progress
from tests.support.clock import SteppedLoop, run_stepped


class Client:
    """A client's request, and what is sent back during it."""

    def __init__(self, log_level: str | None = None) -> None:
        self.finished = False
        self.link: Any = self
        self.loop = asyncio.get_running_loop()
        self.log_level = log_level
        self.sent: list[Any] = []

    def progress(self, *told: Any) -> None:
        self.sent.append(told)

    def notify(self, method: str, params: bytes) -> None:
        self.sent.append((method, params))

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        return Raw(b'"asked"')


def link(client: Any, **options: Any) -> CallLink:
    return CallLink(client, "crm", **options)


async def test_log_messages_pass_at_the_level_of_the_client():
    client = Client("warning")
    for level in ("info", "warning", "error"):
        link(client).notify("notifications/message", b'{"level":"%b"}' % level.encode())

    assert [params for _, params in client.sent] == [
        b'{"level":"warning","logger":"crm"}',
        b'{"level":"error","logger":"crm"}',
    ]


async def test_notifications_of_an_ended_request_are_dropped():
    client = Client()
    client.finished = True
    link(client).notify("notifications/other", b"{}")

    assert client.sent == []


async def test_modern_client_receives_the_question_in_the_answer_to_its_request():
    async def park(method: str, params: bytes) -> Raw:
        return Raw(b'"parked"')

    asked = [
        await each.ask("elicitation/create", b"{}", timeout=1.0)
        for each in (link(Client()), link(Client(), park=park))
    ]

    assert [bytes(each) for each in asked] == [b'"asked"', b'"parked"']


def test_progress_of_a_busy_gateway_is_sent_once_when_its_timer_is_late():
    async def work() -> None:
        client, loop = Client(), asyncio.get_running_loop()
        assert isinstance(loop, SteppedLoop)
        busy = link(client)
        for step in range(1, 3):
            busy.progress(Progress(1, step))
        loop.now += 1.0  # the timer is due, but what has arrived is handled first
        for step in range(3, 5):
            busy.progress(Progress(1, step))
        await asyncio.sleep(0.01)
        assert [progress for progress, *_ in client.sent] == [1, 4]

    run_stepped(work())
