"""`interlock run`: finding the server of a file, serving it, and errors."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from interlock import Client
from interlock.config.gateway import Address
from interlock.server.http.listening import bound
from tests.support.rows import each_row

INTERLOCK = str(Path(sys.executable).with_name("interlock"))
ONE = """
from interlock import Server

server = Server("one")

@server.tool
async def hello(name: str) -> str:
    return f"hello {name}"
"""
BLOCKS = """
import logging
import time
from contextlib import asynccontextmanager

class Told(logging.Handler):
    is_told = False

    def emit(self, record):
        self.is_told = True

@asynccontextmanager
async def blocks(server):
    logging.getLogger("interlock").addHandler(told := Told())
    while not told.is_told:
        time.sleep(0.01)
    yield
"""
TWO = ONE + '\nother = Server("two")\nother.tool(name="bye")(lambda: "bye")\n'


MADE = """
from interlock import Server

def make() -> Server:
    made = Server("made")
    made.tool(name="hello")(lambda: "hello")
    return made

def nothing():
    return 3

def named(name: str) -> Server:
    return Server(name)

async def later() -> Server:
    return Server("later")

def fails():
    return 1 / 0
"""


JOINED = (
    ONE
    + """
from interlock.gateway import Gateway

"""
)


@pytest.fixture
def file(home: Path):
    """Return a function that writes a Python file."""

    def write(text: str, name: str = "notes.py") -> Path:
        path = home / name
        path.write_text(text)
        return path

    return write


@pytest.fixture(autouse=True)
def forgotten_files(home: Path, monkeypatch: pytest.MonkeyPatch):
    """Forget the files that a command in this process has imported."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = {*sys.modules}
    yield
    for name in {*sys.modules} - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(home)):
            del sys.modules[name]


# Serving


@pytest.mark.slow("starts a program")
async def test_run_serves_the_server_of_a_file(file):
    async with Client.stdio(INTERLOCK, "run", str(file(ONE))) as client:
        assert client.server_info.name == "one"
        assert (await client.call_tool("hello", {"name": "Ada"})).text == "hello Ada"


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize(("name", "tool"), [("server", "hello"), ("other", "bye")])
async def test_run_with_a_name_serves_that_server(file, name, tool):
    async with Client.stdio(INTERLOCK, "run", f"{file(TWO)}:{name}") as client:
        assert [each.name for each in await client.list_tools()] == [tool]


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize("name", ["", ":make"])
async def test_a_function_that_returns_a_server_is_called(file, name):
    text = MADE if name else MADE[: MADE.index("def nothing")]
    async with Client.stdio(INTERLOCK, "run", f"{file(text)}{name}") as client:
        assert client.server_info.name == "made"


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ('joined = Gateway({"one": server})', ":joined", ()),
        ('joined = Gateway({"one": server})\ndel server', "", ()),
        ('def make() -> Gateway:\n    return Gateway({"one": server})', ":make", ("--reload",)),
    ],
)
async def test_run_serves_a_gateway_of_a_file(file, text, name, options):
    source = f"{file(JOINED + text)}{name}"
    async with Client.stdio(INTERLOCK, "run", source, *options) as client:
        assert (await client.call_tool("one__hello", {"name": "Ada"})).text == "hello Ada"


@pytest.mark.slow("starts a program")
async def test_a_server_with_two_names_is_served_without_a_name(file):
    async with Client.stdio(INTERLOCK, "run", str(file(ONE + "\napp = server\n"))) as client:
        assert client.server_info.name == "one"


@pytest.mark.slow("starts a program")
async def test_server_file_may_print_import_its_neighbours_and_guard_run(file):
    file("greeting = 'good day'", "words.py")
    text = (
        "import sys, words\nprint('loading', flush=True)\n"
        + ONE.replace("hello {", "{words.greeting} {")
        + "\nassert __name__ == 'notes' and sys.modules['notes'].server is server\n"
        + "if __name__ == '__main__':\n    server.run()\n"
    )
    async with Client.stdio(INTERLOCK, "run", str(file(text))) as client:
        assert (await client.call_tool("hello", {"name": "Ada"})).text == "good day Ada"


