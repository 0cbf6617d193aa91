"""Approvers are told of waiting calls by signed requests, which delay no call."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Notify
from interlock.errors import Unreachable
from interlock.gateway import notice
from interlock.gateway.notifier import GRACE, MAX_SENDING, PAUSES, Notifier
from interlock.store.approvals import Approval, ApprovalStore
from interlock.text.timestamps import now_micros
from tests.gateway.conftest import bearer, offering
from tests.support.clock import SteppedLoop
from tests.support.rows import each_row

KEY = GatewayKey(bytes(range(32)))
SECRET = "whsec_" + b64encode(bytes(range(32))).decode()
LINK = "https://tools.example.com/calls/c_1"
RULE = {"id": "refunds", "effect": "ask", "who": ["*"], "tools": ["crm:refund"]}
OTHERS = {"policy": {"rules": [RULE | {"approvers": ["user:mara"]}]}}


def approval(**changes: Any) -> Approval:
    made = Approval(
        id="a_1",
        call="c_1",
        state="pending",
        tenant="t",
        user="user:anna",
        key="",
        server="crm",
        tool="crm:refund",
        arguments={"iban": "SECRET-ARGUMENT"},
        hash="h",
        rule="refunds",
        policy="p",
        pin="",
        approvers=("group:leads",),
        created=now_micros(),
        expires=now_micros() + 900_000_000,
    )
    return replace(made, **changes)


def test_signature_equals_the_vector_of_the_official_libraries():
    # github.com/standard-webhooks/standard-webhooks, libraries/python/tests/test_webhooks.py
    signed = notice.signature(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )

    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@each_row(
    "format, link, expected",
    [
        ("standard", LINK, ['"type":"approval.requested"', f'"url":"{LINK}"']),
        ("standard", None, ['"url":null']),
        ("slack", LINK, [f"<{LINK}|Decide>", "&lt;https://evil|x&gt;", "\\\\u202e"]),
        ("slack", None, ["`interlock approvals show a_1`"]),
        ("teams", LINK, ['"type":"message"', '"Action.OpenUrl"', f'"url":"{LINK}"', "RichText"]),
        ("teams", None, ["interlock approvals show a_1"]),
    ],
)  # fmt: skip
def test_message_of_each_form_has_a_link_and_no_arguments(
    format: Any, link: str | None, expected: list[str]
):
    asked = approval(user="user:<https://evil|x>\u202e")
    body, headers = notice.request_of(asked, link, Notify(url="", format=format), 1)

    assert [each for each in expected if each not in body.decode()] == []
    assert b"SECRET-ARGUMENT" not in body
    assert headers == {}


class Receiver:
    """An HTTP server that keeps the requests it gets, and answers with a status or never."""

    def __init__(self, status: int | None = 200) -> None:
        self.requests: asyncio.Queue[tuple[dict[str, str], bytes]] = asyncio.Queue()
        self.status = status
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Receiver]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/SECRET-PATH"
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        self.requests.put_nowait((headers, body))
        if self.status is None:
            await reader.read()  # until the client gives up
        else:
            writer.write(b"HTTP/1.1 %d x\r\ncontent-length: 0\r\n\r\n" % self.status)
        writer.close()


@pytest.mark.slow("fills a database")
async def test_waiting_call_sends_one_message_with_a_link_that_requires_a_sign_in(
    running, tmp_path: Path
):
    (tmp_path / "script.json").write_text("[]")
    async with Receiver().serving() as receiver:
        notify = {"url": receiver.url, "secret": SECRET}
        chat = {"models": [f"scripted:{tmp_path}/script.json"]}
        async with running({**OTHERS, "notify": notify, "chat": chat}, crm=offering("refund")) as g:
            key = await g.key("anna")
            for _ in range(2):  # the second call finds the approval of the first one
                await g.call("crm__refund", key, iban="SECRET-ARGUMENT")
            headers, body = await receiver.requests.get()
            told = json.loads(body)["data"]
            page = await g.http.request("GET", told["url"].partition("8000")[2])
            path = "/api" + told["url"].partition("8000")[2]
            post = (
                "POST",
                f"{path}/approve",
                b'{"hash":"x"}',
                {"content-type": "application/json"},
            )
            eve = bearer(await g.key("eve"))
            codes = [
                (await g.http.request(*request)).code
                for request in (("GET", path), post, ("GET", path, b"", eve))
            ]

    assert receiver.requests.empty()
    at = int(headers["webhook-timestamp"])
    assert abs(at - now_micros() / 1_000_000) < 60
    signed = notice.signature(SECRET, headers["webhook-id"], at, body)
    assert headers["webhook-signature"] == signed
    assert headers["content-type"] == "application/json"
    assert (told["tool"], told["user"], told["approvers"]) == (
        *("crm:refund", "user:anna"),
        ["user:mara"],
    )
    assert b"SECRET-ARGUMENT" not in body
    assert (page.code, codes) == (200, [401, 401, 404])


@pytest.mark.slow("fills a database")
async def test_receiver_that_never_answers_delays_no_call_and_bounds_the_work(running):
    async with Receiver(None).serving() as receiver:
        notify = {"url": receiver.url, "secret": SECRET}
        async with running({**OTHERS, "notify": notify}, crm=offering("refund")) as gateway:
            key = await gateway.key("anna")
            for amount in range(3 * MAX_SENDING):
                reply = await gateway.call("crm__refund", key, amount=amount)
                assert "approval_pending" in reply.body.decode()
            for _ in range(MAX_SENDING):
                await receiver.requests.get()
            store = ApprovalStore(gateway.assembly.services.database, KEY)
            assert len(await store.untold(now_micros(), 100)) == 2 * MAX_SENDING
        assert receiver.requests.empty()


class Stored:
    """Approvals in memory."""

    def __init__(self, *approvals: Approval) -> None:
        self.by_id = {each.id: each for each in approvals}

    async def get(self, id: str) -> Approval:
        return self.by_id[id]

    async def untold(self, now: int, limit: int) -> list[Approval]:
        return [each for each in self.by_id.values() if each.told is None][:limit]

    async def tell(self, id: str, now: int) -> bool:
        is_first = self.by_id[id].told is None
        self.by_id[id] = replace(self.by_id[id], told=now)
        return is_first


@each_row(
    "answers, attempts, logged",
    [
        ([200], [0.0], ""),
        ([500, 429, 204], [0.0, 5.0, 35.0], ""),
        ([404], [0.0], "hooks.example.com answers 404"),
        ([410], [0.0], "hooks.example.com answers 410"),
        ([503] * 4, [0.0, 5.0, 35.0, 155.0], "hooks.example.com answers 503"),
        ([Unreachable("https://hooks.example.com/SECRET cannot be reached: x")] * 4,
         [0.0, 5.0, 35.0, 155.0], "hooks.example.com cannot be reached: x"),
        (["denied"], [0.0], ""),
    ],
)  # fmt: skip
def test_failed_attempt_is_repeated_a_few_times_while_the_call_waits(
    caplog: pytest.LogCaptureFixture, answers: list[Any], attempts: list[float], logged: str
):
    caplog.clear()
    stored, times = Stored(approval()), list[float]()
    notify = Notify(url="https://hooks.example.com/SECRET?x=SECRET", secret=SECRET)
    loop = SteppedLoop()

    async def post(url: str, body: bytes, headers: dict[str, str]) -> int:
        answer = answers[len(times)]
        times.append(round(loop.time(), 3))
        if answer == "denied":
            stored.by_id["a_1"] = replace(stored.by_id["a_1"], state="denied")
            return 500
        if isinstance(answer, Exception):
            raise answer
        return int(answer)

    async def tell() -> None:
        notifier = Notifier(stored, lambda: notify, lambda _: LINK, post=post)  # type: ignore[arg-type]
        await notifier.step()
        await asyncio.sleep(sum(PAUSES) + 1)

    with caplog.at_level(logging.WARNING, "interlock.notify"):
        loop.run_until_complete(tell())
    loop.close()
    assert times == attempts
    assert logged in caplog.text
    assert "SECRET" not in caplog.text
    assert bool(logged) == bool(caplog.text)


async def test_caller_who_may_decide_is_notified_only_if_the_call_still_waits_later():
    asked, told = approval(approvers=("caller",)), asyncio.Event()
    now = [asked.created]

    async def post(url: str, body: bytes, headers: dict[str, str]) -> int:
        told.set()
        return 200

    notifier = Notifier(
        Stored(asked),  # type: ignore[arg-type]
        lambda: Notify(url="https://hooks.example.com/", secret=SECRET),
        lambda _: LINK,
        post=post,
        now=lambda: now[0],
    )
    await notifier.step()
    await asyncio.sleep(0)
    assert not told.is_set()
    now[0] += int(GRACE * 1_000_000)
    await notifier.step(False)
    await told.wait()


async def test_of_several_gateways_on_one_database_one_sends_the_message():
    sent: asyncio.Queue[str] = asyncio.Queue()

    async def post(url: str, body: bytes, headers: dict[str, str]) -> int:
        sent.put_nowait(headers["webhook-id"])
        return 200

    ids = [f"a_{number}" for number in range(MAX_SENDING)]
    stored: Any = Stored(*(approval(id=id) for id in ids))
    notify = Notify(url="https://hooks.example.com/", secret=SECRET)
    notifiers = [Notifier(stored, lambda: notify, lambda _: LINK, post=post) for _ in range(3)]
    for _ in range(2):
        await asyncio.gather(*(each.step() for each in notifiers))

    assert sorted([await sent.get() for _ in ids]) == ids
    assert sent.empty()
