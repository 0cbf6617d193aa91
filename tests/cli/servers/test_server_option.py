"""The option `--server`: commands with one server that no configuration names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from interlock.cli.servers.server_option import only
from interlock.config import HttpServer, StdioServer
from tests.support.rows import each_row

NOTES = '''
import os
from interlock import Server

server = Server("notes")

@server.tool
def find(text: str) -> str:
    """Find a note."""
    return f"found {text}"

@server.tool
def variable(name: str) -> str:
    """Read an environment variable."""
    return os.environ.get(name, "unset")

@server.tool
def divide(by: int) -> float:
    return 1 / by

@server.resource("notes://{name}")
def note(name: str) -> str:
    return f"note {name}"

@server.prompt
def review(name: str) -> str:
    return f"Review {name}."
'''


@pytest.fixture
def notes(home: Path) -> Path:
    path = home / "my notes.py"
    path.write_text(NOTES)
    return path


@pytest.mark.slow("starts programs")
@each_row(
    ("words", "output"),
    [
        (("call", "find", "text=tea"), "found tea\n"),
        (
            ("tools",),
            "find      Find a note.\nvariable  Read an environment variable.\ndivide\n",
        ),
        (("tools", "find"), "Find a note.\n\narguments:\n  text (string)\n"),
        (("read", "notes://tea"), "note tea\n"),
        (("prompt", "review", "name=tea"), "Review tea.\n"),
    ],
)
def test_names_are_bare_and_no_configuration_is_needed(interlock, notes, words, output):
    command, *rest = words

    ran = interlock(command, "--server", notes, *rest)

    assert (ran.code, ran.out) == (0, output)


@pytest.mark.slow("starts a program")
def test_chat_uses_the_tools_of_the_server(interlock, notes, script):
    model = script({"find": {"text": "tea"}}, "Done.")

    ran = interlock("chat", "--server", notes.rename("e.py"), "--model", model, "--yes", "Find it.")

    assert (ran.code, ran.out) == (0, "Done.\n")
    assert "[TOOL] e:find" in ran.err


@pytest.mark.slow("starts programs")
def test_a_file_gets_all_variables_and_a_command_only_the_usual_ones(
    interlock, notes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHOP_KEY", "${not a reference}")
    program = f"{sys.executable} -m interlock run '{notes}'"

    of_file = interlock("call", "--server", notes, "variable", "name=SHOP_KEY")
    of_command = interlock("call", "--server", program, "variable", "name=SHOP_KEY")

    assert (of_file.out, of_command.out) == ("${not a reference}\n", "unset\n")


@pytest.mark.slow("starts programs")
def test_failure_of_a_local_server_shows_its_traceback_on_stderr(interlock, notes):
    ran = interlock("call", "--server", notes, "divide", "by=0")

    assert ran.code == 1
    assert f'File "{notes}", line 19, in divide\n' in ran.err
    assert "ZeroDivisionError: division by zero" in ran.err


@pytest.mark.slow("starts programs")
@each_row(
    ("words", "error"),
    [
        (("call", "fnd", "text=a"), "no tool 'fnd'; did you mean find?"),
        (("tools", "fnd"), "no tool 'fnd'"),
    ],
)
def test_errors_name_tools_as_the_user_does(interlock, notes, words, error):
    command, *rest = words

    ran = interlock(command, "--server", notes, *rest)

    assert (ran.code, ran.out) == (1, "")
    assert error in ran.err


@each_row(
    ("options", "error"),
    [
        (("--server", "missing.py"), "file missing.py does not exist"),
        (("--server", "missing.py:app"), "file missing.py:app does not exist"),
        (("--server", "echo 'x"), "is not a command line: No closing quotation"),
        (("--server", " "), "is empty"),
        (("--server", "echo", "--config", "mcp.json"), "--server needs no configuration"),
        ((), "write SERVER:TOOL, or --server COMMAND|URL|FILE"),
    ],
)
def test_unusable_value_is_wrong_usage(interlock, options, error):
    ran = interlock("call", *options, "find")

    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err


@each_row(
    ("given", "name", "server"),
    [
        (
            "HTTPS://a.example/mcp",
            "a-example",
            HttpServer(url="https://a.example/mcp", is_named=False),
        ),
        (
            "npx -y 'some server'",
            "some-server",
            StdioServer(command="npx", args=("-y", "some server")),
        ),
        ("time", "time", StdioServer(command="time")),
        ("python notes.py", "notes", StdioServer(command="python", args=("notes.py",))),
    ],
)
def test_value_is_a_url_or_a_command_line(given, name, server):
    found, config = only(given, None)

    assert (found, config.servers) == (name, {name: server})
