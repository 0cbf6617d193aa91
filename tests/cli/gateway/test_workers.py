"""`interlock serve --workers`: real processes on PostgreSQL, with real clients."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from interlock import Client
from interlock.errors import HttpError, InterlockError
from interlock.gateway.serving.affinity import place_of
from interlock.store import KeyStore
from interlock.types import CallToolResult, ElicitParams, ElicitResult

LEGACY, MODERN = "2025-11-25", "2026-07-28"
CALLERS = 6
INFO = {"name": "test", "version": "1"}
SERVER = Path(__file__).with_name("worker_server.py")

pytestmark = pytest.mark.slow("starts several gateways for each case")


def _children(id: int) -> list[int]:
    try:
        return list(map(int, Path(f"/proc/{id}/task/{id}/children").read_text().split()))
    except (FileNotFoundError, ProcessLookupError):
        return []


def _below(id: int) -> set[int]:
    found = set(_children(id))
    return found.union(*map(_below, found))


def _is_running(id: int) -> bool:
    try:
        return Path(f"/proc/{id}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _open_files(id: int) -> int:
    return len(list(Path(f"/proc/{id}/fd").iterdir()))


async def _until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - other processes decide
        await asyncio.sleep(0.02)


class Workers:
    """A supervisor with two workers.

    Attributes:
        program: The supervisor.
        path: Its configuration.
        url: The endpoint.
        keys: One key for each caller.
    """

    def __init__(self, program: subprocess.Popen[str], path: Path, keys: list[str]) -> None:
        self.program, self.path, self.keys = program, path, keys
        self.lines: list[str] = []
        assert program.stderr is not None
        for line in program.stderr:
            self.lines.append(line.rstrip())
            if "workers serve" in line:
                break
        text = "\n".join(self.lines)
        assert "serving at" in text, text
        self.url = re.findall(r"^serving at (\S+)$", text, re.M)[0]

    def workers(self) -> list[int]:
        return _children(self.program.pid)

    def client(self, caller: int, **options: Any) -> Client:
        headers = {"Authorization": f"Bearer {self.keys[caller]}"}
        return Client.http(options.pop("url", self.url), headers=headers, **options)

    async def who(self, caller: int, **options: Any) -> str:
        async with self.client(caller, **options) as client:
            return (await client.call_tool("e__who", {})).text

    async def initialize(self, http: aiohttp.ClientSession, caller: int) -> dict[str, str]:
        """Begin a legacy session; return the headers of its requests."""
        headers = {
            "Authorization": f"Bearer {self.keys[caller]}",
            "Accept": "application/json, text/event-stream",
        }
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        async with http.post(self.url, json=message, headers=headers) as reply:
            return {**headers, "Mcp-Session-Id": reply.headers["Mcp-Session-Id"]}

    async def legacy_who(self, http: aiohttp.ClientSession, headers: dict[str, str]) -> str:
        params = {"name": "e__who"}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        async with http.post(self.url, json=message, headers=headers) as reply:
            answer = await reply.text()  # JSON, or a stream if the call takes a while
            assert reply.status == 200, answer
            (text,) = re.findall(r'"text":"(\d+)"', answer)
            return str(text)

    async def spread(self) -> list[str]:
        return [await self.who(caller) for caller in range(CALLERS)]

    async def leaving(self, caller: int) -> None:
        """Wait until the worker of a caller has received the signal to leave."""
        headers = {"Authorization": f"Bearer {self.keys[caller]}", "Connection": "close"}
        degraded: list[str] = []
        while degraded[:1] != ["draining"]:
            async with (
                aiohttp.ClientSession(headers=headers) as http,
                http.get(self.url.replace("/mcp", "/readyz")) as reply,
            ):
                degraded = (await reply.json())["degraded"]

    async def line(self, part: str) -> str:
        """Return the next line of the program that contains a text."""

        def read() -> str:
            assert self.program.stderr is not None
            return next((line for line in self.program.stderr if part in line), "")

        return await asyncio.to_thread(read)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, set[int]]:
        """Send a signal to the supervisor; return its code, and the processes that it leaves."""
        below = _below(self.program.pid)
        self.program.send_signal(number)
        code = await asyncio.to_thread(self.program.wait)
        return code, set(filter(_is_running, below))


@pytest.fixture
def config(tmp_path: Path, postgres: str) -> Callable[..., Path]:
    def write(**more: Any) -> Path:
        path = tmp_path / "gateway.json"
        entry = {"command": sys.executable, "args": [str(SERVER)], "required": True}
        settings = {"database": postgres, **more}
        path.write_text(json.dumps({"mcpServers": {"e": entry}, "gateway": settings}))
        return path

    return write


@pytest.fixture
async def keys(postgres: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the keys of callers, of which each of two workers has some."""
    monkeypatch.setenv("INTERLOCK_KEY", bytes(range(32)).hex())
    async with KeyStore.open(postgres) as store:

        async def key(number: int) -> str:
            return (await store.create(f"caller{number}", scopes=("mcp:*",)))[1]

        made = [await key(number) for number in range(CALLERS)]
        while len({place_of(each.encode(), (0, 1)) for each in made}) < 2:
            made[-1] = await key(CALLERS - 1)
    return made


