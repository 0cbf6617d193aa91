"""The audit trail of calls, in a real database on a disk that may fail."""

from __future__ import annotations

import asyncio
import hmac
import sqlite3
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import Server, Toolbox
from interlock.auth.gateway_auth import RefusedCredential
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.stored_key import StoredKey
from interlock.calls import Call, Caller, CallHandler, Outcome
from interlock.config.gateway import Audit, KeyLimits, Limits, Rate, Risk
from interlock.errors import (
    AuditUnavailable,
    CallRefused,
    InterlockError,
    LimitExceeded,
    LocalProtocolError,
    LoginRequired,
    MessageTooLarge,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    ServerExited,
    ServerUnavailable,
    ToolError,
)
from interlock.layers import Layers, audit, refusals
from interlock.layers.audit import AuditTrail
from interlock.layers.fair_queue import FairQueue, queued
from interlock.layers.limits import Limiter
from interlock.store import AuditWriter
from interlock.store.audit import group_commit
from tests.faults.failing_disk import failing_disk
from tests.layers.support import OK, Upstream, allowed, call_of, settle
from tests.store.audit_chains import check_chains
from tests.support.clock import ClockLoop
from tests.support.rows import each_row

KEY = b"k" * 32
GATEWAY_KEY = GatewayKey(bytes(range(32)))
SECRET = {"note": "canary-7d2f", "amount": 5}
Row = dict[str, Any]


class Audited:
    """Calls through both layers, with an upstream that counts."""

    def __init__(self, writer: AuditWriter, path: Path, trail: AuditTrail, risk: Risk) -> None:
        self.writer = writer
        self.path = path
        self.trail = trail
        self.upstream = Upstream()
        self.handle: CallHandler = allowed(risk)(trail.refusals(trail.calls(self.upstream.handle)))

    async def rows(self) -> list[Row]:
        """Return all records after what is queued has been written."""
        await self.writer.group._drain()
        return read(self.path)


def stored(path: Path) -> list[Row]:
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [{**row} for row in connection.execute("SELECT * FROM audit ORDER BY seq")]


def read(path: Path) -> list[Row]:
    return [{**row, "body": msgspec.json.decode(row["body"])} for row in stored(path)]


def content_of(folder: Path) -> bytes:
    return b"".join(each.read_bytes() for each in folder.iterdir())


@asynccontextmanager
async def audited(folder: Path, risk: Risk = "write", **settings: Any) -> AsyncIterator[Audited]:
    path = folder / "audit.db"
    async with AuditWriter.open(path, key=GATEWAY_KEY) as writer:
        trail = AuditTrail(writer, KEY, Audit(**settings))
        yield Audited(writer, path, trail, risk)
        trail.flush()


# Records


async def test_call_has_an_intent_and_an_outcome_in_this_order(tmp_path: Path):
    async with audited(tmp_path) as crm:
        call = call_of("anna", key="k_1", arguments=SECRET)
        await crm.handle(call)
        intent, outcome = await crm.rows()

    same = {
        "tenant": "acme",
        "call": call.id,
        "user": "anna",
        "key": "k_1",
        "server": "crm",
        "tool": "crm:refund",
    }
    assert intent.items() >= {**same, "kind": "intent", "status": "", "reason": ""}.items()
    assert outcome.items() >= {**same, "kind": "outcome", "status": "ok", "reason": ""}.items()
    canonical = b'{"amount":5,"note":"canary-7d2f"}'
    assert intent["body"] == {
        "surface": "mcp",
        "risk": "write",
        "bytes": len(canonical),
        "argumentsHash": audit.arguments_hash(KEY, canonical),
    }
    assert outcome["body"].pop("ms") >= 0
    assert outcome["body"] == {"bytes": len(OK), "messages": 0}


async def test_local_user_is_recorded_by_name(tmp_path: Path):
    async with audited(tmp_path) as crm:
        await crm.handle(call_of(None))
        (intent, _) = await crm.rows()

    assert (intent["tenant"], intent["user"], intent["key"]) == ("", "user:local", "")


@pytest.mark.parametrize(
    ("how", "shown"),
    [("hash", {"argumentsHash"}), ("none", set()), ("full", {"argumentsHash", "arguments"})],
)
async def test_arguments_are_recorded_in_clear_only_if_configured(
    tmp_path: Path, how: str, shown: set[str]
):
    async with audited(tmp_path, arguments=how) as crm:
        await crm.handle(call_of(arguments=SECRET))
        (intent, _) = await crm.rows()

    assert intent["body"].keys() - {"surface", "risk", "bytes"} == shown
    assert intent["body"].get("arguments", SECRET) == SECRET
    assert (b"canary-7d2f" in content_of(tmp_path)) == (how == "full")


