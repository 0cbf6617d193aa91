"""Sessions on a page: the commands run as a reader would type them, and print what it shows."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from signal import SIGHUP
from socket import SO_REUSEADDR, SOL_SOCKET, socket
from typing import Any, TextIO

import pytest

from interlock.cli.terminal_prompt import QUESTION
from tests.cli.conftest import CONTROL, Ran, Terminal
from tests.docs.page import ROOT, Block
from tests.servers.ports import reserved

# What differs from run to run: what the page has, and what a command may print in its place.
_REST = r"[^\n]*"
_TIMES = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?)?"
VARIABLE = {
    "…": _REST,
    r"\b\d+\.\d+ s\b": r"\d+\.\d+ s",
    r"\b\d+\.\d+ ms\b": r"\d+\.\d+ ms",
    _TIMES: _TIMES,
    r"\bilk_[0-9a-z]{12}_\w+": r"ilk_[0-9a-z]{12}_\w+",
    r"\b[0-9a-z]{12}\b(?= of user:)": r"[0-9a-z]{12}",
    r"\b[ca]_[0-9a-z]{16,18}\b": r"[ca]_[0-9a-z]{16,18}",
    r"\b[0-9a-f]{64}\b": r"[0-9a-f]{64}",
    r"\b[0-9a-f]{12}\b": r"[0-9a-f]{12}",
}
_VARIABLES = re.compile("|".join(f"({each})" for each in VARIABLE))
_ID = re.compile(r"\b(?:[0-9a-f]{64}|a_[0-9a-f]{16}|c_[0-9a-z]{18})\b")  # which commands take
_ASSIGNMENT = re.compile(r"(?:export )?([A-Z_]+)=\$\((.*)\)")  # of what a command prints
_ADDRESS = re.compile(r"(?:(?<=127\.0\.0\.1:)|(?<=--port ))\d{4,5}\b")
# What asks questions, opens a browser or uses colours; and what keeps it from that.
_ON_TERMINAL = {"chat", "web", "dev", "claude", "login"}
_NOT_ON_TERMINAL = {"|", "<", ">", "--json", "--link", "--help"}
WEB_PORTS = {"web": 8420, "dev": 8421}  # unless another program of the machine has them
SERVE_ADDRESS = "127.0.0.1:8080"  # of `interlock serve`
QUESTIONS = (QUESTION.strip(), "Do you agree?")


class Shell:
    """Runs the sessions of one page.

    Args:
        interlock: The fixture that runs a command in this process.
        terminal: The fixture that runs one in a terminal.
        folder: Where the commands run.
        environment: The variables of the test.

    Attributes:
        names: Ids and folders on the page, with those of this run.
    """

    def __init__(
        self,
        interlock: Callable[..., Ran],
        terminal: Callable[..., Terminal],
        folder: Path,
        environment: pytest.MonkeyPatch,
    ) -> None:
        self._interlock = interlock
        self._terminal = terminal
        self._folder = folder
        self._environment = environment
        self._ports: dict[str, socket] = {}  # by the port on the page: the one that is used
        self.names: dict[str, str] = {}
        self._jobs: dict[int, tuple[subprocess.Popen[bytes], TextIO]] = {}  # by the shell's number
        self._scripts: list[str] = []
        self._opened = folder / ".opened"
        browser = folder / ".browser"
        browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {shlex.quote(str(self._opened))}\n')
        browser.chmod(0o755)
        environment.setenv("BROWSER", str(browser))

    def run(self, block: Block) -> None:
        """Run a session.

        Raises:
            AssertionError: A command does not print what the page shows.
        """
        self._scripts = [
            each.removeprefix("model:") for each in block.comments if each.startswith("model:")
        ]
        self._environment.delenv("INTERLOCK_MODEL", raising=False)
        for command, shown in commands(block.text):
            self._run(self.of_run(command).replace("$PWD", str(self._folder)), shown)

    def exchange(self, block: Block) -> None:
        """Send a request to the gateway that runs; compare its answer with the one on the page.

        Raises:
            AssertionError: The status, or the names or types of members, differ.
        """
        request, _, answer = block.text.partition("\n\n")
        line, _, body = self.of_run(request).partition("\n")
        status, _, shown = answer.partition("\n")
        method, path = line.split()
        headers = {"Authorization": f"Bearer {os.environ['KEY']}"}
        connection = HTTPConnection(self.with_ports(SERVE_ADDRESS))
        try:
            connection.request(method, path, body, headers | {"Content-Type": "application/json"})
            reply = connection.getresponse()
            text = reply.read()
        finally:
            connection.close()
        assert reply.status == int(status), text
        assert has_shape_of(json.loads(text), json.loads(shown)), text

    def close(self) -> None:
        """End the commands that run in the background, and free their ports."""
        for each in self._jobs.values():
            self._end(each)
        for reserving in self._ports.values():
            reserving.close()

    def _run(self, command: str, shown: list[str]) -> None:
        words = shlex.split(command, comments=True)
        if words in (["interlock", "serve"], ["interlock", "serve", "&"]):
            self.start_gateway(shown)
        elif words[-1] == "&":
            self._start(words[:-1], shown)
        elif words[0] == "kill" and len(words) == 2:
            self._end(self._jobs.pop(int(words[1].removeprefix("%"))))
        elif words[:2] == ["kill", "-HUP"]:
            process, output = self._jobs[int(words[2].removeprefix("%"))]
            process.send_signal(SIGHUP)
            for line in shown:  # after whatever it has printed meanwhile
                while not re.fullmatch(pattern_of(line), output.readline().rstrip()):
                    assert process.poll() is None, f"{command}: no line {line}"
        elif found := _ASSIGNMENT.fullmatch(command):
            out, errors = self._printed(found[2], shown)
            self._environment.setenv(found[1], out.strip())
            compare(errors.splitlines(), shown, command)
        elif words[0] == "export":
            self._environment.setenv(*words[1].split("=", 1))
        elif words[0] in STUBS:
            assert not shown, f"{words[0]} does not run here, so its output is not known"
            STUBS[words[0]](words[1:])
        elif words[0] == "interlock" and _needs_terminal(words[1:], shown):
            self._talk(words[1:], shown)
        else:
            out, errors = map(str.splitlines, self._printed(command, shown))
            ids = zip(
                *(_ID.findall("\n".join(each)) for each in (shown, out + errors)), strict=False
            )
            self.names |= {ours: real for ours, real in ids if ours != real}
            # A terminal shows both streams; which comes first differs from command to command.
            compare(out + errors if _matches(out + errors, shown) else errors + out, shown, command)

    def create_key(self, user: str, scopes: Iterable[str]) -> str:
        options = [word for scope in scopes for word in ("--scope", scope)]
        return self._interlock("keys", "create", user, *options).out.strip()

    def start_gateway(self, shown: Sequence[str] = ("serving at …",)) -> None:
        """Start `interlock serve`, at a free port instead of its usual one."""
        address = self.with_ports(SERVE_ADDRESS)
        self._start(["interlock", "serve", "--http", address], shown)

    # Without a terminal

    def _printed(self, command: str, shown: Sequence[str] = ()) -> tuple[str, str]:
        """Run a pipeline; return what it prints on stdout and on stderr."""
        data, errors = b"", ""
        for stage in re.split(r" \| ", command):
            words = shlex.split(stage, comments=True)
            # A process reads the certificates that it trusts only once.
            trusts_more = os.environ["SSL_CERT_FILE"].startswith(str(self._folder))
            if words[0] != "interlock" or trusts_more:
                ran = subprocess.run(["sh", "-c", stage], input=data, capture_output=True)
                data, errors = ran.stdout, errors + ran.stderr.decode()
                assert ran.returncode == 0, f"{stage}: {errors}"
                continue
            target = _taken(words, ">")
            source = _taken(words, "<")
            stdin = Path(self._folder, source).read_bytes() if source else data
            self._play(words)
            done = self._interlock(*words[1:], stdin=stdin)
            data, errors = done.out.encode(), errors + done.err
            assert done.code == 0 or shown, f"{stage}: {errors}"
            if target:
                Path(self._folder, target).write_bytes(data)
                data = b""
        return self._of_page(data.decode()), self._of_page(errors)

    def _start(self, words: list[str], shown: Sequence[str]) -> None:
        """Start a command in the background; wait until it has printed what is shown."""
        terminal, inside = pty.openpty()
        process = subprocess.Popen(
            words, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=inside, stderr=inside
        )
        os.close(inside)
        output = os.fdopen(terminal, encoding="utf-8")
        self._jobs[max(self._jobs, default=0) + 1] = (process, output)
        printed, awaited = [], []
        for line in shown:
            text = self._line_of(output)
            while _STARTING.fullmatch(text):
                text = self._line_of(output)
            # On a busy machine, servers are still starting; a later line says that they are up.
            if _UP.fullmatch(line) and _UP.fullmatch(text) and not _matches([text], [line]):
                awaited.append(line)
                text = line
            printed.append(text)
        compare(printed, shown, shlex.join(words))
        for line in awaited:
            while not _matches([self._line_of(output)], [line]):
                assert process.poll() is None, f"{shlex.join(words)}: no line {line}"

    def _line_of(self, output: TextIO) -> str:
        return CONTROL.sub("", self._of_page(output.readline())).rstrip("\n")

    def _end(self, running: tuple[subprocess.Popen[bytes], TextIO]) -> None:
        process, output = running
        process.terminate()
        with suppress(OSError):  # a terminal has no end, but an error
            output.read()
        output.close()
        process.wait()

    # In a terminal

    def _talk(self, arguments: list[str], shown: list[str]) -> None:
        """Run a command in a terminal: type what the page shows as typed, expect the rest."""
        self._play(["interlock", *arguments])
        with _alone(arguments):
            usual = WEB_PORTS.get(arguments[0])
            if usual and "--port" not in arguments and not _is_free(usual):
                port = self.with_ports(f"127.0.0.1:{usual}").rpartition(":")[2]
                arguments = [*arguments, "--port", port]
                shown = [*map(self.with_ports, shown)]
            program = self._terminal(*arguments)
            for line in shown:
                if line.startswith("> "):
                    program.expect("\x1b[?2004h")  # the line editor is ready
                    program.type(line.removeprefix("> ") + "\r")
                elif line.startswith(QUESTIONS):
                    question, _, answer = line.rpartition(" ")
                    program.expect(question)
                    program.type(f"{answer}\r")
                else:
                    program.expect_shown(pattern_of(line))
            if usual:
                program.expect_shown("Ctrl-C to end")
                assert self._opened.read_text() in program.seen
                program.type("\x03")
            code = program.leave()
        assert code == 0 or usual, program.seen

    def _play(self, words: list[str]) -> None:
        """Give the next script to a command that uses a model."""
        if not self._scripts or words[1] != "chat":
            return
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        file = self._folder / ".script.json"
        file.write_text(json.dumps([_reply(each) for each in json.loads(script)]))
        self._environment.setenv("INTERLOCK_MODEL", f"scripted:{file}")

    # Names and ports

    def of_run(self, text: str) -> str:
        """Replace the names and ports of the page by those of this run."""
        for shown, real in self.names.items():
            text = text.replace(shown, real)
        return self.with_ports(text)

    def with_ports(self, text: str) -> str:
        """Replace the ports of the page by free ones."""

        def port(found: re.Match[str]) -> str:
            if found[0] not in self._ports:
                self._ports[found[0]] = reserved()
            return str(self._ports[found[0]].getsockname()[1])

        return _ADDRESS.sub(port, text)

    def _of_page(self, text: str) -> str:
        for shown, real in self.names.items():
            text = text.replace(real, shown)
        of_page = {str(each.getsockname()[1]): port for port, each in self._ports.items()}
        return _ADDRESS.sub(lambda found: of_page.get(found[0], found[0]), text)


_STARTING = re.compile(r"warning: .* is still starting")
_UP = re.compile(r"\d+ of \d+ servers? (is|are) up, \d+ tools?")


def commands(session: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a session with the lines that follow it."""
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, *shown = part.replace("\\\n", " ").splitlines()
        yield command, shown