@pytest.fixture
def serve(
    program, config: Callable[..., Path], keys: list[str]
) -> Iterator[Callable[..., Workers]]:
    started: list[Workers] = []

    def start(**settings: Any) -> Workers:
        path = config(**settings)
        options = ("--config", path, "--http", "127.0.0.1:0", "--workers", "2")
        started.append(Workers(program("serve", *options), path, keys))
        return started[-1]

    yield start
    for each in started:
        each.program.send_signal(signal.SIGTERM)


async def test_caller_keeps_its_worker_with_its_sessions_and_questions(serve):
    here = serve()

    async def word(_: ElicitParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"word": "blue"})

    at_home = await here.spread()
    assert len(set(at_home)) == 2
    for caller, home in enumerate(at_home):
        sse = here.url.replace("/mcp", "/sse")
        for options in (
            {"revision": LEGACY},
            {"revision": MODERN},
            {"url": sse, "transport": "sse"},
        ):
            async with here.client(caller, elicitation=word, **options) as client:
                calls = [client.call_tool("e__who", {}) for _ in range(5)]
                assert {each.text for each in await asyncio.gather(*calls)} == {home}
                assert (await client.call_tool("e__ask", {})).text == f"{home} blue"
    assert await here.end() == (0, set())


async def test_metrics_page_has_the_calls_of_each_worker(serve):
    here = serve()
    homes = await here.spread()
    async with (
        aiohttp.ClientSession() as http,
        http.get(here.url.replace("/mcp", "/metrics")) as reply,
    ):
        assert reply.status == 200
        page = await reply.text()

    counted = re.findall(r'interlock_calls_total{.*outcome="ok",worker="(\d)"} (\d+)', page)
    assert sorted(int(count) for _, count in counted) == sorted(
        homes.count(home) for home in set(homes)
    )
    assert re.findall(r'interlock_ready{worker="(\d)"} 1', page) == ["0", "1"]


async def test_connection_without_a_credential_is_closed_after_its_response(serve):
    here = serve()
    at_home = await here.spread()
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for caller, home in enumerate(at_home):
        async with aiohttp.ClientSession() as http:
            # Clients ask without a token first, and with one after the challenge.
            async with http.post(here.url, json=body) as reply:
                assert (reply.status, reply.headers["Connection"]) == (401, "close")
            headers = await here.initialize(http, caller)
            found = await here.legacy_who(http, headers)
            assert found == home


async def test_killed_worker_is_started_again_and_costs_few_calls(serve):
    here = serve()
    acknowledged: list[str] = []
    failed: list[str] = []
    is_over = asyncio.Event()

    async def load(caller: int) -> None:
        while not is_over.is_set():
            try:
                acknowledged.append(await here.who(caller, revision=MODERN))
            except InterlockError as error:
                failed.append(repr(error))

    async with aiohttp.ClientSession() as http:
        sessions = [await here.initialize(http, caller) for caller in range(CALLERS)]
    loads = [asyncio.create_task(load(caller)) for caller in range(CALLERS)]
    await _until(lambda: len(acknowledged) > 60)
    before = here.workers()
    os.kill(before[1], signal.SIGKILL)
    assert "worker" in (said := await here.line("it starts again")), said
    assert "was killed by signal 9" in said
    await _until(lambda: len(here.workers()) == 2)
    made = len(acknowledged)
    await _until(lambda: len(acknowledged) > made + 300)
    is_over.set()
    await asyncio.gather(*loads)

    assert len(failed) <= CALLERS
    assert here.workers() != before
    homes: set[str] = set()
    while len(homes) < 2:  # the new worker becomes ready
        homes = set(await here.spread())
    for headers in sessions:  # those of the killed worker continue in the new one
        async with aiohttp.ClientSession() as http:
            assert await here.legacy_who(http, headers) in homes
    assert await here.end() == (0, set())


async def test_killed_supervisor_leaves_no_process_and_a_free_port(serve):
    here = serve()
    below = _below(here.program.pid)
    async with here.client(0) as client:
        call = await _begun(client, seconds=1)
        await here.end(signal.SIGKILL)
        address = here.url.removeprefix("http://").removesuffix("/mcp").rpartition(":")
        with socket.create_server((address[0], int(address[2]))):
            assert (await call).text.isdigit()
    await _until(lambda: not any(map(_is_running, below)))


async def test_running_call_ends_before_the_workers_and_a_second_signal_ends_them_at_once(serve):
    for signals, seconds in ((1, 2), (2, 3_600)):
        here = serve(drain={"calls": "1h"})
        async with AsyncExitStack() as stack:
            calls: list[asyncio.Task[CallToolResult]] = []
            for caller in range(CALLERS):
                client = await stack.enter_async_context(here.client(caller, revision=MODERN))
                calls.append(await _begun(client, seconds))
            if signals == 2:
                here.program.send_signal(signal.SIGTERM)
                for caller in range(CALLERS):
                    await here.leaving(caller)
            assert await here.end() == (0, set())
            answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {isinstance(each, BaseException) for each in answers} == {signals == 2}


