"""`interlock run`: what it finds in a file, what it says when it does not, and serving."""

from __future__ import annotations

import json
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from interlock import Client

INTERLOCK = str(Path(sys.executable).with_name("interlock"))
ONE = """
from interlock import Server

server = Server("one")

@server.tool
async def hello(name: str) -> str:
    return f"hello {name}"
"""
TWO = ONE + '\nother = Server("two")\nother.tool(name="bye")(lambda: "bye")\n'


@pytest.fixture
def file(home: Path):
    """Write a file of Python."""

    def write(text: str, name: str = "notes.py") -> Path:
        path = home / name
        path.write_text(text)
        return path

    return write


# Serving


async def test_a_server_in_a_file_is_served(file):
    async with Client.stdio(INTERLOCK, "run", str(file(ONE))) as client:
        assert client.server_info.name == "one"
        assert (await client.call_tool("hello", {"name": "Ada"})).text == "hello Ada"


@pytest.mark.parametrize(("name", "tool"), [("server", "hello"), ("other", "bye")])
async def test_one_of_several_servers_is_named(file, name, tool):
    async with Client.stdio(INTERLOCK, "run", f"{file(TWO)}:{name}") as client:
        assert [each.name for each in await client.list_tools()] == [tool]


async def test_one_server_under_two_names_is_one(file):
    async with Client.stdio(INTERLOCK, "run", str(file(ONE + "\napp = server\n"))) as client:
        assert client.server_info.name == "one"


async def test_a_file_may_print_import_its_neighbours_and_call_run(file):
    file("greeting = 'good day'", "words.py")
    text = (
        "import sys, words\nprint('loading', flush=True)\n"
        + ONE.replace("hello {", "{words.greeting} {")
        + "\nassert __name__ == 'notes' and sys.modules['notes'].server is server\n"
        + "if __name__ == '__main__':\n    server.run()\n"
    )
    async with Client.stdio(INTERLOCK, "run", str(file(text))) as client:
        assert (await client.call_tool("hello", {"name": "Ada"})).text == "good day Ada"


async def test_a_file_with_the_name_of_a_module_hides_nothing(file):
    text = "import logging\nlogging.getLogger('mine').info('fine')\n" + ONE
    async with Client.stdio(INTERLOCK, "run", str(file(text, "logging.py"))) as client:
        assert client.server_info.name == "one"


async def test_hints_that_are_text_are_resolved(file):
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n" + (
        "@dataclass\nclass Note:\n    text: str\n" + ONE
    ).replace("name: str", "name: Note").replace("{name}", "{name.text}")
    async with Client.stdio(INTERLOCK, "run", str(file(text))) as client:
        assert (await client.call_tool("hello", {"name": {"text": "a"}})).text == "hello a"


def test_it_ends_when_stdin_ends_and_says_nothing(program, file):
    ran = program("run", file(ONE))

    assert ran.wait(20) == 0
    assert ran.stdout.read() == ran.stderr.read() == ""


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_http_is_served_until_a_polite_signal(program, file, sign):
    ran = program("run", file(ONE), "--http", "127.0.0.1:0")
    line = ran.stderr.readline()
    assert line.startswith("serving at http://127.0.0.1:")
    told = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": told}
    request = urllib.request.Request(
        line.split()[-1],
        data=json.dumps(body).encode(),
        headers={
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        },
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        assert b'"name":"one"' in response.read()
    ran.send_signal(sign)

    assert ran.wait(20) in (0, -sign)  # as nothing runs in it, it does not wait for 30 s
    assert "Traceback" not in ran.stderr.read()


def test_what_blocks_the_loop_is_told_on_stderr(program, file):
    text = "import asyncio, time\nfrom contextlib import asynccontextmanager\n" + (
        "@asynccontextmanager\nasync def blocks(server):\n    await asyncio.sleep(0.1)\n"
        "    time.sleep(1.6)\n    yield\n" + ONE
    ).replace('Server("one"', 'Server("one", lifespan=blocks')
    ran = program("run", file(text))

    assert ran.wait(20) == 0
    log = ran.stderr.read()
    assert "has blocked the event loop for over 1 s" in log
    assert "    time.sleep(1.6)\n" in log


# Refused


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", 'has no server; make one: server = Server("notes")'),
        (TWO, "has several servers: server, other; say which: "),
        ("x = 1\ndef f(:\n    pass\n", "notes.py, line 2: invalid syntax"),
        ("x = 1\n\nimport nowhere_at_all\n", "notes.py, line 3: ModuleNotFoundError: No module"),
        ("def f():\n    raise KeyError('k')\nf()\n", "notes.py, line 2: KeyError: 'k'"),
        ("import sys\nsys.exit(3)\n", "notes.py, line 2: SystemExit: 3"),
        ("raise ValueError\n", "notes.py, line 1: ValueError"),
        (
            ONE.replace("name: str", "name"),
            "notes.py, line 6: SignatureError: parameter 'name' of hello has no type hint",
        ),
        ("x = 'a\0b'", "notes.py"),
        ("", "has no server"),
    ],
    ids=range(10),
)
def test_a_file_that_cannot_be_served_is_one_clear_line(program, file, text, says):
    ran = program("run", file(text))

    assert ran.wait(20) == 1
    (line,) = ran.stderr.read().splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert ran.stdout.read() == ""


def test_a_mistake_in_a_neighbour_is_told_where_it_is(program, file):
    neighbour = file("a = (1\n", "words.py")
    ran = program("run", file("import words\n" + ONE))

    assert ran.wait(20) == 1
    assert f"{neighbour.name}, line 1: '(' was never closed" in ran.stderr.read()


def test_a_name_that_is_not_there_is_told_with_those_that_are(program, file):
    ran = program("run", f"{file(TWO)}:nobody")

    assert ran.wait(20) == 1
    assert "has no server 'nobody'; it has: server, other" in ran.stderr.read()


@pytest.mark.parametrize("source", ["nowhere.py", "nowhere.py:server", ".", "", ":server"])
def test_a_file_that_is_not_there_is_wrong_usage(interlock, source):
    ran = interlock("run", source)

    assert ran.code == 2
    assert "there is no file" in ran.err


def test_a_file_that_is_no_python_is_refused(program, file):
    ran = program("run", file("{}", "notes.json"))

    assert ran.wait(20) == 1
    assert "notes.json is not a Python file: its name must end in .py" in ran.stderr.read()


@pytest.mark.parametrize(
    "address", ["8000", ":8000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "a:65536", "a:-1", ""]
)
def test_an_address_that_is_none_is_wrong_usage(interlock, file, address):
    ran = interlock("run", file(ONE), "--http", address)

    assert ran.code == 2
    assert f"--http {address!r} is not HOST:PORT" in ran.err


def test_an_address_that_others_can_reach_is_refused(program, file):
    ran = program("run", file(ONE), "--http", "0.0.0.0:0")

    assert ran.wait(20) == 1
    assert ran.stderr.read().startswith("error: 0.0.0.0 can be reached by others")


def test_help_has_an_example(interlock):
    ran = interlock("run", "--help")

    assert ran.code == 0
    assert "interlock run notes.py:server --http 127.0.0.1:8000" in ran.out
