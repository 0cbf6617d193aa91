"""`interlock keys`: the key alone on stdout, the rest on stderr, and JSON objects as documented."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from interlock.auth import key_format
from tests.support.rows import each_row


def create(interlock, *arguments: str) -> str:
    """Create a key; return its id."""
    ran = interlock("keys", "create", *arguments)
    assert ran.code == 0
    return str(key_format.id_of(ran.out.strip()))


def test_create_prints_the_key_alone_on_stdout(interlock):
    ran = interlock("keys", "create", "anna", "--expires", "90d")

    id = key_format.id_of(ran.out.removesuffix("\n"))
    assert id is not None
    first, reach = ran.err.splitlines()
    assert first.startswith(f"key {id} of user:anna, scopes mcp:read, until 20")
    assert first.endswith("; it is not shown again")
    assert reach.startswith("no servers are configured yet")


def test_create_with_json_prints_the_key_object_with_the_secret(interlock):
    made = interlock(
        *("keys", "create", "user:anna", "--name", "laptop", "--expires", "never"),
        *("--scope", "mcp:*", "--scope", "admin:read", "--rate", "20/s"),
        *("--burst", "60", "--concurrent", "4", "--per-day", "1000", "--json"),
    ).json
    (listed,) = interlock("keys", "list", "--json").json

    key, created = made.pop("key"), made["created"]
    assert key_format.id_of(key) == made["id"]
    assert (
        made
        == listed
        == {
            "id": made["id"],
            "user": "user:anna",
            "name": "laptop",
            "scopes": ["mcp:*", "admin:read"],
            "limits": {"rate": "20/s", "burst": 60, "concurrent": 4, "perDay": 1000},
            "created": created,
            "state": "active",
        }
    )


@each_row(
    ("arguments", "error"),
    [
        (["anna b"], "a user is a name without spaces and *"),
        (["anna", "--scope", "mcp"], "'mcp' must be \"mcp:*\""),
        (["anna", "--expires", "soon"], "'soon' is not a time such as 30s"),
        (["anna", "--rate", "0/s"], "'0/s' is not a rate such as"),
        (["anna", "--view", "support"], "no view 'support' in the configuration; it has no views"),
    ],
)
def test_wrong_option_is_a_usage_error_and_creates_nothing(interlock, arguments, error):
    ran = interlock("keys", "create", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err
    assert interlock("keys", "list", "--json").json == []


def test_keys_are_in_the_database_of_the_gateway(interlock, tmp_path: Path):
    file, database = tmp_path / "gateway.json", tmp_path / "g.db"
    file.write_text(json.dumps({"mcpServers": {}, "gateway": {"database": str(database)}}))

    id = create(interlock, "anna", "--config", str(file))

    with closing(sqlite3.connect(database)) as opened, opened:
        assert opened.execute("SELECT id FROM keys").fetchall() == [(id,)]
    assert interlock("keys", "list", "--json").json == []


def test_changes_of_keys_are_in_the_copy_of_the_trail(interlock, tmp_path: Path):
    file = tmp_path / "mcp.json"
    section = {"database": "gateway.db", "audit": {"copy": "copy"}}
    file.write_text(json.dumps({"mcpServers": {}, "gateway": section}))
    interlock("keys", "create", "anna", "--config", file)

    (copied,) = (tmp_path / "copy").iterdir()
    kinds = [json.loads(each)["kind"] for each in copied.read_text().splitlines()]
    assert kinds == ["head", "admin", "head"]


def test_list_shows_a_line_for_each_key(interlock):
    assert "create one with `interlock keys create USER`" in interlock("keys", "list").err

    id = create(interlock, "anna", "--name", "laptop", "--expires", "never")

    assert interlock("keys", "list").out.split() == [
        *(id, "active", "user:anna", "mcp:read", "-", "for", "good", "never", "used", "laptop")
    ]


def test_show_prints_each_member(interlock):
    id = create(interlock, "anna", "--rate", "20/s")

    lines = dict(line.split(maxsplit=1) for line in interlock("keys", "show", id).out.splitlines())

    assert (lines["user"], lines["scopes"], lines["limits"]) == (
        "user:anna",
        "mcp:read",
        "rate 20/s",
    )
    assert interlock("keys", "show", id, "--json").json["state"] == "active"


@pytest.mark.slow("works through much data")
def test_rotate_prints_a_new_key_and_keeps_the_old_one_for_the_overlap(interlock):
    old = create(interlock, "anna")

    ran = interlock("keys", "rotate", old, "--overlap", "1h")

    new = key_format.id_of(ran.out.strip())
    assert f"key {old} stays valid until 20" in ran.err
    first, second = interlock("keys", "list", "--json").json
    assert (first["state"], first["replacedBy"], second["id"]) == ("active", new, new)
    assert interlock("keys", "rotate", old).err.startswith(f"error: key {old} is rotated")


def test_revoked_key_is_listed_as_revoked(interlock):
    id = create(interlock, "anna")

    ran = interlock("keys", "revoke", id)

    assert (ran.code, ran.out, ran.err) == (0, "", f"revoked key {id} of user:anna\n")
    assert interlock("keys", "list", "--json").json[0]["state"] == "revoked"


@each_row("command", ["show", "rotate", "revoke"])
def test_unknown_key_is_an_error(interlock, command: str):
    ran = interlock("keys", command, "nosuchkey")

    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: no key 'nosuchkey': see `interlock keys list`\n"


@pytest.mark.slow("works through much data")
def test_every_change_is_in_the_audit_trail_with_the_previous_value(interlock):
    id = create(interlock, "anna")
    new = key_format.id_of(interlock("keys", "rotate", id).out.strip())
    interlock("keys", "revoke", id)

    records = [json.loads(line) for line in interlock("audit", "export").out.splitlines()]

    records.sort(key=lambda record: record["at"])
    assert {(each["kind"], each["user"]) for each in records} == {("admin", "user:local")}
    assert [(each["action"], each["id"]) for each in records] == [
        ("key_created", id),
        ("key_rotated", id),
        ("key_revoked", id),
    ]
    assert records[1]["created"]["id"] == new
    assert records[2]["before"]["state"] == "active"
    assert records[2]["after"]["state"] == "revoked"
    assert interlock("audit", "verify").out.startswith("3 records of 3 writers")


def test_key_is_in_no_later_output_and_not_in_the_database(interlock, home: Path):
    key = interlock("keys", "create", "anna").out.strip()
    id = key_format.id_of(key)

    shown = [interlock("keys", *rest) for rest in (["list"], ["list", "--json"], ["show", id])]

    secret = key.rpartition("_")[2]
    assert all(secret not in ran.out + ran.err for ran in shown)
    files = [each for each in home.rglob("*") if each.is_file()]
    assert files
    assert all(secret.encode() not in each.read_bytes() for each in files)