async def _begun(client: Client, seconds: float) -> asyncio.Task[CallToolResult]:
    """Start a call that takes some seconds; return once it runs."""
    begun = asyncio.Event()
    call = client.call_tool("e__who", {"seconds": seconds}, progress=lambda _: begun.set())
    running = asyncio.create_task(call)
    await begun.wait()
    return running


async def test_sighup_reloads_every_worker(serve, config):
    here = serve()
    path = config(limits={"perKey": {"rate": "1/h"}})
    here.program.send_signal(signal.SIGHUP)
    for _ in here.workers():
        await here.line(f"reloaded {path}")

    for caller in range(CALLERS):
        async with here.client(caller, revision=MODERN) as client:
            await client.call_tool("e__who", {})
            with pytest.raises(HttpError, match="limit 1/h"):
                await client.call_tool("e__who", {})


@pytest.mark.parametrize(
    ("settings", "has_key", "error"),
    [
        ({"database": "gateway.db"}, True, "--workers needs PostgreSQL, as gateway.database; a SQ"),
        ({}, False, "several workers need a stored key: interlock keys create NAME"),
        ({"admin": {"listen": "192.0.2.1:1"}}, True, "cannot listen on 192.0.2.1:1"),
    ],
)
def test_workers_that_cannot_start_are_one_error(
    program, config, request, settings: dict[str, Any], has_key: bool, error: str
):
    if has_key:
        request.getfixturevalue("keys")
    options = ("--config", config(**settings), "--http", "127.0.0.1:0", "--workers", "3")
    started = program("serve", *options)
    out, err = started.communicate()

    (said,) = [line for line in err.splitlines() if line.startswith("error")]
    assert said.startswith(f"error: {error}")
    assert (started.returncode, out, "Traceback" in err) == (1, "", False)


async def test_workers_list_each_other_and_the_check_names_them(serve, config, interlock):
    here = serve()
    async with KeyStore.open(json.loads(here.path.read_text())["gateway"]["database"]) as store:
        _, admin = await store.create("op", scopes=("admin:read", "admin:write"))
    api = here.url.replace("/mcp", "/admin/api/v1")
    headers = {"Authorization": f"Bearer {admin}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        async with http.get(f"{api}/status") as reply:
            found = (await reply.json())["gateways"]
        same = await asyncio.to_thread(interlock, "serve", "--check", "--config", here.path)
        path = config(limits={"perKey": {"rate": "1/h"}})
        differs = await asyncio.to_thread(interlock, "serve", "--check", "--config", path)
        async with http.post(f"{api}/reload", json={}) as reply:
            reloaded = (await reply.json())["gateways"]
    ids = [each["id"] for each in found]

    assert len(ids) == 2
    assert [each["id"] for each in reloaded] == ids
    assert [(each["error"], each["differs"]) for each in reloaded] == [(None, False)] * 2
    for id in ids:
        assert f"gateway {id} on " in same.err
    assert "another configuration" not in same.err
    assert differs.err.count(f", with another configuration ({found[0]['hash']}, here ") == 2


async def test_silent_and_slow_connections_stop_no_other_and_leave_no_descriptor(serve):
    here = serve()
    host, _, port = here.url.removeprefix("http://").removesuffix("/mcp").rpartition(":")
    before = _open_files(here.program.pid)
    with ExitStack() as stack:
        for number in range(1000):
            silent = socket.create_connection((host, int(port)))
            stack.enter_context(silent)
            if number % 2:
                silent.sendall(b"POST /mcp HTTP/1.1\r\nHost: a\r\nAuthor")
        await asyncio.gather(*(here.who(caller) for caller in range(CALLERS)))
        await _until(lambda: _open_files(here.program.pid) == before)
    assert await here.end() == (0, set())


async def test_head_that_arrives_in_pieces_reaches_the_worker_of_its_caller(serve):
    here = serve()
    host, _, port = here.url.removeprefix("http://").removesuffix("/mcp").rpartition(":")
    for caller, home in enumerate(await here.spread()):
        params = {"name": "e__who", "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        lines = (
            "POST /mcp HTTP/1.1",
            f"Host: {host}:{port}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"MCP-Protocol-Version: {MODERN}",
            "Mcp-Method: tools/call",
            "Mcp-Name: e__who",
            f"Content-Length: {len(body)}",
            f"authorization: bearer {here.keys[caller]}",
            "Connection: close",
        )
        reader, writer = await asyncio.open_connection(host, int(port))
        for line in lines:
            writer.write(f"{line}\r\n".encode())
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write(f"\r\n{body}".encode())
        answer = (await reader.read()).decode()
        writer.close()
        assert f'"text":"{home}"' in answer


META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": INFO,
    "io.modelcontextprotocol/clientCapabilities": {},
}
