"""Adding servers to configuration files and removing them."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock import config
from interlock.config import Config, HttpServer, OAuthClient, Pool, StdioServer, ToolFilter
from interlock.errors import ConfigError
from tests.config.conftest import CLAUDE_DESKTOP, write
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("home")

FULL = StdioServer(
    command="uvx",
    args=("a", "é"),
    env={"K": "v"},
    timeout=5.5,
    connect_timeout=1.0,
    tools=ToolFilter(allow=("x",)),
    sharing="per_call",
    pool=Pool(max=4, calls=1),
    enabled=False,
)


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_add_server_creates_a_missing_file_for_its_owner_only(home: Path) -> None:
    path = home / "new" / "mcp.json"
    config.add_server(path, "time", FULL)
    config.add_server(path, "web", HttpServer(url="https://h", type="sse", headers={"A": "b"}))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert config.load(path) == Config(
        path, {"time": FULL, "web": HttpServer(url="https://h", type="sse", headers={"A": "b"})}
    )
    assert file_names(path.parent) == ["mcp.json"]


def test_add_server_writes_all_members_of_http_servers(home: Path) -> None:
    path = home / "mcp.json"
    server = HttpServer(
        url="https://h/mcp?a=1",
        headers={"Authorization": "Bearer ${T}"},
        type="sse",
        auth="bearer",
        max_message_bytes=1024,
        tools=ToolFilter(("a",), ("b",), ("c",)),
        pool=Pool(spare=2, idle=1.5),
    )
    config.add_server(path, "web", server)
    client = OAuthClient(client_id="me", client_secret="${S}", callback_port=1, scopes=("a",))
    other = HttpServer(url="https://h", auth="oauth", oauth=client)
    config.add_server(path, "other", other)

    assert config.load(path).servers == {"web": server, "other": other}


def test_an_edit_preserves_mode_comments_order_and_unknown_keys(home: Path) -> None:
    path = write(home / "mcp.json", b'{\n\t"servers": { // mine\n\t\t"a": {"command": "x"}\n\t},\n'
                 b'\t"other": 1\n}\n')  # fmt: skip
    path.chmod(0o640)
    config.add_server(path, "b", StdioServer(command="y"))

    assert path.read_text() == (
        '{\n\t"servers": { // mine\n\t\t"a": {"command": "x"},\n\t\t"b": {\n\t\t\t"command": "y"'
        '\n\t\t}\n\t},\n\t"other": 1\n}\n'
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o640

    config.remove_server(path, "b")
    config.remove_server(path, "a")
    assert path.read_text() == '{\n\t"servers": {},\n\t"other": 1\n}\n'


def test_an_edit_replaces_the_target_of_a_symbolic_link(home: Path) -> None:
    real = write(home / "dotfiles" / "mcp.json", b"{}")
    link = home / "mcp.json"
    link.symlink_to(real)
    config.add_server(link, "a", StdioServer(command="x"))

    assert link.is_symlink()
    assert config.load(real).servers == {"a": StdioServer(command="x")}


@each_row(
    ("content", "edit", "message"),
    [
        (
            CLAUDE_DESKTOP,
            lambda path: config.add_server(path, "time", FULL),
            r"already has a server 'time': remove it first",
        ),
        (CLAUDE_DESKTOP, lambda path: config.remove_server(path, "x"), r"has no server 'x'"),
        (b"{", lambda path: config.add_server(path, "a", FULL), r"line 1 column 2: Expecting"),
        (
            CLAUDE_DESKTOP,
            lambda path: config.add_server(path, "a:b", FULL),
            r"must be a name without colon",
        ),
        (
            CLAUDE_DESKTOP,
            lambda path: config.add_server(path, "a", StdioServer(command="")),
            "command must not be empty",
        ),
        (
            b'{"mcpServers": {}, "gateway": {"publicUrl": "https://h.example/mcp"}}',
            lambda path: config.add_server(path, "a", HttpServer(url="https://h.example/mcp/")),
            "is the gateway of .* itself; add it to the file of a client",
        ),
    ],
)
def test_a_refused_edit_changes_nothing(
    home: Path, content: bytes, edit: Any, message: str
) -> None:
    path = write(home / "mcp.json", content)
    with pytest.raises(ConfigError, match=message):
        edit(path)

    assert path.read_bytes() == content
    assert file_names(home) == ["mcp.json", "work"]


@pytest.mark.slow("starts processes")
def test_concurrent_edits_of_two_processes_are_all_kept(home: Path) -> None:
    path = home / "mcp.json"
    code = (
        "import sys; from pathlib import Path; from interlock import config\n"
        "for i in range(25):\n"
        "    config.add_server(Path(sys.argv[1]), f'{sys.argv[2]}{i}',"
        " config.StdioServer(command='x'))"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in ("a", "b")
    ]
    assert [child.wait() for child in children] == [0, 0]

    assert set(config.load(path).servers) == {f"{n}{i}" for n in ("a", "b") for i in range(25)}


NAMES = st.text(min_size=1, max_size=64).filter(
    lambda n: n.isprintable() and n == n.strip() and ":" not in n
)
TEXTS = st.text(min_size=1).filter(lambda text: text.strip() and "\0" not in text)


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.dictionaries(
        NAMES,
        st.builds(
            StdioServer,
            command=TEXTS,
            args=st.lists(TEXTS, max_size=3).map(tuple),
            env=st.dictionaries(st.from_regex("[A-Z_]{1,9}", fullmatch=True), TEXTS, max_size=3),
            cwd=st.none() | TEXTS,
            timeout=st.floats(0.001, 86_400),
            connect_timeout=st.floats(0.001, 86_400),
            concurrency=st.integers(1, 10_000),
            namespace=st.none() | NAMES,
            enabled=st.booleans(),
        ),
        max_size=4,
    )
)
@pytest.mark.slow("edits a file a hundred times")
def test_added_servers_are_read_back_and_removing_them_restores_the_file(
    home: Path, monkeypatch: pytest.MonkeyPatch, servers: dict[str, StdioServer]
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a busy disk takes 0.1 s for each edit
    path = write(home / "mcp.json", b'{"mcpServers": {}}\n')
    for name, server in servers.items():
        config.add_server(path, name, server)
    assert config.load(path) == Config(path, dict(servers))

    for name in servers:
        config.remove_server(path, name)
    assert path.read_bytes() == b'{"mcpServers": {}}\n'
