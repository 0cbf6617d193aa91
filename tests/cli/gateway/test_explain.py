"""`interlock explain`: the checks of a call, on the stored keys and the file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.auth import key_format
from tests.cli.conftest import ECHO
from tests.support.rows import each_row

RULES = [
    {"id": "reads", "effect": "allow", "who": ["*"], "tools": ["*:*"], "risk": "read"},
    {
        "id": "short",
        "effect": "allow",
        "who": ["user:anna"],
        "tools": ["w:say"],
        "arguments": {"text": {"maxLength": 5}},
    },
]


@pytest.fixture
def gateway(servers: Callable[..., Path]) -> Path:
    """The user's file with an echo server of risk read, one of risk write, and a policy."""
    file = servers(w={"command": sys.executable, "args": ECHO})
    document = json.loads(file.read_text())
    limits = {"perKey": {"perDay": 100}}
    document["gateway"] = {"policy": {"rules": RULES}, "views": {"reads": {"servers": ["e"]}}}
    document["gateway"]["limits"] = limits
    file.write_text(json.dumps(document))
    return file


@pytest.fixture
def key(gateway: Path, interlock: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    from interlock.cli.gateway import key_reach

    async def nothing(*_: object) -> list[str]:
        return []

    monkeypatch.setattr(key_reach, "describe_reach", nothing)  # which would start the servers
    made = interlock("keys", "create", "anna", "--scope", "mcp:*").out
    return str(key_format.id_of(made.strip()))


@pytest.mark.slow("works through much data")
def test_an_allowed_call_is_explained_on_stdout_with_exit_code_0(interlock, key):
    arguments = json.dumps({"text": "hi"})
    ran = interlock("explain", "--key", key, "w:say", "--arguments", arguments)

    first, *lines, last = ran.out.splitlines()
    assert (ran.code, ran.err) == (0, "")
    assert first == f"w:say for user:anna, key {key}"
    assert last == "allow"
    assert [line.split()[:2] for line in lines] == [
        ["ok", step]
        for step in (
            *("key", "view", "server", "definition", "arguments", "scope", "policy", "limits"),
        )
    ]
    assert lines[3].startswith("  ok    definition  accepted 20")
    assert lines[-1] == "  ok    limits      100 calls a day"


@pytest.mark.slow("works through much data")
def test_a_denied_call_ends_with_the_first_denial_and_exit_code_1(interlock, key):
    ran = interlock("explain", "--key", key, "w:say", "text=too long")

    assert ran.code == 1
    assert ran.out.splitlines()[-3:] == [
        "  deny  policy      rule short does not hold: text is too long;"
        " rule reads does not hold: it is for tools of another risk",
        "  -     limits      not reached",
        "deny: no_rule",
    ]
    assert ran.err == "to change that: add a rule that allows w:say for user:anna\n"


@pytest.mark.slow("fills a database")
def test_without_an_address_all_tools_are_listed_with_their_first_obstacle(interlock, gateway):
    ran = interlock("explain", "--user", "berta", "--json")

    tools = ran.json["tools"]
    assert ran.code == 0
    assert {"tool": "e:say", "effect": "allow", "state": "ok"} in tools
    assert {"tool": "w:say", "effect": "deny", "reason": "no_rule", "state": "ok"} in tools
    assert len(tools) == 2 * sum(each["tool"].startswith("e:") for each in tools)


@pytest.mark.slow("starts a program")
def test_view_restricts_the_tools_that_a_user_may_call(interlock, gateway):
    ran = interlock("explain", "--user", "anna", "--view", "reads", "w:say", "--json")

    assert (ran.code, ran.json["reason"]) == (1, "not_in_view")


@pytest.mark.slow("works through much data")
def test_explanation_for_a_revoked_key_has_only_the_key_check(interlock, key):
    interlock("keys", "revoke", key)

    explained = interlock("explain", "--key", key, "w:say", "--json").json

    assert (explained["effect"], explained["reason"]) == ("deny", "key_revoked")


@each_row(
    ("arguments", "problem"),
    [
        (["w:say"], "name either --key or --user"),
        (["--user", "a", "say"], "is not an address; write SERVER:NAME"),
        (["--user", "a", "w:say", "--arguments", "[]"], "not a JSON object"),
        (["--user", "a", "w:say", "--arguments", "{"], "not JSON"),
        (["--user", "a", "--arguments", "{}"], "--arguments needs the ADDRESS"),
        (["--user", "a", "--view", "none"], "no view 'none'"),
    ],
)
def test_wrong_usage_is_refused_with_exit_code_2(interlock, gateway, arguments, problem):
    ran = interlock("explain", *arguments)

    assert ran.code == 2
    assert problem in ran.err


def test_an_unknown_key_is_an_error(interlock, gateway):
    ran = interlock("explain", "--key", "000000000000")

    assert ran.code == 1
    assert "no key '000000000000'" in ran.err


@pytest.mark.slow("starts a program")
def test_a_credential_that_the_user_lacks_is_named_with_the_way_to_store_it(interlock, servers):
    options = {"sharing": "per_user", "env": {"TOKEN": "${user:TOKEN}"}}
    servers(p={"command": sys.executable, "args": ECHO, **options})

    lacking = interlock("explain", "--user", "anna", "p:say")
    interlock("credentials", "set", "p", "TOKEN", "--user", "anna", stdin=b"s3cret-canary\n")
    stored = interlock("explain", "--user", "anna", "p:say")

    assert lacking.out.splitlines()[-1] == "deny: needs_login"
    assert lacking.err == ("to change that: interlock credentials set p TOKEN --user anna\n")
    assert stored.out.splitlines()[-2:] == ["  ok    credential  TOKEN of the user", "allow"]
    assert "canary" not in stored.out + stored.err


STARTS = """
import pathlib, sys
from interlock import Server

with pathlib.Path(sys.argv[1]).open("a") as file:
    file.write("started\\n")
server = Server("counted", instructions="Count.")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

server.run()
"""


@pytest.mark.slow("starts a program")
def test_a_server_whose_tools_are_known_is_not_started(interlock, servers, tmp_path: Path):
    script, starts = tmp_path / "counted.py", tmp_path / "starts"
    script.write_text(STARTS)
    file = servers(c={"command": sys.executable, "args": [str(script), str(starts)]})
    document = json.loads(file.read_text())
    document["mcpServers"] = {"c": document["mcpServers"]["c"]}
    file.write_text(json.dumps({**document, "gateway": {}}))
    call = ("explain", "--user", "anna", "c:add", "--arguments", '{"a": 1, "b": 2}', "--json")

    first, second = interlock(*call), interlock(*call)
    whole = interlock("explain", "--user", "anna", "--json")
    assert starts.read_text() == "started\n"
    absent = interlock("explain", "--user", "anna", "c:absent", "--json")

    shown = [each.json["steps"] for each in (first, second)]
    server = {"step": "server", "verdict": "ok", "detail": "c: not started, 1 tool"}
    assert server in shown[1]
    assert [each for each in shown[1] if each["step"] != "server"] == [
        each for each in shown[0] if each["step"] != "server"
    ]
    assert whole.json["tools"] == [{"tool": "c:add", "effect": "allow", "state": "ok"}]
    assert absent.json["reason"] == "unknown_tool"
    assert "did you mean c?" in interlock("explain", "--user", "anna", "cc:add").err
    assert starts.read_text() == "started\nstarted\n"