@pytest.mark.slow("starts a program")
async def test_a_file_with_the_name_of_a_standard_module_does_not_hide_it(file):
    text = "import logging\nlogging.getLogger('mine').info('fine')\n" + ONE
    async with Client.stdio(INTERLOCK, "run", str(file(text, "logging.py"))) as client:
        assert client.server_info.name == "one"


@pytest.mark.slow("starts a program")
async def test_postponed_type_hints_are_resolved(file):
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n" + (
        "@dataclass\nclass Note:\n    text: str\n" + ONE
    ).replace("name: str", "name: Note").replace("{name}", "{name.text}")
    async with Client.stdio(INTERLOCK, "run", str(file(text))) as client:
        assert (await client.call_tool("hello", {"name": {"text": "a"}})).text == "hello a"


@pytest.mark.slow("starts a program")
def test_run_exits_without_output_when_stdin_closes(program, file):
    ran = program("run", file(ONE))

    assert ran.wait() == 0
    assert ran.stdout.read() == ran.stderr.read() == ""


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_serves_http_until_sigterm_or_sigint(program, file, number):
    ran = program("run", file(ONE), "--http", "127.0.0.1:0")
    line = ran.stderr.readline()
    assert line.startswith("serving at http://127.0.0.1:")
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    request = urllib.request.Request(
        line.split()[-1],
        data=json.dumps(body).encode(),
        headers={
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        },
    )
    with urllib.request.urlopen(request) as response:
        assert b'"name":"one"' in response.read()
    ran.send_signal(number)

    assert ran.wait() in (0, -number)  # no request is running, so it does not wait for 30 s
    assert "Traceback" not in ran.stderr.read()


@pytest.mark.slow("starts a program")
def test_code_that_blocks_the_loop_is_reported_on_stderr(program, file):
    text = BLOCKS + ONE.replace('Server("one"', 'Server("one", lifespan=blocks')
    ran = program("run", file(text))

    assert ran.wait() == 0
    log = ran.stderr.read()
    assert "has blocked the event loop for over 1 s" in log
    assert "    time.sleep(0.01)\n" in log


# Errors


@each_row(
    ("text", "says"),
    [
        ("x = 1\n", 'has no server; add one: server = Server("notes")'),
        (TWO, "has several servers: server, other; name one: "),
        (JOINED + "both = Gateway({})", "has several servers: server, both; name one: "),
        ("x = 1\ndef f(:\n    pass\n", "notes.py, line 2: invalid syntax"),
        ("x = 1\n\nimport nowhere_at_all\n", "notes.py, line 3: ModuleNotFoundError: No module"),
        ("def f():\n    raise KeyError('k')\nf()\n", "notes.py, line 2: KeyError: 'k'"),
        ("import sys\nsys.exit(3)\n", "notes.py, line 2: SystemExit: 3"),
        ("raise ValueError\n", "notes.py, line 1: ValueError"),
        (
            ONE.replace("name: str", "name"),
            "notes.py:6: parameter 'name' of hello has no type hint",
        ),
        ("x = 'a\0b'", "notes.py"),
        ("", "has no server"),
    ],
)
def test_a_file_that_cannot_be_served_is_a_one_line_error(interlock, file, text, says):
    ran = interlock("run", file(text))

    assert ran.code == 1
    (line,) = ran.err.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert ran.out == ""


def test_a_syntax_error_in_an_imported_file_is_reported_with_its_line(interlock, file):
    neighbour = file("a = (1\n", "words.py")
    ran = interlock("run", file("import words\n" + ONE))

    assert ran.code == 1
    assert f"{neighbour.name}, line 1: '(' was never closed" in ran.err


def test_an_unknown_server_name_is_an_error_with_the_known_names(interlock, file):
    ran = interlock("run", f"{file(TWO)}:nobody")

    assert ran.code == 1
    assert "has no server 'nobody'; it has: server, other" in ran.err


