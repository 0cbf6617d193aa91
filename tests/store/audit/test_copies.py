"""The files that get a copy of each audit record, and of each signed end of a chain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.errors import ConfigError
from interlock.store.audit import copies
from interlock.store.audit.copies import AuditCopy
from interlock.store.audit.copy_reading import Mark, read_copy
from interlock.text.timestamps import now_micros, rfc3339

KEY = GatewayKey(bytes(range(32)))
ROW = (1_000_000, "t", "intent", "c1", "user:anna", "k1", "crm", "crm:refund", "", "")


def row(seq: int) -> tuple[object, ...]:
    return ("w", seq, *ROW, "{}", bytes([seq]) * 32)


async def written(folder: Path, *, has_records: bool = True) -> Path:
    """Write the records 1 to 4 and the end of a chain; return the file."""
    copy = AuditCopy(folder, KEY, has_records=has_records)
    copy.add_head("w", 0, bytes(32), 1_000_000)
    if has_records:
        copy.add_records([row(1), row(2)])
        copy.add_records([row(3), row(4)])
    copy.add_head("w", 4, bytes([4]) * 32, 1_000_000)
    await copy.close()
    assert copy.dropped == 0
    return folder / f"{str(rfc3339(now_micros()))[:10]}.jsonl"


async def test_each_record_is_a_line_of_json_for_its_owner_only(tmp_path: Path):
    file = await written(tmp_path / "copy")

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [each["seq"] for each in lines] == [0, 1, 2, 3, 4, 4]
    assert [each["kind"] for each in lines] == ["head", *["intent"] * 4, "head"]
    assert lines[1]["tool"] == "crm:refund"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    copy = read_copy([file.parent], KEY)
    assert copy.problems == []
    assert copy.marks == {"w": Mark(4, bytes([4]) * 32, lines[-1]["at"], True)}


async def test_a_copy_of_the_ends_only_has_no_record(tmp_path: Path):
    file = await written(tmp_path / "copy", has_records=False)

    copy = read_copy([file], KEY)
    assert len(file.read_bytes().splitlines()) == 2
    assert (copy.problems, copy.marks["w"].seq, copy.marks["w"].has_records) == ([], 4, False)


CHANGED = "was changed in the copy, or was not written with this key"
MOVED = "is missing or was moved before this one"
Lines = list[bytes]
CHANGES: dict[str, tuple[Callable[[Lines], Lines], list[tuple[int, str]]]] = {
    "a file before that expired": (lambda lines: lines[1:], []),
    "a line that is being written": (lambda lines: [*lines, b"{"], []),
    "garbage": (lambda lines: [*lines[:2], b"x\n", *lines[3:]], [(2, "is missing in the copy")]),
    "removed": (
        lambda lines: [*lines[:2], *lines[4:]],
        [(2, "is missing in the copy, with all records before 4")],
    ),
    "repeated": (lambda lines: [*lines, lines[-1]], [(4, MOVED)]),
    "changed": (
        lambda lines: [*lines[:2], lines[2].replace(b":anna", b":eve"), *lines[3:]],
        [(2, CHANGED)],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_each_change_of_a_copy_is_named(tmp_path: Path, name: str):
    change, problems = CHANGES[name]
    file = await written(tmp_path / "copy")
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))

    found = read_copy([file], KEY).problems

    assert [seq for _, seq, _ in found] == [seq for seq, _ in problems], found
    assert all(text in told for (_, _, told), (_, text) in zip(found, problems, strict=True))


async def test_a_line_of_another_key_is_named_and_another_file_refused(tmp_path: Path):
    file = await written(tmp_path / "copy")
    found = read_copy([file], GatewayKey.random()).problems
    assert {text for _, _, text in found} == {CHANGED}

    file.write_text("not a copy\n")
    with pytest.raises(ConfigError, match="is not a copy of an audit trail"):
        read_copy([file], KEY)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_copy([tmp_path / "missing"], KEY)


def test_files_of_expired_days_are_deleted(tmp_path: Path):
    for day in ("2026-01-01", "2026-01-02", "2026-01-03"):
        (tmp_path / f"{day}.jsonl").touch()
    (tmp_path / "notes.txt").touch()

    copies.purge(tmp_path, 1_767_312_000_000_000)  # 2026-01-02

    left = sorted(each.name for each in tmp_path.iterdir())
    assert left == ["2026-01-02.jsonl", "2026-01-03.jsonl", "notes.txt"]


async def test_records_that_cannot_be_written_are_counted_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "file").touch()
    copy = AuditCopy(tmp_path / "file" / "copy", KEY)
    for seq in (1, 2, 3):
        copy.add_records([row(seq)])
    await copy.close()

    assert copy.dropped == 3
    assert len(caplog.messages) == 1
    assert "copy cannot be written: Not a directory" in caplog.messages[0]


async def test_records_that_wait_for_a_disk_that_hangs_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(copies, "MAX_WAITING", 10)
    copy = AuditCopy(tmp_path / "copy", KEY)
    copy.add_records([row(1), row(2)])
    await copy.close()

    assert copy.dropped == 2
