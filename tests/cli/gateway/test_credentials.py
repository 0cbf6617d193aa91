"""`interlock credentials`: values come from stdin, and are shown nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.rows import each_row

CRM: dict[str, Any] = {
    "url": "https://crm.example/mcp",
    "sharing": "per_user",
    "headers": {"Authorization": "Bearer ${user:TOKEN}"},
}
SET = ("credentials", "set", "crm", "TOKEN", "--user", "anna")


def test_value_from_stdin_is_stored_listed_without_it_and_deleted(interlock, servers, home: Path):
    servers(crm=CRM)

    ran = interlock(*SET, stdin=b"canary-1234\n")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "stored TOKEN of user:anna for server 'crm'\n"
    (listed,) = interlock("credentials", "list", "--json").json
    assert listed == {
        "user": "user:anna",
        "server": "crm",
        "name": "TOKEN",
        "kind": "value",
        "state": "ok",
        "updated": listed["updated"],
    }
    assert interlock("credentials", "delete", "crm", "TOKEN", "--user", "anna").code == 0
    assert "revoked" in interlock("credentials", "list", "--user", "anna").out
    assert interlock("credentials", "list", "--user", "bert", "--json").json == []
    for file in home.rglob("*"):
        assert not file.is_file() or b"canary-1234" not in file.read_bytes(), file


def test_changes_are_in_the_audit_trail(interlock, servers):
    servers(crm=CRM)
    interlock(*SET, stdin=b"canary-1234")
    interlock("credentials", "delete", "crm", "TOKEN", "--user", "anna")
    lines = interlock("audit", "export").out.splitlines()
    records = sorted(map(json.loads, lines), key=lambda each: each["at"])
    seen = [
        (each["user"], each["server"], each["action"], each["name"], each["of"])
        for each in records
        if each["kind"] == "credential"
    ]

    assert seen == [
        ("user:local", "crm", "set", "TOKEN", "user:anna"),
        ("user:local", "crm", "deleted", "TOKEN", "user:anna"),
    ]
    assert "canary-1234" not in "".join(lines)


@each_row(
    ("arguments", "problem"),
    [
        (("set", "cmr", "TOKEN"), "no server 'cmr' is configured (did you mean 'crm'?)"),
        (("set", "crm", "TOKNE"), "has no ${user:TOKNE}; its names are: TOKEN"),
        (("set", "e", "TOKEN"), "has no ${user:TOKEN}; its names are: none"),
        (("delete", "crm", "TOKEN"), "user:anna has no credential 'TOKEN' for server 'crm'"),
    ],
)
def test_credential_that_no_server_uses_is_refused(
    interlock, servers, arguments: tuple[str, ...], problem: str
):
    servers(crm=CRM)

    ran = interlock("credentials", *arguments, "--user", "anna", stdin=b"x")
    assert ran.code == 1
    assert problem in ran.err


def test_empty_value_is_refused(interlock, servers):
    servers(crm=CRM)

    assert "must be text of 1 to" in interlock(*SET, stdin=b"\n").err