async def test_order_of_arguments_does_not_change_their_hash(tmp_path: Path):
    async with audited(tmp_path) as crm:
        for arguments in ({"a": 1, "b": {"x": 1, "y": 2}}, {"b": {"y": 2, "x": 1}, "a": 1}):
            await crm.handle(call_of(arguments=arguments))
        await crm.handle(call_of(arguments={"a": 1, "b": {"x": 1, "y": 3}}))
        hashes = [
            row["body"]["argumentsHash"] for row in await crm.rows() if row["kind"] == "intent"
        ]

    assert hashes[0] == hashes[1] != hashes[2]


async def test_arguments_that_cannot_be_encoded_are_not_sent(tmp_path: Path):
    async with audited(tmp_path) as crm:
        with pytest.raises(LocalProtocolError, match="not valid Unicode"):
            await crm.handle(call_of(arguments={"name": "\ud800"}))

    assert crm.upstream.calls == 0


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (b'{"content":[],"isError":true}', "tool_error", ""),
        (b'{"resultType":"input_required"}', "ok", "input_required"),
        (b'{"isError":"yes"}', "error", "protocol_error"),
        (RequestTimeout("no answer"), "timeout", "upstream_timeout"),
        (ServerUnavailable("crm", "down"), "error", "server_down"),
        (ServerExited("exited", 3), "error", "upstream_closed"),
        (LoginRequired("log in"), "error", "needs_login"),
        (MessageTooLarge("17 MiB"), "error", "result_too_large"),
        (RemoteProtocolError("malformed"), "error", "protocol_error"),
        (RemoteError(-32000, "no"), "error", "upstream_error"),
        (ToolError("no"), "tool_error", ""),
        (KeyError("bug"), "error", "internal_error"),
    ],
)
@pytest.mark.parametrize("risk", ["read", "write"])
async def test_outcome_states_how_the_call_ended(
    tmp_path: Path, answer: bytes | Exception, status: str, reason: str, risk: Risk
):
    async with audited(tmp_path, risk) as crm:
        crm.upstream.answers = [answer]
        call = msgspec.structs.replace(call_of(), returns_questions=True)
        with suppress(InterlockError, KeyError, msgspec.ValidationError):
            await crm.handle(call)
        rows = await crm.rows()

    assert [row["kind"] for row in rows] == ["intent", "outcome"]
    assert (rows[1]["status"], rows[1]["reason"]) == (status, reason)


@pytest.mark.parametrize("risk", ["read", "write"])
async def test_cancelled_call_gets_an_outcome(tmp_path: Path, risk: Risk):
    async with audited(tmp_path, risk) as crm:
        crm.upstream.gate.clear()
        sent = asyncio.create_task(crm.handle(call_of("anna")))
        await crm.upstream.arrived.wait()
        sent.cancel()
        unsent = asyncio.create_task(crm.handle(call_of("berta")))
        await asyncio.sleep(0)  # its intent is being written
        unsent.cancel()
        await asyncio.gather(sent, unsent, return_exceptions=True)
        rows = await crm.rows()

    for user in ("anna", "berta"):
        kinds = [(row["kind"], row["status"]) for row in rows if row["user"] == user]
        assert kinds == [("intent", ""), ("outcome", "cancelled")]


async def test_mode_off_adds_no_layer(tmp_path: Path):
    async with audited(tmp_path, mode="off") as crm:
        assert crm.trail.calls(crm.upstream.handle) == crm.upstream.handle
        assert crm.trail.refusals(crm.upstream.handle) == crm.upstream.handle


# Before and after


async def test_intent_is_durable_before_a_call_of_risk_write_is_sent(tmp_path: Path):
    seen: list[int] = []

    async def count(call: Call) -> Outcome:
        seen.append(len(read(tmp_path / "audit.db")))
        return Outcome(msgspec.Raw(OK))

    async with audited(tmp_path) as crm:
        await asyncio.gather(*(crm.trail.calls(count)(call_of()) for _ in range(20)))

    assert len(seen) == 20
    assert min(seen) >= 20  # one transaction for all