def compare(printed: list[str], shown: list[str], command: str) -> None:
    """Compare what a command prints with what the page shows; `…` is the rest of a line.

    Nothing is compared if the page shows no output.
    """
    assert _matches(printed, shown), "\n".join(
        [f"$ {command}", "prints", *printed, "and the page shows", *shown]
    )


def _matches(printed: list[str], shown: list[str]) -> bool:
    pattern = "\n".join(map(pattern_of, shown)).replace(f"\n{_REST}\n", "\n(?:.*\n)*")
    return not shown or bool(re.fullmatch(pattern, "\n".join(map(str.rstrip, printed))))


def has_shape_of(found: Any, shown: Any) -> bool:
    """Return whether an answer has every member that a page shows, with the same type."""
    if isinstance(shown, dict):
        return isinstance(found, dict) and all(
            name in found and has_shape_of(found[name], each) for name, each in shown.items()
        )
    if isinstance(shown, list) and shown:
        return bool(found) and has_shape_of(found[0], shown[0])
    numbers = {int, float}
    return type(found) is type(shown) or {type(found), type(shown)} == numbers


def pattern_of(line: str) -> str:
    """Return a pattern for the lines that may be printed where a page has `line`."""
    parts, end = [], 0
    for found in _VARIABLES.finditer(line):
        instead = [*VARIABLE.values()][(found.lastindex or 1) - 1]
        parts += [re.escape(line[end : found.start()]), instead]
        end = found.end()
    return "".join([*parts, re.escape(line[end:])])


