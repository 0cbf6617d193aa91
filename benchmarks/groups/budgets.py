"""What a gateway may need besides the time of a call: lists, memory, idling, the trail."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from statistics import quantiles
from threading import Thread
from time import perf_counter, process_time, sleep, time_ns
from unittest import mock

from msgspec import Raw
from msgspec.structs import replace

from benchmarks import harness
from benchmarks.groups.audit import INTENT, OUTCOME
from benchmarks.groups.gateway import READ, Asker, Gateway, Ours, beyond, settings, upstream
from benchmarks.harness import US, Effort, Program, Row
from benchmarks.wire import ADD, META, REQUEST, fetch
from interlock.auth import Principal
from interlock.auth.gateway_key import GatewayKey
from interlock.config import StdioServer
from interlock.gateway import ForwardingServer
from interlock.policy import Policy
from interlock.protocol import Request
from interlock.store import AuditReader, AuditWriter, KeyStore
from interlock.store.audit import writer as audit
from interlock.store.audit.upkeep import DAY, AuditUpkeep
from tests.gateway.test_golden_table import context_of
from tests.servers.postgres import Postgres, client_programs
from tests.support.scripted_server import MODERN

TITLE = "Budgets of a gateway"
TOOLS, USERS = 1_000, 20
SERVERS, LISTENERS = 50, 500
STARTED = 10  # servers
SESSIONS = 1_000
CALLS = 100_000
RECORDS = 100_000
RATE, CALLERS = 200, 16  # calls a second, and the threads that make them
PROGRAM = str(Path(sys.executable).with_name("interlock"))
KEY = GatewayKey(bytes(range(32)))
KEY_TEXT = bytes(range(32)).hex()


class Served(Gateway):
    """`interlock serve` with servers on stdio, and keys of as many users.

    Its database is a file in the folder, unless another one is given.
    """

    def __init__(
        self, folder: Path, servers: list[list[str]], users: int = 1, database: str = ""
    ) -> None:
        file, database = folder / "gateway.json", database or str(folder / "gateway.db")
        entries = {
            f"s{number}": {"command": command, "args": arguments}
            for number, (command, *arguments) in enumerate(servers)
        }
        file.write_text(json.dumps({"mcpServers": entries, "gateway": gateway_of(database)}))
        self.keys = asyncio.run(keys_of(database, users))
        super().__init__([PROGRAM, "serve", "--config", str(file), "--http", "127.0.0.1:{port}"])
        self.key = self.keys[0]

    def processor_of(self, requests: list[bytes]) -> float:
        """Return the processor seconds of the gateway for each of these requests."""
        asker = Asker(self, "s0__add", is_modern=True)
        with asker.connect() as connection:
            before = self.processor_seconds()
            for request in requests:
                fetch(connection, request)
            return (self.processor_seconds() - before) / len(requests)

    def session_of(self, number: int) -> Asker:
        """Begin a session by one of the users; a user may have few of them."""
        self.key = self.keys[number % len(self.keys)]
        return Asker(self, "s0__add", is_modern=False)

    def list_by(self, key: str) -> bytes:
        """Return a request for the list of tools."""
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{%b}}' % META
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def gateway_of(database: str) -> dict[str, object]:
    """Return the member `gateway` of the group "gateway", for servers of any name."""
    found: dict = settings(database)
    for rule in found["policy"]["rules"]:
        rule["tools"] = [each.replace("up:", "*:") for each in rule["tools"]]
    users = [f"user:bench{number}" for number in range(USERS)]
    return found | {"groups": {"staff": users}}


async def keys_of(database: str, users: int) -> list[str]:
    async with KeyStore.open(database) as store:
        made = [await store.create(f"bench{n}", scopes=["mcp:*"]) for n in range(users)]
    return [key for _, key in made]


def bare(**told: int) -> list[str]:
    return [*upstream(), *(f"{name}={value}" for name, value in told.items())]


def rows(effort: Effort) -> Iterator[Row]:
    yield from of_lists(effort)
    yield from of_starts(effort)
    yield from of_memory()
    yield from of_idling()
    yield from of_the_trail(effort)
    yield from of_backups(effort)


def of_lists(effort: Effort) -> Iterator[Row]:
    first, kept = [], []
    for _ in range(effort.rounds):
        with (
            tempfile.TemporaryDirectory() as folder,
            Served(Path(folder), [bare(tools=TOOLS - 2)], USERS) as gateway,
        ):
            requests = [gateway.list_by(each) for each in gateway.keys]
            first.append(gateway.processor_of(requests))
            kept.append(gateway.processor_of(requests * 25))
    name = f"tools/list of {TOOLS:,} tools, processor time"
    yield Row(f"{name}: the first of a caller", "s", {US: first}, {US: 0.02})
    yield Row(f"{name}: kept, with the 220 KB over HTTP", "s", {US: kept})
    taken = [asyncio.run(_kept_list()) for _ in range(effort.rounds)]
    yield Row(f"{name}: kept", "s", {US: taken}, {US: 0.0002})


async def _kept_list() -> float:
    """Return the processor seconds from a decoded request to the encoded list."""
    command, *arguments = bare(tools=TOOLS - 2)
    servers = {"up": StdioServer(command=command, args=tuple(arguments))}
    front = ForwardingServer(servers, Policy.compile(None), environ={})
    request = Request(1, "tools/list", Raw(b"{}"))
    async with front.running():
        context = context_of(Principal("user:bench", frozenset({"mcp:*"})), MODERN)
        listed = bytes(await front.answer(request, context))
        assert listed.count(b'"inputSchema"') >= TOOLS
        began = process_time()
        for _ in range(1_000):
            await front.answer(request, context)
        return (process_time() - began) / 1_000


def of_starts(effort: Effort) -> Iterator[Row]:
    taken = []
    for _ in range(effort.rounds):
        slowest = _slowest_answer(STARTED)
        with (
            tempfile.TemporaryDirectory() as folder,
            Served(Path(folder), [bare()] * STARTED) as gateway,
        ):
            whole = perf_counter() - gateway.started
        taken.append(whole - 1.2 * slowest)
    name = f"start with {STARTED} servers, beyond 1.2 × the slowest one"
    yield Row(name, "s", {US: taken}, {US: 0.3})


def _slowest_answer(servers: int) -> float:
    """Start servers together, without a gateway; return the seconds to the last first answer."""
    began = perf_counter()
    with ExitStack() as stack:
        started = [stack.enter_context(Program(bare())) for _ in range(servers)]
        for each in started:
            each.process.stdin.write(REQUEST % (1, b"server/discover", b""))
            each.process.stdin.write(b"\n")
        for each in started:
            each.process.stdout.readline()
        return perf_counter() - began


def of_memory() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        gateway = stack.enter_context(Served(Path(folder), [bare()], USERS))
        Asker(gateway, "s0__add", is_modern=True).times(100)
        alone = gateway.memory()
        yield Row("memory with one server", "MB", {US: [alone]}, {US: 71.0})
        for number in range(SESSIONS):
            gateway.session_of(number)
        each = (gateway.memory() - alone) * 1_000 / SESSIONS
        yield Row("memory of an idle legacy session", "KB", {US: [each]}, {US: 10.0})
    with tempfile.TemporaryDirectory() as folder, Served(Path(folder), [bare()] * 21) as gateway:
        Asker(gateway, "s0__add", is_modern=True).times(100)
        each = (gateway.memory() - alone) / 20
        yield Row("memory of each further server", "MB", {US: [each]}, {US: 1.0})
    with tempfile.TemporaryDirectory() as folder, Ours(Path(folder), READ) as gateway:
        asker = Asker(gateway, "up__add", is_modern=True)
        _call(asker, CALLS // 2)
        before = gateway.memory()
        _call(asker, CALLS)
        grown = gateway.memory() - before
        yield Row(
            f"growth over {CALLS:,} calls, after {CALLS // 2:,}", "MB", {US: [grown]}, {US: 1.0}
        )


def _call(asker: Asker, calls: int) -> None:
    """Make at least so many calls, 32 at once."""
    while calls > 0:
        made, _ = asker.count(32, 2.0)
        calls -= made


def of_idling() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        gateway = stack.enter_context(Served(Path(folder), [bare()] * SERVERS, USERS))
        for number in range(LISTENERS):
            asker = gateway.session_of(number)
            connection = stack.enter_context(closing(asker.connect()))
            head, _, rest = asker._head.partition(b"\r\n")
            connection.sendall(head.replace(b"POST", b"GET") + b"\r\n" + rest + b"\r\n")
        sleep(5)
        began, before = perf_counter(), gateway.processor_seconds()
        sleep(30)
        share = (gateway.processor_seconds() - before) / (perf_counter() - began) * 100
        what = f"idle with {SERVERS} servers and {LISTENERS} listeners, of one core"
        yield Row(what, "%", {US: [share]}, {US: 1.0})


# The trail


def of_the_trail(effort: Effort) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder, "audit.db"))
        asyncio.run(_fill(place, RECORDS, KEY))
        taken = [asyncio.run(_verified(place)) for _ in range(effort.rounds)]
        name = "audit verify, for each second of processor time"
        yield Row(f"{name}, SQLite", "records/s", {US: taken}, {US: 200_000})
        beside, alone = asyncio.run(_longest_waits(place))
        yield Row("longest wait of a record during a purge", "s", {US: [beside]}, {US: 0.05})
        yield Row("the same without a purge", "s", {US: [alone]})
    server = Postgres(sync=True)
    try:
        server.start()
        asyncio.run(_fill(server.url, RECORDS, KEY))
        taken = [asyncio.run(_verified(server.url)) for _ in range(effort.rounds)]
        yield Row(f"{name}, PostgreSQL", "records/s", {US: taken}, {US: 100_000})
    finally:
        server.close()


async def _fill(place: str, records: int, key: GatewayKey) -> None:
    async with AuditWriter.open(place, key=key) as writer:
        for number in range(records // 2):
            call = f"c_{number:024x}"
            writer.append_soon(replace(INTENT, call=call))
            writer.append_soon(replace(OUTCOME, call=call))
            if number % 500 == 0:
                await writer.append(INTENT)
        writer.sign_soon()
        await writer.append(OUTCOME)


async def _verified(place: str) -> float:
    """Return how many records are verified in a second of this process's time."""
    async with AuditReader.open(place) as reader:
        began = process_time()
        found = await reader.verify(KEY)
    assert found.problems == [], found.problems
    return found.records / (process_time() - began)