@pytest.mark.parametrize(("reads", "is_early"), [("overlap", True), ("before", False)])
async def test_call_of_risk_read_may_overlap_with_its_intent_but_not_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str, is_early: bool
):
    async with audited(tmp_path, "read", reads=reads) as crm:
        write, disk = crm.writer.tables.write, asyncio.Event()

        async def write_later(*statements: Any) -> None:
            await disk.wait()
            await write(*statements)

        monkeypatch.setattr(crm.writer.tables, "write", write_later)
        task = asyncio.create_task(crm.handle(call_of()))
        await settle()
        assert crm.upstream.calls == is_early
        assert not task.done()
        disk.set()
        await task
        rows = await crm.rows()

    assert [row["kind"] for row in rows] == ["intent", "outcome"]


# A disk that fails


async def test_full_disk_stops_a_call_before_its_effect_on_the_server(tmp_path: Path):
    server, effects = Server("crm"), []

    @server.tool
    async def refund(order: int) -> str:
        effects.append(order)
        return "done"

    path = tmp_path / "audit.db"
    with failing_disk() as disk:
        async with AuditWriter.open(path, key=GATEWAY_KEY) as writer:
            trail = AuditTrail(writer, KEY, Audit())
            around = Layers(refusals=trail.refusals, trail=trail.calls)
            async with Toolbox({"crm": server}, around=around, environ={}) as toolbox:
                await toolbox.call("crm:refund", {"order": 1})
                disk.arm("full", 1, lasting=True)
                calls = (toolbox.call("crm:refund", {"order": order}) for order in range(100, 120))
                refused = await asyncio.gather(*calls, return_exceptions=True)
                assert [type(each) for each in refused] == [AuditUnavailable] * 20
                assert effects == [1]
                disk.disarm()
                await toolbox.call("crm:refund", {"order": 2})
            trail.flush()

    assert effects == [1, 2]
    check_chains(stored(path))
    rows = read(path)
    kinds = [row["kind"] for row in rows]
    assert sorted(kinds) == ["intent"] * 2 + ["outcome"] * 2 + ["refused"] * 2
    refusals_of = [row for row in rows if row["kind"] == "refused"]
    assert {row["reason"] for row in refusals_of} == {"audit_unavailable"}
    assert sum(row["body"].get("count", 1) for row in refusals_of) == 20


async def test_full_disk_withholds_the_result_of_a_read_and_stops_further_reads(tmp_path: Path):
    with failing_disk() as disk:
        async with audited(tmp_path, "read") as crm:
            await crm.handle(call_of())
            disk.arm("full", 1, lasting=True)
            for _ in range(10):
                with pytest.raises(AuditUnavailable):
                    await crm.handle(call_of())
            assert crm.upstream.calls == 2
            disk.disarm()
            for _ in range(3):
                await crm.handle(call_of())
            assert crm.upstream.calls == 5


async def test_lenient_mode_continues_and_later_writes_the_buffered_records(tmp_path: Path):
    with failing_disk() as disk:
        async with audited(tmp_path, mode="lenient") as crm:
            disk.arm("full", 1, lasting=True)
            for _ in range(20):
                await crm.handle(call_of())
                await crm.writer.group._drain()
            assert crm.upstream.calls == 20
            disk.disarm()
            await crm.handle(call_of())
            rows = await crm.rows()

    assert [row["kind"] for row in rows] == ["intent", "outcome"] * 21


async def test_lenient_mode_marks_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(group_commit, "MAX_RETRIED", 6)
    with failing_disk() as disk:
        async with audited(tmp_path, mode="lenient") as crm:
            disk.arm("full", 1, lasting=True)
            for _ in range(20):
                await crm.handle(call_of())
                await crm.writer.group._drain()
            disk.disarm()
            for _ in range(3):
                await crm.handle(call_of())
                await crm.writer.group._drain()
            rows = await crm.rows()

    (gap,) = (row for row in rows if row["kind"] == "gap")
    assert gap["body"]["records"] + len(rows) - 1 == 2 * 23


async def test_closed_writer_fails_a_call_before_it_is_sent_and_no_answer(tmp_path: Path):
    async with audited(tmp_path) as crm:
        crm.upstream.gate.clear()
        task = asyncio.create_task(crm.handle(call_of()))
        await crm.upstream.arrived.wait()
    crm.upstream.gate.set()

    assert not (await task).is_error
    with pytest.raises(AuditUnavailable, match="has been closed"):
        await crm.handle(call_of())
    assert crm.upstream.calls == 1


# Together with the limits


