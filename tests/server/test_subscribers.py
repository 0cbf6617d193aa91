"""Notifications of changes: to which clients, from which thread, and until when."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from interlock.auth.principal import Principal
from interlock.context import Session
from interlock.server.subscribers import Subscribers, for_session, for_stream
from interlock.types import SubscriptionFilter

ANN, BOB = Principal("ann"), Principal("bob")


class Notified(list[Any]):
    def __call__(self, method: str, params: bytes) -> None:
        self.append((method, params))


def is_ann(principal: Principal | None) -> bool:
    return principal == ANN


async def test_only_the_audience_of_a_notification_is_notified():
    subscribers = Subscribers()
    ann, bob, unknown = Notified(), Notified(), Notified()
    for notified, principal in ((ann, ANN), (bob, BOB), (unknown, None)):
        subscribers.add(for_session(Session(subscriptions={"notes://a"}), notified, principal))

    subscribers.list_changed("tools", is_ann)
    subscribers.resource_updated("notes://a", is_ann)
    assert [method for method, _ in ann] == [
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ]
    assert bob == unknown == []

    subscribers.list_changed("tools")
    assert len(ann) == 3
    assert len(bob) == len(unknown) == 1


async def test_recipients_are_determined_when_a_notification_is_sent():
    subscribers = Subscribers()
    ann = Notified()
    subscribers.add(for_session(Session(), ann, ANN))
    allowed = [ANN]

    thread = threading.Thread(
        target=subscribers.list_changed, args=["tools", lambda principal: principal in allowed]
    )
    thread.start()
    thread.join()
    allowed.clear()  # before the event loop sends what the thread has queued
    await asyncio.sleep(0)

    assert ann == []


async def test_another_principal_is_not_notified_of_a_task_whose_id_it_has():
    subscribers = Subscribers()
    ann, bob = Notified(), Notified()
    wanted = SubscriptionFilter(task_ids=["t"])
    subscribers.add(for_stream(1, wanted, ann, ANN))
    subscribers.add(for_stream(2, wanted, bob, BOB))

    subscribers.task_changed("t", b"{}", is_ann)

    assert len(ann) == 1
    assert bob == []


async def test_a_subscriber_that_was_removed_meanwhile_is_not_notified():
    subscribers = Subscribers()
    notified = Notified()
    subscriber = for_session(Session(), notified, None)
    subscribers.add(subscriber)
    thread = threading.Thread(target=subscribers.list_changed, args=["tools"])
    thread.start()
    thread.join()
    subscribers.remove(subscriber)
    for _ in range(3):
        await asyncio.sleep(0)

    assert notified == []


def test_a_subscriber_whose_event_loop_was_closed_is_not_notified():
    subscribers = Subscribers()
    notified = Notified()

    async def subscribe() -> None:
        subscribers.add(for_session(Session(), notified, None))

    asyncio.run(subscribe())
    subscribers.list_changed("tools")

    assert notified == []