async def _longest_waits(place: str) -> tuple[float, float]:
    """Return the longest time that a record took while all others were deleted, and then alone."""

    def later() -> int:
        return time_ns() + 1_000 * DAY * 1_000

    async def longest(meanwhile: Awaitable[object]) -> float:
        found, task = 0.0, asyncio.ensure_future(meanwhile)
        while not task.done():
            began = perf_counter()
            await writer.append(INTENT)
            found = max(found, perf_counter() - began)
        await task
        return found

    with mock.patch.object(audit, "time_ns", later):  # so that only older records are deleted
        async with AuditWriter.open(place, key=KEY) as writer:
            began = perf_counter()
            beside = await longest(AuditUpkeep(writer, KEY, 86_400).purge(later() // 1_000))
            return beside, await longest(asyncio.sleep(perf_counter() - began))


def of_backups(effort: Effort) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from _beside_backups(effort, Path(folder), str(Path(folder) / "gateway.db"), "SQLite")
    server = Postgres(sync=True)
    try:
        server.start()
        with tempfile.TemporaryDirectory() as folder:
            yield from _beside_backups(effort, Path(folder), server.url, "PostgreSQL")
    finally:
        server.close()


def _beside_backups(effort: Effort, folder: Path, place: str, name: str) -> Iterator[Row]:
    """Compare calls during backups with calls without one, in turn, of one gateway."""
    beside, alone = [], []
    more = {"INTERLOCK_KEY": KEY_TEXT, "PATH": f"{client_programs()}:{os.environ['PATH']}"}
    with mock.patch.dict(os.environ, more), mock.patch.dict(harness.ENVIRONMENT, more):
        asyncio.run(_fill(place, RECORDS, GatewayKey.load(folder)))
        with Served(folder, [bare()], database=place) as gateway:
            for number in range(effort.rounds):
                command = ["db", "backup", str(folder / f"backup{number}")]
                command += ["--config", str(folder / "gateway.json")]
                beside.append(_percentile_while(gateway, [PROGRAM, *command]))
                alone.append(_percentile_while(gateway, ["sleep", "4"]))
    what = f"p99 of a call, {RATE} a second, {name}"
    added = {US: beyond(alone, beside)}
    yield Row(f"{what}, without a backup", "s", {US: alone})
    yield Row(f"added by backups of {RECORDS:,} records", "s", added, {US: 0.05})


def _percentile_while(gateway: Served, command: list[str]) -> float:
    """Return the p99 of the seconds of calls, each from when it is due, while a command runs."""
    request = Asker(gateway, "s0__add", is_modern=True).request(ADD, b"add")
    program = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    began, seconds = perf_counter(), list[float]()

    def call(first: int) -> None:
        with Asker(gateway, "s0__add", is_modern=True).connect() as connection:
            for number in count(first, CALLERS):
                if program.poll() is not None:
                    return
                due = began + number / RATE
                sleep(max(0.0, due - perf_counter()))
                fetch(connection, request)
                seconds.append(perf_counter() - due)

    callers = [Thread(target=call, args=(first,)) for first in range(CALLERS)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert program.returncode == 0, command
    return quantiles(seconds, n=100)[-1]
