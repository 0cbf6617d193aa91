"""The command line in this process, as a program and in a terminal, with its own home folder."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, NamedTuple

import pytest

from interlock import cli
from interlock.models.providers import PROVIDERS
from tests.cli.book_server import BOOK_SERVER
from tests.models import wire_anthropic, wire_responses
from tests.models.wire_http import WireServer
from tests.support.forked import start_in_terminal

CONTROL = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|[@-Z\\-_=>])|\r")
ECHO = ["-I", "-S", str(Path(__file__).parents[1] / "servers" / "echo.py")]


class Ran(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Isolate the user's folders and environment variables; return the home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("CONFIG", "DATA", "CACHE", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    monkeypatch.setenv("HOME", str(folder))
    settings = {name for each in PROVIDERS for name in (*each.keys, each.url_variable)}
    for name in list(os.environ):
        if name.startswith("INTERLOCK_") or name in settings:
            monkeypatch.delenv(name)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def interlock(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Ran]]:
    """Run a command in this process."""
    log = logging.getLogger("interlock")
    before = (log.handlers[:], log.level, log.propagate)

    def run(*arguments: object, stdin: bytes | BinaryIO | None = b"") -> Ran:
        monkeypatch.setattr(sys, "argv", ["interlock", *map(str, arguments)])
        source = BytesIO(stdin) if isinstance(stdin, bytes) else stdin
        piped = None if source is None else TextIOWrapper(source)
        monkeypatch.setattr(sys, "stdin", piped)
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert isinstance(left.value.code, int)
        return Ran(left.value.code, *capsys.readouterr())

    yield run
    for handler in log.handlers:
        handler.close()
    log.handlers[:], level, log.propagate = before
    log.setLevel(level)


@pytest.fixture
def servers(home: Path) -> Callable[..., Path]:
    """Write the user's mcpServers file: {"e": echo server} and the given servers.

    All tools of the echo server are configured to be of risk read.
    """

    def write(**more: Any) -> Path:
        path = home / "config" / "interlock" / "mcp.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        echo = {"command": sys.executable, "args": ECHO, "tools": {"risk": {"read": ["*"]}}}
        entries = {"e": echo} | more
        path.write_text(json.dumps({"mcpServers": entries}))
        return path

    return write


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Write a script for a model; return the model's name."""

    def write(*replies: Any) -> str:
        path = tmp_path / "script.json"
        path.write_text(json.dumps([_reply(each) for each in replies]))
        return f"scripted:{path}"

    return write


def _reply(reply: Any) -> dict[str, Any]:
    """Return the message for a text, or for calls as {tool: arguments}."""
    if isinstance(reply, str):
        return {"content": reply}
    calls = [
        {"id": f"c{number}", "name": f"e__{name}", "input": arguments}
        for number, (name, arguments) in enumerate(reply.items())
    ]
    return {"tool_calls": calls}


@pytest.fixture
def without(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Return an environment in which these packages cannot be imported."""

    def make(*packages: str) -> dict[str, str]:
        folder = tmp_path / "absent"
        folder.mkdir()
        for name in packages:
            text = f"raise ModuleNotFoundError('No module named {name}', name={name!r})"
            (folder / f"{name}.py").write_text(text)
        return {**os.environ, "PYTHONPATH": str(folder)}

    return make


@pytest.fixture
def program() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the real program."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
        pipes = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            **options,
        }
        program = Path(sys.executable).with_name("interlock")
        started.append(subprocess.Popen([program, *map(str, arguments)], **pipes))
        return started[-1]

    yield start
    for each in started:
        if each.poll() is None:
            each.kill()
        each.wait()
        for pipe in (each.stdin, each.stdout, each.stderr):
            if pipe is not None:
                pipe.close()


class Terminal:
    """The real program in a pseudo-terminal. All of its output is in `seen`.

    Keys that send signals need a terminal that `controls` the program. When such a program ends,
    the system drops unread output, so wait for important output before.
    """

    def __init__(self, *arguments: object, controls: bool = True, **environment: str) -> None:
        self._terminal, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        # A real xterm answers cursor position requests; this one does not.
        own = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self._program = start_in_terminal(
            arguments,
            os.ttyname(inside),
            {**os.environ, **own, **environment},
            controls=controls,
        )
        os.close(inside)
        self.id = self._program.pid
        self.seen = ""
        self._from = 0
        self._shown = 0  # in `seen` without control sequences

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def expect(self, text: str) -> None:
        """Wait until the program has written `text` after the previously expected text."""
        while (found := self.seen.find(text, self._from)) < 0:
            assert self._read(), f"the program ended without {text!r}: {self.seen[-3000:]!r}"
        self._from = found + len(text)

    def expect_shown(self, pattern: str) -> None:
        """Wait for text that matches, whatever its colours and wherever the cursor goes."""
        wanted = re.compile(pattern)
        while (found := wanted.search(CONTROL.sub("", self.seen), self._shown)) is None:
            assert self._read(), f"the program ended without {pattern!r}: {self.seen[-3000:]!r}"
        self._shown = found.end()

    def leave(self) -> int:
        """Wait for the end of the program; return its exit code."""
        while self._read():
            pass
        self._program.join()
        assert self._program.exitcode is not None
        return self._program.exitcode

    def hang_up(self) -> None:
        """Close the terminal, as closing its window does."""
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def close(self) -> None:
        self.hang_up()
        self._program.kill()
        self._program.join()
        self._program.close()

    def _read(self) -> bool:
        """Wait for output and read it; return False at its end."""
        if self._terminal < 0:
            return False
        try:
            data = os.read(self._terminal, 65536)
        except OSError:  # the last program in the terminal has ended
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """Start the program in a terminal."""
    started: list[Terminal] = []

    def start(*arguments: object, controls: bool = True, **environment: str) -> Terminal:
        started.append(Terminal(*arguments, controls=controls, **environment))
        return started[-1]

    yield start
    for each in started:
        each.close()
        print(each.seen[-3000:])  # a test that waited for anything else shows it


@pytest.fixture
def library(tmp_path: Path, servers) -> None:
    script = tmp_path / "library.py"
    script.write_text(BOOK_SERVER)
    servers(library={"command": sys.executable, "args": [str(script)]})


@pytest.fixture
def served() -> Iterator[WireServer]:
    """Serve OpenAI's two APIs beside the command."""
    with _serving(wire_responses.server()) as server:
        yield server


@pytest.fixture
def anthropic() -> Iterator[WireServer]:
    """Serve Anthropic's API beside the command."""
    with _serving(wire_anthropic.server()) as server:
        yield server


@contextmanager
def _serving(server: WireServer) -> Iterator[WireServer]:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(server.start())
    thread = Thread(target=loop.run_forever)
    thread.start()
    yield server
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(server.stop())
    loop.close()
