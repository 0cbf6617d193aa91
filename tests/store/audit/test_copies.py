"""The file that gets a copy of each audit record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from interlock.store.audit import copies as audit_copy_module
from interlock.store.audit.copies import AuditCopy

ROW = ("w", 1, 1_000_000, "t", "intent", "c1", "user:anna", "k1", "crm", "crm:refund", "", "")


def row(seq: int) -> tuple[object, ...]:
    writer, _, *rest = ROW
    return (writer, seq, *rest, "{}", b"\0" * 32)


async def test_each_record_is_a_line_of_json_for_its_owner_only(tmp_path: Path):
    file = tmp_path / "audit.jsonl"
    copy = AuditCopy(file)
    copy.add_records([row(1), row(2)])
    copy.add_checkpoint("w", 2, b"\1", b"\2", 1_000_000)
    await copy.close()

    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [each["seq"] for each in lines] == [1, 2, 2]
    assert lines[0]["tool"] == "crm:refund"
    assert (lines[2]["kind"], lines[2]["signature"]) == ("checkpoint", "02")
    assert file.stat().st_mode & 0o777 == 0o600
    assert copy.dropped == 0


async def test_records_that_cannot_be_written_are_counted_and_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    copy = AuditCopy(tmp_path / "missing" / "audit.jsonl")
    for seq in (1, 2, 3):
        copy.add_records([row(seq)])
    await copy.close()

    assert copy.dropped == 3
    assert len(caplog.messages) == 1
    assert "audit.jsonl cannot be written: No such file" in caplog.messages[0]


async def test_number_of_records_waiting_for_a_hanging_disk_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(audit_copy_module, "MAX_WAITING", 10)
    copy = AuditCopy(tmp_path / "audit.jsonl")
    copy.add_records([row(1), row(2)])
    await copy.close()

    assert copy.dropped == 2