@each_row(
    ("name", "says"),
    [
        ("nothing", "line 9: nothing returned int, not a Server"),
        (
            "named",
            "line 12: named is called without arguments: missing a required argument: 'name'",
        ),
        ("later", "line 15: later must be a plain function; remove async"),
        ("fails", "line 19: ZeroDivisionError: division by zero"),
        ("nobody", "has no server 'nobody'; it has: make, named, later"),
    ],
)
def test_a_function_that_returns_no_server_is_an_error_with_its_line(interlock, file, name, says):
    ran = interlock("run", f"{file(MADE)}:{name}")

    assert ran.code == 1
    assert says in ran.err


@each_row("source", ["nowhere.py", "nowhere.py:server", ".", "", ":server"])
def test_a_missing_file_is_wrong_usage(interlock, source):
    ran = interlock("run", source)

    assert ran.code == 2
    assert "does not exist" in ran.err


def test_a_file_without_the_py_suffix_is_refused(interlock, file):
    ran = interlock("run", file("{}", "notes.json"))

    assert ran.code == 1
    assert "notes.json is not a Python file; its name must end in .py" in ran.err


@each_row(
    "address", ["8000", ":8000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "a:65536", "a:-1", ""]
)
def test_an_invalid_http_address_is_wrong_usage(interlock, file, address):
    ran = interlock("run", file(ONE), "--http", address)

    assert ran.code == 2
    assert f"--http {address!r} is not HOST:PORT" in ran.err


def test_an_http_address_beyond_loopback_is_refused(interlock, file):
    ran = interlock("run", file(ONE), "--http", "0.0.0.0:0")

    assert ran.code == 1
    assert ran.err.startswith("error: other machines can reach 0.0.0.0; listen on 127.0.0.1, or ")


def test_an_http_port_in_use_is_an_error_with_the_way_out(interlock, file):
    with bound(Address("127.0.0.1", 0)) as listener:
        listener.listen()
        address = "{}:{}".format(*listener.getsockname())
        ran = interlock("run", file(ONE), "--http", address)

    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        f"error: cannot listen on {address}: {os.strerror(errno.EADDRINUSE)}; choose another port\n"
    )


@each_row(
    ("options", "code", "error"),
    [
        (("--proxies", "::1"), 2, "--proxies and --cors are for --http"),
        (("--http", "127.0.0.1:0", "--proxies", "127.0.0.1,nginx"), 1, "proxy 'nginx' must be an"),
        (("--http", "127.0.0.1:0", "--proxies", "10.1.0.0/8"), 1, "write 10.1.0.0 or 10.0.0.0/8"),
        (("--http", "127.0.0.1:0", "--cors", "app.example.com"), 2, "write https://HOST[:PORT]"),
        (("--http", "127.0.0.1:0", "--cors", "*"), 2, "write https://HOST[:PORT]"),
    ],
)
def test_proxies_and_origins_that_are_not_valid_are_refused(interlock, file, options, code, error):
    ran = interlock("run", file(ONE), *options)

    assert ran.code == code
    assert error in ran.err


@pytest.mark.slow("starts a program")
def test_run_believes_listed_proxies_and_answers_listed_pages(program, file):
    code = (
        ONE
        + """
from interlock import Context

@server.tool
def whoami(context: Context) -> str:
    return context.address
"""
    )
    options = ("--proxies", "127.0.0.1, ::1", "--cors", "HTTPS://App.Example.com/")
    ran = program("run", file(code), "--http", "127.0.0.1:0", *options)
    url = ran.stderr.readline().split()[-1]

    async def ask() -> str:
        headers = {"X-Forwarded-For": "198.51.100.9", "Origin": "https://app.example.com"}
        async with Client.http(url, headers=headers) as client:
            return (await client.call_tool("whoami")).text

    assert asyncio.run(ask()) == "198.51.100.9"
    ran.terminate()
    ran.wait()


def test_run_help_has_an_example_with_http(interlock):
    ran = interlock("run", "--help")

    assert ran.code == 0
    assert "interlock run notes.py:server --http 127.0.0.1:8000" in ran.out
