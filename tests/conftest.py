"""Clients of a misbehaving server, and the proof that nothing of them is left."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn.server
from hypothesis import HealthCheck, settings

from interlock import observing
from interlock.client import Client
from interlock.store.database import database
from interlock.store.database.location import prepare_file
from interlock.transports import process
from interlock.transports.reaper import marked, own_mark, reaper
from tests.servers.postgres import Postgres
from tests.support.authorization import Protected, protected
from tests.support.clock import ClockLoop

pytest_plugins = ["tests.support.budget"]

# The same examples every time, however long they take: a test that fails sometimes proves nothing
# of anything. To look for new ones: pytest --hypothesis-profile=default
settings.register_profile(
    "same",
    max_examples=50,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("same")

# nohup ignores SIGHUP, and a shell's `&` ignores SIGINT. Programs under test would inherit that. A
# handler that does nothing protects this process as well, and they do not inherit it.
for _signal in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, lambda *_: None)

# Tests and the programs that they start use neither the user's keyring nor a proxy.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"  # what is stored is data, not classes
for _name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.lower(), None)
# Programs buffer their output as everywhere, and need not compile the package again.
for _name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(_name, None)
# Tests reach no server outside. Reading the hundreds of certificates of the system takes 25 ms for
# each client of a model, and the certificate in this file a millisecond.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "servers" / "authority.pem")


class _Impatient:
    """asyncio for uvicorn, which polls every 0.1 s whether to stop and whether it may."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    @staticmethod
    async def sleep(delay: float) -> None:
        loop = asyncio.get_running_loop()
        flies = isinstance(loop, ClockLoop) and loop.clock.flies  # then each wait takes as long
        await asyncio.sleep(delay if flies else delay / 5)  # oftener, idle servers would be busy


uvicorn.server.asyncio = _Impatient()  # type: ignore[attr-defined] # a module of uvicorn's own

# Cases that use these fixtures, or are in these folders, need a program that is not in .venv.
PROGRAMS = {
    "protected_addresses": "an authorization server on Node",
    "postgres_server": "PostgreSQL",
    "reverse_proxy": "nginx and HAProxy",
    "pooler": "PgBouncer",
    "deploy": "nginx, HAProxy, Caddy, Prometheus, Helm and runc",
    "claude_program": "Claude Code",
    "browser": "Chromium, and Firefox for some",
    "site": "Zensical",
    "interop": "clients and servers of others",
}
# Fixtures and folders whose cases get the mark `slow`.
SLOW = {"evil": "starts a program", "backup": "fills databases"}


def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        for name in (*item.fixturenames, item.path.parent.name):
            if name in PROGRAMS:
                item.add_marker(pytest.mark.program(PROGRAMS[name]))
            if name in SLOW:
                item.add_marker(pytest.mark.slow(SLOW[name]))


# Collecting makes hundreds of thousands of objects that live until the end. Without this, each full
# garbage collection of a test visits them all, which takes 0.3 s.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def unobserved() -> Iterator[None]:
    """End the telemetry that a test has enabled for the whole process, as a page's code does."""
    yield
    observing.observer = None


EVIL = [sys.executable, "-I", "-S", str(Path(__file__).parent / "servers" / "evil.py")]


@pytest.fixture
async def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[dict[str, Any]]]:
    """Fail a test that leaves a process, task, thread, descriptor or reported error behind.

    Yields the list of errors reported to the event loop, for tests that expect some. Servers
    that do not exit by themselves are ended soon; killed processes get much time to exit.
    """
    monkeypatch.setattr(process, "EOF_PATIENCE", 0.3)
    monkeypatch.setattr(process, "TERM_PATIENCE", 0.3)
    monkeypatch.setattr(process, "REST_PATIENCE", 100.0)
    monkeypatch.setattr(process, "KILL_PATIENCE", 100.0)
    started = 0
    start = reaper.start

    def start_counted(*args: Any, **options: Any) -> Any:
        nonlocal started
        started += 1
        return start(*args, **options)

    monkeypatch.setattr(reaper, "start", start_counted)
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    before = _belongings()
    yield reported
    for _ in range(3_000):  # seldom more than a few
        for _ in range(5):  # what was cancelled needs a turn to notice
            await asyncio.sleep(0)
        if not _belongings() - before:
            break
        await asyncio.sleep(0.01)  # and the other end of a connection to hear that it was closed
    if started:
        assert marked(own_mark()) == []
    assert reaper._process is None
    left = _belongings() - before  # what an earlier test had may end meanwhile
    assert left == set()
    assert reported == []


def _belongings() -> set[object]:
    """Return all tasks and threads, and the numbers of open descriptors."""
    return {
        *(each for each in asyncio.all_tasks() if each is not asyncio.current_task()),
        # The loop keeps the threads of its own pool.
        *(each for each in threading.enumerate() if not each.name.startswith("asyncio_")),
        *os.listdir("/proc/self/fd"),  # noqa: PTH208 - names are enough
    }


@pytest.fixture
def evil() -> Callable[..., Client]:
    """Make clients of `servers/evil.py`: its arguments, and options of the client."""

    def client(*told: str, **options: Any) -> Client:
        patient = {"timeout": 100.0, "connect_timeout": 100.0}
        return Client.stdio(*EVIL, *told, **{**patient, **options})

    return client


@pytest.fixture(scope="session")
def protected_addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Run what `protected_server` needs, once for all tests: its URL, and the issuer."""
    with protected(tmp_path_factory.mktemp("protected")) as addresses:
        yield addresses


@pytest.fixture
async def protected_server(protected_addresses: tuple[str, str]) -> Protected:
    """An interlock server with a real authorization server, both in their initial state."""
    server = Protected(*protected_addresses)
    await server.wish(reset=True, resource=server.url)
    return server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a server on a Unix socket."""
    server = Postgres()
    try:
        server.start()
        yield server.url
    finally:
        server.close()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new database, to be copied."""
    place = tmp_path_factory.mktemp("empty") / "interlock.db"

    async def create() -> None:
        await (await database.open_database(place)).close()

    asyncio.run(create())
    return place


@pytest.fixture(scope="session", autouse=True)
def copied_databases(empty_database: Path) -> Iterator[None]:
    """Make each new database a copy of an empty one; to create its tables takes far longer."""
    content = empty_database.read_bytes()

    def prepare_copy(path: Path) -> bool:
        is_writable = prepare_file(path)
        if is_writable and path.stat().st_size == 0:
            path.write_bytes(content)
        return is_writable

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "prepare_file", prepare_copy)
        yield


@pytest.fixture
def created_databases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test create the tables of its databases."""
    monkeypatch.setattr(database, "prepare_file", prepare_file)
