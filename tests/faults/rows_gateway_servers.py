"""Faults of servers behind a gateway, and of its callers, as other clients see them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from interlock import Client
from interlock.client import features
from interlock.config import load
from interlock.errors import ConfigError
from interlock.gateway.assembly import Assembly
from interlock.layers.limits import Limiter
from interlock.store.keys import KeyStore
from interlock.types import ElicitParams, ElicitResult
from tests.faults.gateways import RUBBISH, Gateway, gateway_of
from tests.faults.ground import EVIL, Ground, until
from tests.faults.matrix import GATEWAY, row
from tests.server.http.conftest import Reply
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text, tool

CONFIGURED = "servers_of_the_row"  # the module in which the configuration finds them
LENIENT = {"audit": {"mode": "lenient"}}  # else time would fly while the disk is written
FORM = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}


class Stage(Gateway):
    """A gateway in this process with servers of the row, and keys for its users."""

    def __init__(self, assembly: Assembly, keys: KeyStore, config: Json) -> None:
        super().__init__(assembly)
        self.config = config
        self._keys = keys
        self.caller: dict[str, str] = {}

    async def key(self, user: str) -> dict[str, str]:
        """Return the headers of a new key."""
        _, key = await self._keys.create(user, scopes=["mcp:*"])
        await self.assembly.services.keys.refresh()
        return {"x-api-key": key}

    async def call(
        self, name: str, headers: dict[str, str] | None = None, **arguments: Any
    ) -> Reply:
        return await self.http.call(name, arguments, headers=headers or self.caller)


@asynccontextmanager
async def stage(ground: Ground, gateway: Json, **servers: Any) -> AsyncIterator[Stage]:
    """Run a gateway for servers by name: objects of this process, or entries of a file."""
    objects = {name: each for name, each in servers.items() if not isinstance(each, dict)}
    found = SimpleNamespace(**objects)
    entries = {
        name: {"type": "python", "object": f"{CONFIGURED}:{name}"} if name in objects else each
        for name, each in servers.items()
    }
    settings = {"database": str(ground.folder / "gateway.db"), **gateway}
    config = {"mcpServers": entries, "gateway": settings}
    async with KeyStore.open(ground.folder / "gateway.db") as keys:
        with mock.patch.dict(sys.modules, {CONFIGURED: found}):  # type: ignore[dict-item]
            async with gateway_of(config, lambda each: Stage(each, keys, config)) as made:
                made.caller = await made.key("anna")
                yield made


def offering(call: Any = None) -> ScriptedServer:
    """Return a server with one tool, "x"."""
    answers = {"tools/list": {"tools": [tool("x")]}, "tools/call": call or text("done")}
    return ScriptedServer(LEGACY, answers, capabilities={"tools": {"listChanged": True}})


def evil(*tools: str, **options: Any) -> Json:
    """Return the entry of a program that misbehaves by these tools."""
    listed = {"tools": [tool(each) for each in tools]}
    arguments = [*EVIL[1:], f"tools/list={json.dumps(listed)}"]
    return {"command": EVIL[0], "args": arguments, **options}


def reason(reply: Reply) -> str:
    """Return the reason of a refused call, whose answer may be a stream."""
    message = reply.body.decode().rpartition("data: {")[2]
    (found,) = re.findall(r'"(?:reason|interlock/reason)":(?:"|{"code":")(\w+)"', message)
    return str(found)


def p99(values: list[float]) -> float:
    return sorted(values)[-1 - len(values) // 100]


# Servers


@row(
    "Server hangs: one of ten behind a gateway",
    "p99 of the nine others, whose calls take 1 s, grows by less than 10 %; the callers of the one "
    "get upstream_timeout, queue_timeout, or overloaded when 64 calls of theirs wait",
    GATEWAY,
    within=0.1,
)
async def one_of_ten_hangs(ground: Ground) -> None:
    loop = asyncio.get_running_loop()

    async def work(_: Json) -> Json:
        await asyncio.sleep(1)
        return text("done")

    others = {f"s{number}": offering(work) for number in range(9)}
    slots = {"concurrent": 2}  # three calls that time out together would end the server
    hanging = evil("echo", "surroundings", limits=slots, timeout=40)
    settings = {"limits": {"perKey": {"concurrent": 200}}, **LENIENT}
    async with stage(ground, settings, h=hanging, **others) as gateway:
        bert = await gateway.key("bert")
        (id,) = json.loads((await gateway.call("h__surroundings")).text)["processes"]

        async def timed(name: str) -> float:
            began = loop.time()
            assert (await gateway.call(f"{name}__x")).text == "done"
            return loop.time() - began

        async def nine() -> list[float]:
            rounds = [await asyncio.gather(*map(timed, others)) for _ in range(12)]
            return [each for seconds in rounds for each in seconds]

        with ground.flying_time(grace=0.001):
            alone = p99(await nine())
            os.kill(id, signal.SIGSTOP)
            params = {"name": "h__echo", "arguments": {"text": ""}}
            calls = [gateway.http.begin("tools/call", params, headers=bert) for _ in range(100)]
            beside = p99(await nine())
            await asyncio.gather(*(each.task for each in calls))
    refused = [reason(each) for each in calls]
    assert {each: refused.count(each) for each in refused} == {
        "overloaded": 34,
        "queue_timeout": 64,
        "upstream_timeout": 2,
    }
    assert beside < 1.1 * alone, (alone, beside)
    ground.keep(beside - alone, "the others answer as before")


@row(
    "Server exits mid-call: behind a gateway",
    "upstream_closed with its last words; the call is not sent again, the next one starts it",
    GATEWAY,
    within=0.1,
)
async def exits_behind_a_gateway(ground: Ground) -> None:
    async with stage(ground, {}, h=evil("exit", "echo")) as gateway:
        with ground.promise(outcome="upstream_closed: … exited with code 3: out of cheese"):
            lost = await gateway.call("h__exit", code=3, stderr="out of cheese\n")
        assert reason(lost) == "upstream_closed"
        assert "exited with code 3: out of cheese" in lost.text
        assert (await gateway.call("h__echo", text="back")).text == "back"
        assert gateway.assembly.server.toolbox.status["h"].starts == 2


@row(
    "Server floods list changes",
    "at most one list a second; its and others' calls are answered",
    GATEWAY,
    within=1.0,
)
async def floods_list_changes(ground: Ground) -> None:
    flooding, seconds = offering(), 3
    async with stage(ground, {}, h=flooding, s=offering()) as gateway:
        await until(lambda: bool(flooding.sent("tools/list")))
        loop = asyncio.get_running_loop()
        before, began = len(flooding.sent("tools/list")), loop.time()
        for _ in range(seconds):
            for _ in range(100):
                for _ in range(100):
                    flooding.notify("notifications/tools/list_changed")
                await asyncio.sleep(0)
            for name in ("h__x", "s__x"):
                with ground.promise(outcome="answered"):
                    assert (await gateway.call(name)).text == "done"
            with ground.flying_time():
                await asyncio.sleep(1)
        lists = len(flooding.sent("tools/list")) - before
        assert 1 <= lists <= loop.time() - began + 1


@row(
    "Server floods progress: behind a gateway",
    "the client gets at most 20 a second, then the result; others' calls are answered",
    GATEWAY,
    within=2.0,
)
async def floods_progress(ground: Ground) -> None:
    async def work(params: Json) -> Json:
        token = params["_meta"]["progressToken"]
        for step in range(1, 10_001):
            flooding.notify("notifications/progress", progressToken=token, progress=step)
            if step < 900 or step % 100 == 0:  # over 1,000 a second are dropped anyway
                await asyncio.sleep(0)
        return text("done")

    flooding = offering(work)
    async with stage(ground, {}, h=flooding, s=offering()) as gateway:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with ground.promise(outcome="thinned out, then the result"):
            called = gateway.http.begin(
                "tools/call", {"name": "h__x"}, meta={"progressToken": 7}, headers=gateway.caller
            )
            await flooding.heard("tools/call")
            assert (await gateway.call("s__x")).text == "done"
            await called.finished()
        got = called.body.count(b"notifications/progress")
        assert b'"text":"done"' in called.body
        assert 1 <= got <= 20 * (loop.time() - began) + 2


@row(
    "Server floods questions",
    "asks_exceeded after 30 a minute, for this server alone; the call goes on",
    GATEWAY,
    within=5.0,
)
async def floods_questions(ground: Ground) -> None:
    refused: list[str] = []

    async def work(_: Json) -> Json:
        for _ in range(100):
            replies = [flooding.ask("elicitation/create", FORM) for _ in range(100)]
            for each in await asyncio.gather(*replies):
                if "error" in each:
                    refused.append(each["error"]["data"]["reason"])
        return text("went on")

    shown = 0

    async def answer(_: ElicitParams) -> ElicitResult:
        nonlocal shown
        shown += 1
        return ElicitResult(action="accept", content={})

    flooding = offering(work)
    async with stage(ground, {}, h=flooding, s=offering()) as gateway:
        front = gateway.assembly.server
        async with Client.memory(front, revision=LEGACY, elicitation=answer) as client:
            with ground.promise(outcome="30 are asked, the rest are asks_exceeded"):
                asking = asyncio.create_task(client.call_tool("h__x"))
                await flooding.heard("tools/call")
                assert (await gateway.call("s__x")).text == "done"
                assert (await asking).text == "went on"
    assert shown == features.MAX_ASKS == 30
    assert refused == ["asks_exceeded"] * (10_000 - 30)


# Callers


@row(
    "Greedy caller",
    "p99 of a polite one beside 1,000 calls at once is less than twice what it is alone; the "
    "greedy one gets overloaded, and is served again as soon as there is room",
    GATEWAY,
    within=0.6,
)
async def is_greedy(ground: Ground) -> None:
    chance = random.Random(ground.folder.name)
    loop = asyncio.get_running_loop()

    async def work(_: Json) -> Json:
        await asyncio.sleep(chance.uniform(0.1, 0.3))
        return text("done")

    server = {"type": "python", "object": f"{CONFIGURED}:busy", "limits": {"concurrent": 4}}
    async with stage(ground, LENIENT, busy=offering(work), h=server) as gateway:
        greedy = await gateway.key("greedy")

        async def polite() -> list[float]:
            taken = []
            for _ in range(40):
                began = loop.time()
                assert (await gateway.call("h__x")).text == "done"
                taken.append(loop.time() - began)
            return taken

        with ground.flying_time(grace=0.001):
            alone = p99(await polite())
            is_over = False

            async def press() -> Reply:
                while (reply := await gateway.call("h__x", greedy)).code == 200 and not is_over:
                    pass
                return reply

            burst = [asyncio.create_task(press()) for _ in range(1_000)]
            await until(lambda: sum(each.done() for each in burst) == 1_000 - 16)
            beside = p99(await polite())
            is_over = True
            ends = await asyncio.gather(*burst)
            assert (await gateway.call("h__x", greedy)).text == "done"
    refused = [reason(each) for each in ends if each.code != 200]
    assert refused == ["overloaded"] * 984
    assert beside < 2 * alone, (alone, beside)
    ground.keep(beside, "no longer than one call more")


# Configuration and clock


@row(
    "Bad config reload: 100 times under load",
    "ConfigError each time; the old configuration is served, and no call is lost",
    GATEWAY,
    within=1.0,
)
async def is_replaced_under_load(ground: Ground) -> None:
    server, file = offering(), ground.folder / "gateway.json"
    answered, is_over = 0, False
    async with stage(ground, {}, s=server) as gateway:

        async def load_it() -> None:
            nonlocal answered
            while not is_over:
                assert (await gateway.call("s__x")).text == "done"
                answered += 1

        callers = [asyncio.create_task(load_it()) for _ in range(4)]
        errors = 0
        for number in range(100):
            seen = answered
            file.write_bytes(RUBBISH[number % len(RUBBISH)])
            with ground.promise(outcome="ConfigError, and every call is answered"):
                try:
                    await gateway.assembly.reload(load(file))
                except ConfigError:
                    errors += 1
                await until(lambda: answered > seen)  # noqa: B023
        is_over = True
        await asyncio.gather(*callers)
    assert errors == 100
    assert len(server.sent("tools/call")) == answered


@row(
    "Clock jump ±1 h / suspend: of a gateway",
    "rates and quotas stay as spent, and running calls go on",
    GATEWAY,
    within=1.0,
)
async def has_its_clock_set(ground: Ground) -> None:
    go_on = asyncio.Event()

    async def work(_: Json) -> Json:
        await go_on.wait()
        return text("done")

    shift = 0.0
    real = time.time

    def wall() -> float:
        return real() + shift

    rates = {"perKey": {"rate": "2/h", "perDay": 2}}
    slow = offering(work)
    with (
        mock.patch.dict(Limiter.__init__.__kwdefaults__, wall=wall),
        mock.patch("time.time", new=wall),
    ):
        async with stage(ground, {"limits": rates}, s=offering(), slow=slow) as gateway:
            held = asyncio.create_task(gateway.call("slow__x"))
            await slow.heard("tools/call")
            assert (await gateway.call("s__x")).text == "done"
            for hours in (1, -1):
                shift = hours * 3_600.0
                with ground.promise(outcome="rate_limited, as before"):
                    refused = await gateway.call("s__x")
                assert reason(refused) == "rate_limited"
                assert 1_700 <= int(refused.header("retry-after") or 0) <= 86_400
            go_on.set()
            assert (await held).text == "done"
