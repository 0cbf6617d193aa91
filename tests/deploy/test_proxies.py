"""The configurations of deploy/proxies, with replicas that tell which requests they get."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web

from tests.docs.page import ROOT
from tests.support.reverse_proxies import caddy, free_port, haproxy, nginx

FOLDER = ROOT / "deploy" / "proxies"
PORTS = (8001, 8002, 8003)


class Replica:
    """A stand-in for a gateway on a free port."""

    def __init__(self) -> None:
        self.ready = 200
        self.checks = 0
        self.held = asyncio.Event()  # ends the calls of /hold
        self.holding = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/readyz":
            if request.headers["Host"] != "127.0.0.1":  # the only one that all gateways accept
                return web.Response(status=403)
            self.checks += 1
            return web.Response(status=self.ready)
        if request.path == "/hold":
            self.holding.set()
            await self.held.wait()
        return web.json_response({"port": self.port, "headers": dict(request.headers)})

    @asynccontextmanager
    async def open(self, port: int = 0) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
        await site.start()
        self.port = runner.addresses[0][1]
        self.close = runner.cleanup
        try:
            yield
        finally:
            await runner.cleanup()


class Fleet(NamedTuple):
    replicas: list[Replica]
    url: str
    client: aiohttp.ClientSession
    name: str

    async def ask(self, headers: dict[str, str] | None = None, path: str = "/mcp") -> Any:
        async with self.client.post(self.url + path, json={}, headers=headers) as reply:
            assert reply.status == 200, await reply.text()
            return await reply.json()

    async def port_of(self, headers: dict[str, str] | None = None) -> int:
        answer = await self.ask(headers)
        port: int = answer["port"]
        return port

    async def next_port_of(self, headers: dict[str, str]) -> int:
        """Return the port of a replica that answers after another one was lost.

        A request on a connection that was open when its replica died is refused and not repeated.
        """
        async with self.client.post(f"{self.url}/mcp", json={}, headers=headers) as reply:
            if reply.status == 200:
                port: int = (await reply.json())["port"]
                return port
            assert reply.status in (502, 503), await reply.text()
        return await self.next_port_of(headers)

    def by_port(self, port: int) -> Replica:
        return next(each for each in self.replicas if each.port == port)


FILES = {nginx: "nginx.conf", haproxy: "haproxy.cfg", caddy: "Caddyfile"}


@pytest.fixture(params=[haproxy, nginx, caddy], ids=lambda each: each.__name__)
async def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fleet]:
    """Three replicas behind a proxy that has the configuration as it is, but for the ports."""
    write: Callable[[Path, str], list[str]] = request.param
    text = (FOLDER / FILES[request.param]).read_text()
    async with AsyncExitStack() as opened:
        replicas = [Replica() for _ in PORTS]
        for port, replica in zip(PORTS, replicas, strict=True):
            await opened.enter_async_context(replica.open())
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{replica.port}")
        own = free_port()
        text = text.replace("127.0.0.1:8443", f"127.0.0.1:{own}")
        client = await opened.enter_async_context(
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        )
        command = write(tmp_path, text)
        program = await asyncio.create_subprocess_exec(
            *command, env={"HOME": str(tmp_path), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        )
        try:
            found = Fleet(replicas, f"http://127.0.0.1:{own}", client, write.__name__)
            while not await is_up(found):
                assert program.returncode is None
                await asyncio.sleep(0.01)
            yield found
        finally:
            if program.returncode is None:
                program.terminate()
            await program.wait()


async def is_up(fleet: Fleet) -> bool:
    try:
        await fleet.ask()
    except aiohttp.ClientError:
        return False
    return fleet.name == "nginx" or all(each.checks > 1 for each in fleet.replicas)


def token(subject: str, id: str) -> str:
    parts = ({"alg": "none"}, {"sub": subject, "jti": id})
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()) for each in parts]
    return ".".join(each.rstrip(b"=").decode() for each in encoded) + ".c2lnbmF0dXJl"


async def test_each_credential_has_its_own_replica_and_the_callers_are_spread(fleet: Fleet):
    kinds = [
        lambda n: {"Authorization": f"Bearer ilk_{n}"},
        lambda n: {"X-API-Key": f"ilk_{n}"},
    ]
    if fleet.name == "caddy":  # it gives the pages a cookie of its own
        first = await fleet.port_of()
        assert {await fleet.port_of() for _ in range(9)} == {first}
    else:
        kinds.append(lambda n: {"Cookie": f"a=b; __Host-interlock={n}; c=d"})
    for kind in kinds:
        ports = [await fleet.port_of(kind(n)) for n in range(20)]
        assert set(ports) == {each.port for each in fleet.replicas}
        assert [await fleet.port_of(kind(n)) for n in range(20)] == ports


async def test_a_refreshed_token_stays_at_its_replica_where_the_proxy_can_read_it(fleet: Fleet):
    async def ports(id: str) -> list[int]:
        tokens = [token(f"anna{n}", id) for n in range(20)]
        return [await fleet.port_of({"Authorization": f"Bearer {each}"}) for each in tokens]

    assert (await ports("1") == await ports("2")) == (fleet.name == "haproxy")
    assert await ports("3") == await ports("3")


# nginx has no active checks: the operator marks a server as down.
@pytest.mark.parametrize("fleet", [haproxy, caddy], indirect=True)
async def test_a_draining_replica_finishes_its_calls_and_gets_no_new_ones(fleet: Fleet):
    headers = {"Authorization": "Bearer ilk_1"}
    leaving = fleet.by_port(await fleet.port_of(headers))
    call = asyncio.create_task(fleet.ask(headers, "/hold"))
    await leaving.holding.wait()
    leaving.ready = 404
    while await fleet.port_of(headers) == leaving.port:
        pass
    moved = await fleet.port_of(headers)
    leaving.held.set()

    assert (await call)["port"] == leaving.port
    assert [await fleet.port_of(headers) for _ in range(5)] == [moved] * 5
    leaving.ready = 200
    while await fleet.port_of(headers) != leaving.port:
        pass


async def test_callers_of_a_dead_replica_move_and_the_others_stay(fleet: Fleet):
    callers = [{"Authorization": f"Bearer ilk_{n}"} for n in range(12)]
    before = [await fleet.port_of(each) for each in callers]
    dead = fleet.by_port(before[0])
    await dead.close()

    after = [await fleet.next_port_of(each) for each in callers]

    stayed = [port for port in before if port != dead.port]
    assert [new for new, old in zip(after, before, strict=True) if old != dead.port] == stayed
    assert dead.port not in after


async def test_without_any_replica_the_error_is_json_rpc(fleet: Fleet):
    for each in fleet.replicas:
        await each.close()
    async with fleet.client.post(f"{fleet.url}/mcp", json={}) as reply:
        error = json.loads(await reply.text())

    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert reply.headers["Content-Type"].startswith("application/json")
    assert (error["jsonrpc"], error["id"], error["error"]["code"]) == ("2.0", None, -31503)


async def test_clients_cannot_invent_an_address_or_a_prefix(fleet: Fleet):
    spoofed = {
        "X-Forwarded-For": "203.0.113.1",
        "X-Forwarded-Host": "evil.example",
        "X-Forwarded-Proto": "gopher",
        "X-Forwarded-Prefix": "/evil",
        "Forwarded": "for=203.0.113.1",
    }
    got = {name.lower(): value for name, value in (await fleet.ask(spoofed))["headers"].items()}

    assert got["x-forwarded-for"] == "127.0.0.1"
    assert got["x-forwarded-proto"] == "http"
    assert got["host"] == fleet.url.removeprefix("http://")
    assert re.fullmatch(r"127\.0\.0\.1(:\d+)?", got["x-forwarded-host"])
    assert {"forwarded", "x-forwarded-prefix"}.isdisjoint(name for name in got if got[name])
