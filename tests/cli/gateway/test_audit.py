"""`interlock audit`: lists, records and the verdict about the whole trail."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Audit
from interlock.layers.audit import ARGUMENTS_KEY, arguments_hash
from interlock.store import AuditRecord, open_trail
from interlock.store.database.location import find, folder_beside
from tests.support.rows import each_row

COPY = "copy.jsonl"


@pytest.fixture
def trail(home: Path) -> Path:
    """Write a call and a refusal; return the database."""

    async def write() -> None:
        key = GatewayKey.load(folder_beside(None))
        async with open_trail(None, key, Audit(copy=COPY)) as writer:
            names = ("c1", "user:anna", "k1", "crm", "crm:refund")
            hash = arguments_hash(key.derive(ARGUMENTS_KEY), b'{"amount":80,"to":"x"}')
            body = json.dumps({"risk": "write", "argumentsHash": hash}).encode()
            await writer.append(AuditRecord("intent", *names, body=body))
            await writer.append(
                AuditRecord("outcome", *names, status="ok", body=b'{"ms":3.25,"bytes":9}')
            )
            await writer.append(AuditRecord("refused", "c2", "user:eve", reason="no_rule"))

    asyncio.run(write())
    path = find(None)
    assert isinstance(path, Path)
    return path


def test_list_shows_a_line_for_each_call(interlock, trail: Path):
    refused, ok = interlock("audit", "list").out.splitlines()

    assert refused.split()[1:] == ["c2", "user:eve", "-", "refused", "-", "no_rule"]
    assert ok.split()[1:] == ["c1", "user:anna", "crm:refund", "ok", "3.2", "ms"]


def test_list_as_json_has_the_call_objects_of_a_filter(interlock, trail: Path):
    (call,) = interlock("audit", "list", "--user", "anna", "--since", "1h", "--json").json

    assert call.pop("at").endswith("Z")
    assert call == {
        "call": "c1",
        "user": "user:anna",
        "key": "k1",
        "tool": "crm:refund",
        "risk": "write",
        "status": "ok",
        "ms": 3.25,
        "bytes": 9,
    }


def test_list_without_matches_prints_a_notice(interlock, trail: Path):
    ran = interlock("audit", "list", "--until", "2001-01-01")

    assert (ran.code, ran.out, ran.err) == (0, "", "no such calls\n")


@each_row(
    ("arguments", "error"),
    [
        (["list", "--status", "good"], "must be one of ok, tool_error"),
        (["list", "--since", "noon"], "'noon' is not a time such as 2026-11-22"),
        (["hash", "{"], "not JSON"),
        (["hash", "[1]"], "arguments must be a JSON object"),
    ],
)
def test_wrong_option_is_a_usage_error(interlock, arguments: list[str], error: str):
    ran = interlock("audit", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err


def test_show_prints_all_records_of_a_call(interlock, trail: Path):
    first, second = interlock("audit", "show", "c1", "--json").json
    lines = interlock("audit", "show", "c1").out.splitlines()

    assert (first["kind"], second["kind"]) == ("intent", "outcome")
    assert lines.count("") == 1
    assert "kind           intent" in lines
    assert (
        interlock("audit", "show", "c9").err == "error: no call 'c9': see `interlock audit list`\n"
    )


def test_export_prints_one_record_a_line_and_hash_finds_arguments_in_it(interlock, trail: Path):
    lines = interlock("audit", "export").out.splitlines()
    found = interlock("audit", "hash", '{"to": "x",  "amount": 80}').out.strip()

    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["started", "intent", "outcome", "refused", "stopped"]
    assert [line for line in lines if found in line] == [lines[1]]


def test_verify_of_a_whole_trail_names_its_size_and_time(interlock, trail: Path):
    ran = interlock("audit", "verify", "--head", COPY)

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("5 records of 1 writer, 20")
    assert ran.out.endswith(": whole\n")
    assert interlock("audit", "verify", "--json").json["whole"] is True


def test_verify_names_writer_and_record_of_a_change(interlock, trail: Path):
    with closing(sqlite3.connect(trail)) as database, database:
        database.execute("UPDATE audit SET \"user\" = 'user:eve' WHERE seq = 2")
        ((writer,),) = database.execute("SELECT writer FROM audit_heads")

    ran = interlock("audit", "verify")

    summary, problem = ran.out.splitlines()
    assert ran.code == 1
    assert summary.endswith(": 1 problem")
    text = "was changed, or does not follow the record before it"
    assert problem == f"writer {writer}, record 2: {text}"
    assert interlock("audit", "verify", "--json").json["problems"] == [
        {"writer": writer, "seq": 2, "text": text}
    ]


@pytest.mark.parametrize("body", ["'not json'", "x'ff'", "CAST(x'ff' AS TEXT)"])
def test_damaged_record_is_marked_and_all_others_are_shown(interlock, trail: Path, body: str):
    with closing(sqlite3.connect(trail)) as database, database:
        database.execute(f"UPDATE audit SET body = {body} WHERE seq = 2")

    refused, damaged = interlock("audit", "list").out.splitlines()
    shown = interlock("audit", "show", "c1").out.splitlines()
    exported = [json.loads(line) for line in interlock("audit", "export").out.splitlines()]
    verified = interlock("audit", "verify")

    assert refused.split()[1:] == ["c2", "user:eve", "-", "refused", "-", "no_rule"]
    assert damaged.endswith("crm:refund  ok       3.2 ms  damaged: body")
    assert shown[0].split() == ["damaged", '["body"]']
    assert [each.get("damaged") for each in exported] == [None, ["body"], None, None, None]
    assert (verified.code, verified.err) == (1, "")
    assert ", record 2: was changed" in verified.out


@pytest.mark.parametrize("ms", ['"x"', "null", "[]"])
def test_list_shows_a_call_whose_duration_is_not_a_number(interlock, trail: Path, ms: str):
    with closing(sqlite3.connect(trail)) as database, database:
        database.execute("UPDATE audit SET body = ? WHERE seq = 3", [f'{{"ms":{ms}}}'])

    ran = interlock("audit", "list")

    assert (ran.code, len(ran.out.splitlines())) == (0, 2)


def test_verify_shows_a_forged_writer_on_one_line_without_control_characters(
    interlock, trail: Path
):
    name = "\x1b[2J\n9 records of 1 writer: whole\u202e" + "x" * 1_000_000
    with closing(sqlite3.connect(trail)) as database, database:
        database.execute("UPDATE audit SET writer = ? WHERE seq = 2", [name])

    ran = interlock("audit", "verify")

    assert ran.code == 1
    assert len(ran.out) < 2_000
    assert not {"\x1b", "\u202e"} & {*ran.out}
    assert all("writer" in line and not line.startswith("9 ") for line in ran.out.splitlines())


def test_verify_finds_a_cut_trail_whose_head_lost_its_signature(interlock, trail: Path):
    with closing(sqlite3.connect(trail)) as database, database:
        database.execute("DELETE FROM audit WHERE seq > 3")
        database.execute(
            "UPDATE audit_heads SET seq = 3, signature = NULL,"
            " hash = (SELECT hash FROM audit WHERE seq = 3)"
        )
        ((writer,),) = database.execute("SELECT writer FROM audit_heads")

    ran = interlock("audit", "verify")

    assert ran.code == 1
    assert ran.out.splitlines()[1:] == [f"writer {writer}, record 3: the head has no signature"]


def test_verify_without_the_key_is_refused(interlock, trail: Path):
    (trail.parent / "gateway.key").unlink()

    ran = interlock("audit", "verify")

    assert (ran.code, ran.out) == (1, "")
    assert "is verified with the key that wrote it" in ran.err
    assert f"put that key into {trail.parent / 'gateway.key'}, or set INTERLOCK_KEY" in ran.err
    assert not (trail.parent / "gateway.key").exists()


def test_control_characters_of_a_client_reach_no_line_of_the_output(interlock, trail: Path):
    async def write() -> None:
        key = GatewayKey.load(folder_beside(None))
        async with open_trail(None, key, Audit()) as writer:
            tool = "crm:x\r\n2026 c1 forged\x1b[2J"
            await writer.append(AuditRecord("refused", "c3", tool=tool, reason="unknown"))

    asyncio.run(write())

    assert len(interlock("audit", "list").out.splitlines()) == 3
    assert len(interlock("audit", "export").out.splitlines()) == 8


def test_followed_export_prints_all_records_and_ends_at_once_on_a_signal(program, trail: Path):
    following = program("audit", "export", "--follow")
    lines = [following.stdout.readline() for _ in range(5)]
    assert [json.loads(line)["kind"] for line in lines][-1] == "stopped"

    following.send_signal(signal.SIGTERM)
    assert following.wait(5) == 128 + signal.SIGTERM
