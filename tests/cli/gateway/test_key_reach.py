"""How many tools a new key can call, and why not the others."""

from __future__ import annotations

import sys

import pytest

from interlock.cli.gateway import key_reach
from tests.cli.conftest import ECHO


@pytest.mark.slow("starts a program")
def test_create_prints_how_many_tools_the_key_can_call_and_why_others_are_denied(
    interlock, servers
):
    unmarked = {"command": sys.executable, "args": ECHO}
    servers(w=unmarked, gone={"command": "no-such-program-7d2f"})
    lines = interlock("keys", "create", "anna").err.splitlines()

    count = int(lines[1].removeprefix("the key can call ").partition(" ")[0])
    assert count > 0
    assert lines[1] == (
        f"the key can call {count} of {2 * count} tools now; {count} are risk write:"
        " add --scope mcp:*, or mark what only reads in tools.risk"
    )
    assert lines[2].startswith("server 'gone' failed: ")
    reads = interlock("keys", "create", "op", "--scope", "admin:read").err.splitlines()
    assert reads[1:] == ["the key opens the admin listener, and no tools"]


@pytest.mark.slow("starts a program")
def test_create_does_not_wait_for_a_mute_server(interlock, servers, monkeypatch):
    monkeypatch.setattr(key_reach, "IDLE_TIMEOUT", 1.0)
    mute = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
    servers(mute=mute)

    ran = interlock("keys", "create", "anna", "--scope", "mcp:*")

    assert ran.code == 0
    assert ran.err.splitlines()[-1] == "server mute did not answer within 1 s"


def test_create_does_not_count_tools_that_need_a_credential_of_the_user(interlock, servers):
    token = {"TOKEN": "${user:TOKEN}"}
    crm = {"command": "no-such-program-7d2f", "sharing": "per_user", "env": token}
    servers(e={"command": "no-such-program-7d2f", "disabled": True}, crm=crm)

    ran = interlock("keys", "create", "anna", "--scope", "mcp:*")

    assert ran.err.splitlines()[1:] == [
        "the key can call 0 of 0 tools now",
        "not counted, as each user needs a credential of their own: the tools of server 'crm'",
    ]
