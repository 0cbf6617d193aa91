"""`interlock serve`: the real program, with real clients."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from interlock import Client
from interlock.errors import MissingExtra
from tests.cli.conftest import ECHO
from tests.support.oidc import OidcIssuer
from tests.support.rows import each_row

LEGACY, MODERN = "2025-11-25", "2026-07-28"
Start = Callable[..., subprocess.Popen[str]]

pytestmark = pytest.mark.slow("starts a gateway for each case")


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Path]:
    """Write a file with the echo server, and a member `gateway` if one is given."""

    def write(gateway: dict[str, Any] | None = None, **servers: Any) -> Path:
        path = tmp_path / "gateway.json"
        echo = {"command": sys.executable, "args": ECHO}
        file: dict[str, Any] = {"mcpServers": {"e": echo} | servers}
        if gateway is not None:
            file["gateway"] = gateway
        path.write_text(json.dumps(file))
        return path

    return write


class Gateway:
    """A running gateway.

    Attributes:
        lines: What it has written to stderr until it was ready.
        url: Of its endpoint.
        key: The key for its run, if any; stderr is a pipe, so it states only the key's file.
    """

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.program = program
        self.lines: list[str] = []
        self.read_to("VS Code|error")
        late = [line for line in self.lines if line.endswith("is still starting")]
        if late == ["warning: e is still starting"]:  # a busy machine; its start is announced
            self.lines.remove(late[0])
            self.read_to(r"\d+ of \d+ servers? (is|are) up")
        text = "\n".join(self.lines)
        self.url = re.findall(r"^serving at (\S+)$", text, re.M)[0]
        self.key_file = Path(next(iter(re.findall("^key for this run: in (.+)$", text, re.M)), ""))
        self.key = self.key_file.read_text().strip() if self.key_file.name else ""

    def read_to(self, start: str) -> None:
        """Read stderr up to a line whose start matches."""
        assert self.program.stderr is not None
        for line in self.program.stderr:
            self.lines.append(line.rstrip())
            if re.match(start, line):
                break

    def client(self, **options: Any) -> Client:
        headers = {"Authorization": f"Bearer {self.key}"}
        return Client.http(options.pop("url", self.url), headers=headers, **options)

    def end(self) -> int:
        self.program.send_signal(signal.SIGTERM)
        return self.program.wait()


@pytest.fixture
def serve(program: Start, config: Callable[..., Path]) -> Callable[..., Gateway]:
    """Start a gateway on a free port of loopback."""

    def start(*options: str, path: Path | None = None) -> Gateway:
        path = path or config()
        return Gateway(program("serve", "--config", path, "--http", "127.0.0.1:0", *options))

    return start


async def echoed(client: Client) -> str:
    async with client:
        said = await client.call_tool("e__say", {"text": "hi"})  # waits for a server that starts
        assert "e__say" in [each.name for each in await client.list_tools()]
        return said.text


async def test_plain_file_is_served_to_both_eras_and_over_sse_with_a_key_for_the_run(serve):
    gateway = serve()

    for revision in (LEGACY, MODERN):
        assert await echoed(gateway.client(revision=revision)) == "hi"
    sse = gateway.url.replace("/mcp", "/sse")
    assert await echoed(gateway.client(url=sse, transport="sse")) == "hi"
    assert "1 of 1 server is up, 6 tools" in gateway.lines
    claude = next(line for line in gateway.lines if line.startswith("Claude Code: "))
    assert f'{gateway.url} --header "Authorization: Bearer YOUR_KEY"' in claude
    assert not [line for line in gateway.lines if "ilk_" in line]  # a log of a container
    assert gateway.key_file.stat().st_mode & 0o777 == 0o600
    assert gateway.end() == 0
    assert not gateway.key_file.exists()


def test_gateway_behind_a_proxy_prints_its_public_url_and_records_its_clients(
    serve, config, interlock
):
    path = config({"publicUrl": "https://tools.example.com/mcp", "proxies": ["127.0.0.1"]})
    gateway = serve(path=path)
    headers = {"Authorization": f"Bearer {gateway.key}", "X-Forwarded-For": "198.51.100.9"}
    assert asyncio.run(echoed(Client.http(gateway.url, headers=headers))) == "hi"
    gateway.end()

    pasted = [line for line in gateway.lines if "YOUR_KEY" in line]
    assert len(pasted) == 3
    assert all("https://tools.example.com/mcp" in line for line in pasted)
    records = interlock("audit", "export", "--config", path).out
    assert '"address":"198.51.100.9"' in records
    assert '"address":"127.0.0.1"' not in records


async def test_servers_on_stdio_and_sqlite_need_no_http_client_orm_or_postgresql(
    serve, monkeypatch
):
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # lists each imported module on stderr
    gateway = serve()
    monkeypatch.undo()

    assert await echoed(gateway.client()) == "hi"
    gateway.end()
    loaded = {line.split("|")[-1].strip() for line in [*gateway.lines, *gateway.program.stderr]}
    unneeded = {"aiohttp", "interlock.oauth", "interlock.openapi.server"}
    unneeded |= {"sqlalchemy.orm", "sqlalchemy.dialects.postgresql", "asyncpg"}
    assert loaded & {"interlock.gateway.serving.http", *unneeded} == {
        "interlock.gateway.serving.http"
    }


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_stdio_serves_the_local_user_without_a_key(revision: str, config, home: Path):
    program = str(Path(sys.executable).with_name("interlock"))
    client = Client.stdio(
        program, "serve", "--stdio", "--config", str(config()), revision=revision, env=vars_of(home)
    )
    assert await echoed(client) == "hi"


def test_stdio_needs_no_http_server(program, without, config):
    ran = program("serve", "--stdio", "--config", config(), env=without("uvicorn"))

    assert ran.communicate()[1] == ""  # stdin is at its end
    assert ran.returncode == 0


def vars_of(home: Path) -> dict[str, str]:
    return {"XDG_DATA_HOME": str(home / "data"), "HOME": str(home)}


def test_tools_that_the_file_leaves_out_are_no_warning(serve, config):
    echo = {"command": sys.executable, "args": ECHO, "tools": {"deny": ["exit"]}}
    gateway = serve(path=config(e=echo))

    assert "1 of 1 server is up, 5 tools" in gateway.lines
    assert not [line for line in gateway.lines if line.startswith("warning")]


async def test_server_that_is_missing_is_a_warning_and_costs_only_its_own_tools(serve, config):
    gateway = serve(path=config(gone={"command": "no-such-program"}))

    assert "1 of 2 servers are up, 6 tools" in gateway.lines
    assert any(line.startswith("warning: gone failed: cannot start") for line in gateway.lines)


def test_servers_that_start_late_are_counted_once_all_are_up_or_failed(serve, config, tmp_path):
    gates = {name: tmp_path / name for name in ("late", "broken")}
    for each in gates.values():
        os.mkfifo(each)

    def behind(name: str, *command: str) -> dict[str, Any]:
        # Only the first time, as a program that ends at once is started for a legacy client, too.
        waits = 'mv "$0" "$0.open" && read _ < "$0.open"; exec "$@"'
        return {"command": "sh", "args": ["-c", waits, str(gates[name]), *command]}

    gateway = serve(
        path=config(late=behind("late", sys.executable, *ECHO), broken=behind("broken", "false"))
    )
    assert "warning: late is still starting" in gateway.lines

    for each in gates.values():
        each.with_suffix(".open").write_text("go\n")
    assert "2 of 3 servers are up, 12 tools" in (line.rstrip() for line in gateway.program.stderr)
    assert gateway.end() == 0
    assert "servers are up" not in gateway.program.stderr.read()


def test_ending_gateway_does_not_announce_servers_that_are_still_starting(serve, config):
    gateway = serve(path=config(mute={"command": "tail", "args": ["-f", "/dev/null"]}))
    assert "warning: mute is still starting" in gateway.lines

    assert gateway.end() == 0
    assert "up" not in gateway.program.stderr.read()


def test_address_that_others_can_reach_needs_a_stored_key(interlock, config):
    ran = interlock("serve", "--config", config(), "--http", "0.0.0.0:0")

    assert ran.code == 1
    assert ran.err == (
        "error: other machines can reach 0.0.0.0; make a key first: interlock keys create NAME\n"
    )


def test_second_gateway_on_the_same_database_is_refused(serve, program, config):
    serve()
    second = program("serve", "--config", config(), "--http", "127.0.0.1:0")

    assert second.wait() == 1
    assert "another gateway uses" in second.stderr.read()


def test_address_in_use_is_an_error_before_any_server_starts(serve, interlock, config, tmp_path):
    port = serve().url.split(":")[2].split("/")[0]
    other = {"database": str(tmp_path / "other.db")}
    ran = interlock("serve", "--config", config(other), "--http", f"127.0.0.1:{port}")

    assert (ran.code, ran.err) == (
        1,
        f"error: cannot listen on 127.0.0.1:{port}: Address already in use; choose another port\n",
    )


def test_gateway_without_a_trail_is_for_stdio_only(interlock, config):
    path = config({"audit": {"mode": "off"}})
    error = f'error: {path}: gateway.audit.mode is "off", which is for --stdio only\n'
    for options in (("--http", "127.0.0.1:0"), ("--check",)):
        ran = interlock("serve", "--config", path, *options)
        assert (ran.code, ran.err) == (1, error)
    assert interlock("serve", "--config", path, "--check", "--stdio").code == 0


def test_missing_http_server_is_an_error_before_any_server_starts(
    interlock, config, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    started = tmp_path / "started"
    touch = {"command": "touch", "args": [str(started)]}
    ran = interlock("serve", "--config", config({}, touch=touch), "--http", "127.0.0.1:0")

    assert (ran.code, ran.err) == (
        1,
        f"error: {MissingExtra('serving HTTP', 'serve')}\n",
    )
    assert not started.exists()


@each_row(
    ("options", "error"),
    [
        (("--stdio", "--http", "127.0.0.1:0"), "--http and --stdio exclude each other"),
        (("--stdio", "--admin", "127.0.0.1:0"), "--admin and --stdio exclude each other"),
        (("--admin", "8081"), "--admin '8081' is not HOST:PORT"),
        (("--start-servers",), "--start-servers is for --check; a server starts when it is served"),
    ],
)
def test_contradictory_options_are_a_usage_error(interlock, options, error: str):
    ran = interlock("serve", *options)

    assert (ran.code, error in ran.err) == (2, True)


def test_view_that_the_file_lacks_is_an_error(interlock, config):
    ran = interlock("serve", "--config", config(), "--view", "support")

    assert (ran.code, "no view 'support'" in ran.err) == (1, True)


async def test_sighup_reloads_the_file_and_an_invalid_file_changes_nothing(serve, config):
    path = config()
    gateway = serve(path=path)
    lines = iter(gateway.program.stderr.readline, "")
    said = (line for line in lines if " WARNING interlock.toolbox: " not in line)

    path.write_text("{")
    gateway.program.send_signal(signal.SIGHUP)
    assert next(said).startswith(f"error: not reloaded, the old configuration is served: {path}")
    assert await echoed(gateway.client()) == "hi"

    config(f={"command": sys.executable, "args": ECHO})
    gateway.program.send_signal(signal.SIGHUP)
    assert next(said) == f"reloaded {path}\n"
    async with gateway.client() as client:
        assert {each.name.partition("__")[0] for each in await client.list_tools()} >= {"e", "f"}

    config(f={"command": sys.executable, "args": ECHO, "colour": 1})
    for warned in (True, False):  # a warning is printed once
        gateway.program.send_signal(signal.SIGHUP)
        if warned:
            assert "mcpServers.f.colour is unknown" in next(said)
        assert next(said) == f"reloaded {path}\n"


def test_systemd_is_notified_of_each_state_and_no_child_has_its_variables(
    serve, config, tmp_path, monkeypatch
):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "60000000")
        gateway = serve(path=config())
        assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"WATCHDOG=1"]
        gateway.program.send_signal(signal.SIGHUP)
        state, _, since = manager.recv(100).decode().partition("\nMONOTONIC_USEC=")
        assert (state, int(since) > 0, manager.recv(100)) == ("RELOADING=1", True, b"READY=1")
        for child in descendants(gateway.program.pid):
            assert b"NOTIFY_SOCKET" not in Path(f"/proc/{child}/environ").read_bytes()
        assert gateway.end() == 0
        assert manager.recv(100) == b"STOPPING=1"


def descendants(id: int) -> list[int]:
    threads = Path(f"/proc/{id}/task").glob("*/children")
    children = [int(child) for each in threads for child in each.read_text().split()]
    return [*children, *(each for child in children for each in descendants(child))]


async def test_gateway_that_leaves_is_served_until_its_delay_ends(serve, config):
    gateway = serve(path=config({"drain": {"delay": "1h"}}))
    ready = gateway.url.replace("/mcp", "/readyz")
    async with aiohttp.ClientSession() as http, gateway.client(revision=LEGACY) as legacy:
        gateway.program.send_signal(signal.SIGTERM)
        status = 200
        while status != 404:  # 503 while a busy machine's database is slow, which is named second
            async with http.get(ready) as reply:
                status, found = reply.status, await reply.json()
        assert (found["ready"], found["degraded"][0]) == (False, "draining")
        assert await echoed(gateway.client(revision=MODERN)) == "hi"
        assert (await legacy.call_tool("e__say", {"text": "hi"})).text == "hi"
    assert gateway.end() == 0  # the second signal


async def test_admin_option_serves_operators_at_another_address(serve, config):
    gateway = serve("--admin", "127.0.0.1:0", path=config({"admin": {"listen": "192.0.2.1:1"}}))
    api = next(line for line in gateway.lines if line.startswith("admin at ")).split()[-1]
    async with aiohttp.ClientSession() as http:
        status = 503  # until the database has answered once
        while status == 503:
            async with http.get(api.replace("/admin/api/v1", "/readyz")) as reply:
                status = reply.status
    assert status == 200
    lines = iter(gateway.program.stderr.readline, "")
    gateway.program.send_signal(signal.SIGHUP)
    assert next(lines).startswith("reloaded ")
    assert gateway.end() == 0
    assert "restart to apply" not in gateway.program.stderr.read()


async def test_admin_listener_has_health_metrics_and_the_admin_api(serve, config):
    gateway = serve(path=config({"admin": {"listen": "127.0.0.1:0"}}))
    api = next(line for line in gateway.lines if line.startswith("admin at ")).split()[-1]
    url = api.removesuffix("/admin/api/v1")
    assert f"board at {url}/gateway" in gateway.lines

    await echoed(gateway.client())
    async with aiohttp.ClientSession() as http:
        found = {}
        for path in ("/healthz", "/readyz", "/metrics", "/mcp", "/admin/api/v1/status", "/gateway"):
            async with http.get(url + path) as reply:
                found[path] = reply.status, await reply.text()
    assert [status for status, _ in found.values()] == [200, 200, 200, 404, 401, 200]
    assert 'interlock_calls_total{server="e",outcome="ok"} 1' in found["/metrics"][1]


def test_check_warns_of_odd_rules_and_refuses_a_wrong_file(interlock, config, tmp_path):
    rules = [{"id": "r", "effect": "allow", "who": ["*"], "tools": ["e:sya"],
              "arguments": {"txet": {"const": 1}}}]  # fmt: skip
    path = config({"policy": {"rules": rules}})
    odd = interlock("serve", "--check", "--start-servers", "--config", path)
    assert (odd.code, odd.out) == (0, "")
    assert "warning: rule r: e:sya matches no tool (did you mean 'e:say'?)" in odd.err

    started = tmp_path / "started"
    touch = {"command": sys.executable, "args": ["-c", f"open({str(started)!r}, 'w')"]}
    unchecked = interlock(
        "serve", "--check", "--config", config({"policy": {"rules": rules}}, e=touch)
    )
    assert unchecked.code == 0
    assert unchecked.err.startswith(
        "warning: not checked: rule r: e:sya, argument 'txet' (no server was started; "
        "add --start-servers)\n"
    )
    assert not started.exists()

    rules[0]["effect"] = "alow"
    wrong = interlock("serve", "--check", "--config", config({"policy": {"rules": rules}}))
    assert wrong.code == 1
    assert re.match(r"error: .*gateway\.json, line \d+: gateway\.policy\.rules\[0\]", wrong.err)

    reserved = interlock("serve", "--check", "--config", config({}, interlock={"command": "x"}))
    assert reserved.code == 1
    assert "mcpServers.interlock has a reserved name" in reserved.err


def test_check_uses_the_last_lists_and_shows_the_changes_without_starting_servers(
    serve, interlock, config
):
    rule = {"id": "r", "effect": "allow", "who": ["*"], "tools": ["e:sya"]}
    serve().end()
    same = interlock("serve", "--check", "--config", config())
    path = config({"policy": {"rules": [rule]}, "views": {"v": {}}}, more={"command": "no-program"})
    other = interlock("serve", "--check", "--config", path)

    assert (same.code, same.err) == (0, f"{path} can be served\n")
    lines = re.sub("since [^,]+", "since T", other.err).splitlines()
    assert lines == [
        "warning: rule r: e:sya matches no tool (did you mean 'e:say'?)",
        "changes since T, when a configuration was loaded last:",
        "  new server more",
        "  new view v",
        "  another policy",
        f"{path} can be served",
    ]


def test_check_names_servers_whose_changed_launch_will_wait(serve, interlock, config):
    serve().end()
    document = json.loads(config().read_text())
    (entry,) = document["mcpServers"].values()
    entry["args"] = [*entry.get("args", []), "--other"]
    path = config()
    path.write_text(json.dumps(document))
    ran = interlock("serve", "--check", "--config", path)

    assert "  server e is launched in another way: its tools will wait for `interlock" in ran.err


def test_check_warns_of_an_issuer_at_which_anybody_can_sign_in(interlock, config):
    google = {"issuer": "https://accounts.google.com", "clientId": "4711", "clientSecret": "s"}
    for people, is_open in (({}, True), ({"people": {"hd": {"const": "example.com"}}}, False)):
        entry = google | people | {"scopes": {"*": ["mcp:read"]}}
        auth = {"oauth": {}, "issuers": [entry]}
        path = config({"publicUrl": "https://tools.example.com/mcp", "auth": auth})
        ran = interlock("serve", "--check", "--config", path)
        assert ("anybody with a Google account can sign in" in ran.err) == is_open


def test_serve_states_the_url_for_clients_and_the_redirect_uri_for_issuers(serve, config):
    entry = {"issuer": "https://id.example.com", "clientId": "interlock", "clientSecret": "s",
             "scopes": {"*": ["mcp:read"]}}  # fmt: skip
    auth = {"oauth": {}, "issuers": [entry]}
    public = "https://tools.example.com/mcp"
    gateway = serve(path=config({"publicUrl": public, "auth": auth}))
    if not any(line.startswith("OAuth") for line in gateway.lines):
        gateway.read_to("redirect URI")
    assert [line for line in gateway.lines if line.startswith(("OAuth", "redirect URI"))] == [
        f"OAuth clients: {public} is all they need",
        "redirect URI to register at https://id.example.com:"
        " https://tools.example.com/login/callback",
    ]
    assert f"Claude Code: claude mcp add --transport http interlock {public}" in gateway.lines


async def test_check_reaches_issuers_only_if_it_may_start_servers(interlock, config):
    issuer = OidcIssuer()
    await issuer.open()
    public = {"publicUrl": "https://tools.example.com/mcp"}
    path = config({**public, "auth": {"oauth": {}, "issuers": [issuer.entry()]}})

    async def check(*options: str) -> tuple[int, bool]:
        ran = await asyncio.to_thread(interlock, "serve", "--check", "--config", path, *options)
        return ran.code, issuer.url in ran.err

    unchecked = await asyncio.to_thread(interlock, "serve", "--check", "--config", path)
    assert f"not checked: login at {issuer.url} (no server was started" in unchecked.err
    assert (unchecked.code, issuer.requests) == (0, 0)
    assert await check("--start-servers") == (0, False)
    assert issuer.requests == 1
    issuer.is_down = True
    assert await check("--start-servers") == (0, True)
    await issuer.close()


def test_check_refuses_a_database_that_serve_refuses(interlock, config):
    ran = interlock("serve", "--check", "--config", config({"database": "mysql://h/d"}))
    assert (ran.code, "gateway.database must be the path" in ran.err) == (1, True)


def test_check_warns_of_unset_variables_and_not_of_credentials_of_users(interlock, config):
    needs_variable = {"command": "x", "env": {"TOKEN": "${CRM_TOKEN}"}}
    unset = interlock("serve", "--check", "--config", config({}, crm=needs_variable))
    assert unset.code == 0
    assert "server 'crm' cannot start: env.TOKEN uses ${CRM_TOKEN}" in unset.err

    needs_user = {"command": "x", "sharing": "per_user", "env": {"TOKEN": "${user:TOKEN}"}}
    stored = interlock("serve", "--check", "--config", config({}, crm=needs_user))
    assert (stored.code, "cannot start" in stored.err) == (0, False)


@pytest.mark.slow("starts a program")
@pytest.mark.parametrize("command", ["serve", "serve --check", "keys list", "approvals list"])
def test_missing_packages_of_the_gateway_are_an_error_with_the_extras(program, without, command):
    ran = program(*command.split(), env=without("sqlalchemy"))

    expected = MissingExtra("the gateway's database", "serve,chat")
    assert ran.communicate()[1] == f"error: {expected}\n"