async def test_call_that_is_refused_in_the_stack_is_recorded_and_spends_nothing(tmp_path: Path):
    server = Server("crm")

    @server.tool
    async def refund(order: int) -> str:
        return "done"

    path = tmp_path / "audit.db"
    limiter = Limiter(Limits(per_key=KeyLimits(rate=Rate(2, 86_400))))
    queue = FairQueue("crm", slots=1, size=0)
    with failing_disk() as disk:
        async with AuditWriter.open(path, key=GATEWAY_KEY) as writer:
            trail = AuditTrail(writer, KEY, Audit())
            around = Layers(
                refusals=trail.refusals,
                limits=limiter.around,
                queue=queued({"crm": queue}),
                trail=trail.calls,
            )
            async with Toolbox({"crm": server}, around=around, environ={}) as toolbox:
                disk.arm("full", 1, lasting=True)
                for _ in range(5):
                    with pytest.raises(AuditUnavailable):
                        await toolbox.call("crm:refund", {"order": 1})
                disk.disarm()
                await queue.acquire("")
                with pytest.raises(LimitExceeded, match="too many calls wait for server 'crm'"):
                    await toolbox.call("crm:refund", {"order": 1})
                queue.release()
                for _ in range(2):
                    await toolbox.call("crm:refund", {"order": 1})
                with pytest.raises(LimitExceeded, match="too many calls with this key"):
                    await toolbox.call("crm:refund", {"order": 1})
            trail.flush()

    rows = read(path)
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        found[row["kind"], row["reason"]] += row["body"].get("count", 1)
    assert found == {
        ("refused", "audit_unavailable"): 5,
        ("refused", "overloaded"): 1,
        ("refused", "rate_limited"): 1,
        ("intent", ""): 2,
        ("outcome", ""): 2,
    }


# Refusals


class Refusing:
    """A layer between the two of the trail, that refuses every call."""

    def __init__(self, error: InterlockError) -> None:
        self.error = error

    def __call__(self, handle: CallHandler) -> CallHandler:
        async def refuse(call: Call) -> Outcome:
            raise self.error

        return refuse


def on_a_clock(work: Any) -> None:
    """Run a coroutine function in an event loop whose time flies while it waits."""
    loop = ClockLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work(loop))


@pytest.mark.parametrize(
    "error",
    [
        CallRefused("no rule allows crm:refund", "no_rule"),
        LimitExceeded("too many calls", "rate_limited", 2.0),
        AuditUnavailable("the disk is full"),
    ],
)
async def test_refusal_of_a_layer_is_recorded(tmp_path: Path, error: InterlockError):
    async with audited(tmp_path) as crm:
        handle = crm.trail.refusals(Refusing(error)(crm.upstream.handle))
        call = call_of("anna", key="k_1")
        with pytest.raises(type(error)):
            await handle(call)
        (row,) = await crm.rows()

    assert (
        row.items()
        >= {
            "kind": "refused",
            "call": call.id,
            "user": "anna",
            "key": "k_1",
            "tool": "crm:refund",
            "reason": getattr(error, "reason", "audit_unavailable"),
            "body": {"surface": "mcp"},
        }.items()
    )


def test_same_refusal_of_one_caller_is_recorded_once_a_second_with_a_count(tmp_path: Path):
    async def run(loop: ClockLoop) -> None:
        async with audited(tmp_path) as crm:
            refuse = Refusing(CallRefused("no", "no_rule"))(crm.upstream.handle)
            handle = crm.trail.refusals(refuse)
            users = ["anna", "berta"]
            for times in (5, 3, 0, 4):
                for call in [call_of(user) for user in users] * times:
                    with pytest.raises(CallRefused):
                        await handle(call)
                with loop.clock.flying():
                    await asyncio.sleep(1.5)
        rows = read(crm.path)
        for user in users:
            counts = [row["body"].get("count", 1) for row in rows if row["user"] == user]
            assert counts == [1, 4, 3, 1, 3]

    on_a_clock(run)


async def test_refusals_of_different_tools_or_reasons_have_separate_records(tmp_path: Path):
    async with audited(tmp_path) as crm:
        for tool in ("refund", "list"):
            for reason in ("no_rule", "rate_limited"):
                for _ in range(3):
                    crm.trail.refused(call_of().caller, reason, entry=call_of(tool=tool).entry)
        rows = await crm.rows()
        assert len(rows) == len({(row["tool"], row["reason"]) for row in rows}) == 4

    assert sum(row["body"].get("count", 1) for row in read(crm.path)) == 12


