"""Faults of a PostgreSQL server: it ends, hangs or disconnects, and recovers."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial

import asyncpg  # type: ignore[import-untyped]  # it ships no types

from interlock import Server
from interlock.agent import Agent
from interlock.auth.gateway_key import GatewayKey
from interlock.errors import AuditUnavailable, StoreError, StoreLocked
from interlock.messages import Message, ToolCall, ToolMessage, UserMessage, interrupted
from interlock.models.scripted import ScriptedModel
from interlock.store import AuditWriter, ConversationStore
from interlock.toolbox import Toolbox
from tests.faults.databases import AuditedTool, started, url_of
from tests.faults.ground import CANARY, Ground, Told, all_of
from tests.faults.matrix import POSTGRES, row
from tests.faults.rows_http import free_port, full_listener
from tests.servers.postgres import Postgres

KEY = GatewayKey(bytes(range(32)))

HELLO = UserMessage("hello")
ENDED = "PostgreSQL .* has closed the connection: is the server running"
DOWN = "cannot connect to PostgreSQL .*(refused|No such file)"
SILENT = "cannot connect to PostgreSQL .*: no answer within 5 s"
SLOW = "PostgreSQL .* took too long to answer: try again"
CONNECTED = "FROM pg_stat_activity WHERE application_name = 'interlock'"


class StoredConversation:
    """A conversation on a running server.

    Attributes:
        server: The server.
        store: An open store with one idle connection.
        messages: The acknowledged messages.
    """

    def __init__(self, server: Postgres, store: ConversationStore, id: str) -> None:
        self.server = server
        self.store = store
        self.id = id
        self.messages: list[Message] = []

    async def append(self) -> None:
        """Append a message."""
        await self.store.append(self.id, HELLO)
        self.messages.append(HELLO)

    async def check(self, ground: Ground) -> None:
        """Check that the store works again and has all acknowledged messages."""
        with ground.promise(outcome="works again, nothing lost"):
            found = await self.store.messages(self.id)
            # The message that was being appended is there as a whole or not at all.
            assert len(self.messages) <= len(found) <= len(self.messages) + 1
            self.messages = found
            await self.append()
            assert await self.store.messages(self.id) == self.messages

    @asynccontextmanager
    async def blocked_write(self) -> AsyncIterator[asyncio.Task[None]]:
        """Return a write that the server blocks for as long as the context lasts."""
        other = await asyncpg.connect(self.server.url)
        try:
            await other.execute("BEGIN; SELECT * FROM conversations FOR UPDATE")
            writing = asyncio.create_task(self.store.append(self.id, HELLO))
            waits = f"SELECT count(*) {CONNECTED} AND wait_event_type = 'Lock'"
            while not await other.fetchval(waits):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
            yield writing
        finally:
            other.terminate()


async def stored(ground: Ground) -> StoredConversation:
    """Start the server and store a conversation in it."""
    server = started(ground)
    store = await ground.stack.enter_async_context(ConversationStore.open(url_of(server)))
    found = StoredConversation(server, store, (await store.create()).id)
    await found.append()
    return found


@row(
    "Postgres down / slow / failover: a store at the start",
    "StoreError that names the server, without its password",
    POSTGRES,
    within=5.5,
)
async def is_no_server(ground: Ground) -> None:
    with free_port() as port, ground.promise(StoreError, "cannot connect to .*127.0.0.1"):
        async with ConversationStore.open(f"postgresql://me:{CANARY}@127.0.0.1:{port}/db"):
            pass
    silent = ground.promise(StoreError, "cannot connect to .*127.0.0.1.*: no answer within 5 s")
    with full_listener() as port, ground.flying_time(), silent:
        async with ConversationStore.open(f"postgresql://me:{CANARY}@127.0.0.1:{port}/db"):
            pass


@row(
    "Postgres down / slow / failover",
    "StoreError at once; when it is back, the store works again and nothing is lost",
    POSTGRES,
    within=1.0,
)
async def ends(ground: Ground) -> None:
    here = await stored(ground)
    ways: tuple[Callable[[], None], ...] = (here.server.kill, here.server.stop)
    for end in ways:
        async with here.blocked_write() as writing:
            end()
            with ground.promise(StoreError, ENDED):
                await writing
        with ground.promise(StoreError, DOWN):
            await here.append()
        with ground.promise(StoreError, DOWN):
            await here.store.messages(here.id)
        here.server.start()
        await here.check(ground)
        end()  # while the store is idle
        here.server.start()
        await here.check(ground)


@row(
    "Postgres down / slow / failover: closes our connections",
    "StoreError for a running change; otherwise no error",
    POSTGRES,
    within=1.0,
)
async def closes_connections(ground: Ground) -> None:
    here = await stored(ground)
    other = await asyncpg.connect(here.server.url)
    try:
        async with here.blocked_write() as writing:
            await other.execute(f"SELECT pg_terminate_backend(pid, 5000) {CONNECTED}")
            with ground.promise(StoreError, ENDED):
                await writing
        await here.check(ground)
        await all_of(
            *(here.store.messages(here.id) for _ in range(5))
        )  # each over its own connection
        await other.execute(f"SELECT pg_terminate_backend(pid, 5000) {CONNECTED}")
        await here.check(ground)
    finally:
        await other.close()


@row(
    "Postgres down / slow / failover: hangs",
    "StoreError after 6 s, or 11 s when all connections wait; when it continues, the store works "
    "again and nothing is lost",
    POSTGRES,
    within=11.5,
)
async def hangs(ground: Ground) -> None:
    here = await stored(ground)
    async with here.blocked_write() as writing:
        here.server.signal(signal.SIGSTOP)
        with ground.flying_time(), ground.promise(StoreLocked, SLOW):
            await writing
    with ground.flying_time(), ground.promise(StoreError, SILENT):
        await here.store.messages(here.id)
    here.server.signal(signal.SIGCONT)
    await here.check(ground)

    here.server.signal(signal.SIGSTOP)
    with ground.flying_time(), ground.promise(outcome="40 at once: as many errors"):
        ends = await all_of(*(here.store.messages(here.id) for _ in range(40)))
        assert all(isinstance(each, StoreError) for each in ends)
        assert not any(CANARY in str(each) for each in ends)
    here.server.signal(signal.SIGCONT)
    await here.check(ground)


@row(
    "Postgres down / slow / failover: hangs while a store is opened or closed",
    "StoreError after 5 s when opening; closing does not wait",
    POSTGRES,
    within=5.5,
)
async def hangs_while_opened_or_closed(ground: Ground) -> None:
    server = started(ground)
    async with ConversationStore.open(url_of(server)) as store:
        made = await store.create()
        # So that there is more than one connection to close.
        await all_of(*(store.messages(made.id) for _ in range(5)))
        server.signal(signal.SIGSTOP)
        loop = asyncio.get_running_loop()
        began = loop.time()
    assert loop.time() - began < 0.5
    with ground.flying_time(), ground.promise(StoreError, SILENT):
        async with ConversationStore.open(url_of(server)):
            pass
    server.signal(signal.SIGCONT)
    with ground.promise(outcome="opened when it continues"):
        async with ConversationStore.open(url_of(server)) as store:
            assert await store.messages(made.id) == []


@row(
    "Postgres down / slow / failover: while an agent answers",
    "StoreError; the stored conversation is valid and can be continued",
    POSTGRES,
    within=6.5,
)
async def ends_while_an_agent_answers(ground: Ground) -> None:
    here = await stored(ground)

    def hang() -> None:
        here.server.signal(signal.SIGSTOP)

    def go_on() -> None:
        here.server.signal(signal.SIGCONT)

    broken = ground.promise(StoreError, DOWN)
    await answer_during(ground, here, here.server.kill, broken, here.server.start)
    await answer_during(ground, here, hang, ground.promise(StoreLocked, SLOW), go_on)


async def answer_during(
    ground: Ground,
    here: StoredConversation,
    begin: Callable[[], None],
    promise: AbstractContextManager[Told],
    end: Callable[[], None],
) -> None:
    """Start a fault in an agent's tool call, end it, and continue the conversation."""
    id = (await here.store.create()).id
    server = Server("tools")

    @server.tool
    async def fault() -> str:
        begin()
        return "done"

    async def record(new: Sequence[Message]) -> None:
        await here.store.append(id, *new)

    messages: list[Message] = [HELLO]
    await record(messages)
    call = ToolCall("1", "tools__fault", {})
    model = ScriptedModel([[call], "Never said."])
    async with Toolbox({"tools": server}, environ={}) as toolbox:
        with ground.flying_time(), promise:
            await Agent(model, toolbox, record=record).complete(messages)
    assert isinstance(messages[-1], ToolMessage)  # valid, although it could not be stored
    end()
    with ground.promise(outcome="goes on"):
        resumed = await here.store.resume(id)
        assert resumed[:-1] == messages[:-1]
        assert resumed[-1] in (messages[-1], interrupted(call))
        await Agent(ScriptedModel(["Good day."]), record=record).complete(resumed)
        assert await here.store.messages(id) == resumed


@row(
    "Postgres down / slow / failover: audit records",
    "AuditUnavailable before the effect of each call; when it is back, calls succeed and the "
    "chain of records is unbroken",
    POSTGRES,
    within=1.0,
)
async def ends_or_hangs_for_audit_records(ground: Ground) -> None:
    server = started(ground)
    async with AuditWriter.open(url_of(server), key=KEY) as writer:
        tool = AuditedTool(writer)
        await tool.call()
        for end, recover in (
            (server.kill, server.start),
            (server.stop, server.start),
            (partial(server.signal, signal.SIGSTOP), partial(server.signal, signal.SIGCONT)),
        ):
            before = tool.effects
            end()
            for _ in range(3):
                with ground.promise(AuditUnavailable):
                    await tool.call()
            assert tool.effects == before
            recover()
            while tool.effects == before:
                await asyncio.sleep(0)  # a call is refused at once while an attempt hangs
                with suppress(AuditUnavailable):
                    await tool.call()
    other = await asyncpg.connect(server.url)
    try:
        query = "SELECT seq FROM audit WHERE writer = $1 ORDER BY seq"
        numbers = [each[0] for each in await other.fetch(query, writer.id)]
    finally:
        await other.close()
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 2 * tool.effects