def _needs_terminal(words: list[str], shown: list[str]) -> bool:
    if any(each.startswith(QUESTIONS) for each in shown):
        return True
    return bool(_ON_TERMINAL & {*words[:2]}) and not _NOT_ON_TERMINAL & {*words}


def _taken(words: list[str], sign: str) -> str:
    """Remove a redirection from a command; return its file."""
    if sign not in words:
        return ""
    place = words.index(sign)
    file = words[place + 1]
    del words[place : place + 2]
    return file


def _reply(reply: Any) -> dict[str, Any]:
    """Return the message for a text, or for calls as {tool: arguments}."""
    if isinstance(reply, str):
        return {"content": reply}
    calls = [
        {"id": f"c{number}", "name": tool.replace(":", "__"), "input": arguments}
        for number, (tool, arguments) in enumerate(reply.items())
    ]
    return {"tool_calls": calls}


def _is_free(port: int) -> bool:
    with socket() as tried:
        tried.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def _alone(arguments: list[str]) -> Iterator[None]:
    """Let no other page use the port of `interlock web` or `interlock dev` meanwhile."""
    if arguments[0] not in WEB_PORTS:
        yield
        return
    with Path(tempfile.gettempdir(), f"interlock-web-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# Commands that would change the machine or need a network. Each is checked as far as it can be.


def _make(arguments: list[str]) -> None:
    subprocess.run(
        ["make", "-n", *arguments],
        cwd=ROOT,
        env={**os.environ, "MAKEFLAGS": ""},
        check=True,
        capture_output=True,
    )


def _pip(arguments: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert arguments[0] == "install"
    for each in arguments[1:]:
        found = re.fullmatch(r"\.\[([a-z,]+)\]", each)
        if found:
            assert {*found[1].split(",")} <= {*project["optional-dependencies"]}, each


def _npm(arguments: list[str]) -> None:
    assert arguments[0] == "install"


def _npx(arguments: list[str]) -> None:
    assert arguments[:2] == ["@modelcontextprotocol/inspector", "--cli"]


def _python3(arguments: list[str]) -> None:
    environment = arguments[2]
    assert arguments == ["-m", "venv", environment, "&&", ".", f"{environment}/bin/activate"]


STUBS: dict[str, Callable[[list[str]], None]] = {
    "make": _make,
    "npm": _npm,
    "npx": _npx,
    "pip": _pip,
    "python3": _python3,
}