async def test_refusals_for_invented_tool_names_are_counted_together(tmp_path: Path):
    async with audited(tmp_path) as crm:
        for number in range(1_000):
            crm.trail.refused(call_of().caller, "unknown", name=f"crm:{number}" + "x" * 1_000)

    rows = read(crm.path)
    assert [row["body"].get("count", 1) for row in rows] == [1, 999]
    assert len(rows[0]["tool"]) == audit.MAX_NAME


async def test_refusals_of_too_many_callers_are_counted_by_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(refusals, "MAX_REFUSALS", 5)
    async with audited(tmp_path) as crm:
        for number in range(100):
            caller = call_of(f"user{number}").caller
            crm.trail.refused(caller, "no_rule")

    rows = read(crm.path)
    assert [row["user"] for row in rows] == [*(f"user{number}" for number in range(5)), "", ""]
    assert sum(row["body"].get("count", 1) for row in rows) == 100


async def test_refused_credentials_are_counted_by_address_and_key(tmp_path: Path):
    revoked = StoredKey("k1", b"", "anna", revoked=1)
    async with audited(tmp_path) as crm:
        for _ in range(50):
            crm.trail.credential_refused(RefusedCredential("bad_credential", "10.0.0.7"))
            crm.trail.credential_refused(RefusedCredential("bad_credential", "10.0.0.8"))
            crm.trail.credential_refused(RefusedCredential("key_revoked", "10.0.0.7", revoked))
        rows = await crm.rows()

    assert [(row["reason"], row["user"], row["key"], row["body"]["address"]) for row in rows] == [
        ("bad_credential", "", "", "10.0.0.7"),
        ("bad_credential", "", "", "10.0.0.8"),
        ("key_revoked", "user:anna", "k1", "10.0.0.7"),
    ]
    assert sum(row["body"].get("count", 1) for row in read(crm.path)) == 150


def test_caller_has_the_same_owner_as_its_principal():
    assert Caller().owner == ""
    assert call_of("anna", key="k_1").caller.owner == call_of("anna", key="k_2").caller.owner


# Calls that another program makes


async def test_call_of_another_program_has_a_durable_intent_and_an_outcome(tmp_path: Path):
    async with audited(tmp_path) as crm:
        call = call_of("anna", key="k_1", arguments=SECRET)
        await crm.trail.announce(call)
        (intent,) = read(crm.path)  # not only queued
        await crm.trail.report(call, "tool_error", ms=1.5, size=7)
        _, outcome = await crm.rows()

    assert (intent["kind"], intent["call"], intent["tool"]) == ("intent", call.id, "crm:refund")
    assert (outcome["kind"], outcome["status"]) == ("outcome", "tool_error")
    assert (outcome["call"], outcome["user"], outcome["key"]) == (call.id, "anna", "k_1")
    assert outcome["body"].items() >= {"ms": 1.5, "bytes": 7}.items()


@pytest.mark.parametrize("mode", ["strict", "lenient"])
async def test_full_disk_refuses_a_call_of_another_program_unless_lenient(
    tmp_path: Path, mode: str
):
    with failing_disk() as disk:
        async with audited(tmp_path, mode=mode) as crm:
            disk.arm("full", 1, lasting=True)
            expected = pytest.raises(AuditUnavailable) if mode == "strict" else nullcontext()
            with expected:
                await crm.trail.announce(call_of())
            disk.disarm()


async def test_mode_off_records_no_refusal_and_no_refused_credential(tmp_path: Path):
    async with audited(tmp_path, mode="off") as crm:
        crm.upstream.answers = [LimitExceeded("no", "rate_limited", 1.0)]
        with pytest.raises(LimitExceeded):
            await crm.handle(call_of())
        crm.trail.note_refusal(call_of(), LimitExceeded("no", "rate_limited", 1.0))
        crm.trail.credential_refused(RefusedCredential("bad_credential", "10.0.0.7"))
        crm.trail.flush()
        assert await crm.rows() == []


@each_row("key", [b"k" * 32, b"k" * 64, b"k" * 100])
def test_hash_of_arguments_is_hmac_sha_256_in_base64(key: bytes):
    expected = hmac.digest(key, b'{"a":1}', "sha256")

    found = audit.arguments_hash(key, b'{"a":1}')

    assert urlsafe_b64decode(found + "=") == expected
    assert found != audit.arguments_hash(key, b'{"a":2}')
