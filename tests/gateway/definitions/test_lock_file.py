"""The lock file: written sorted, read back, and refused where a hash does not fit."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from interlock.errors import ConfigError
from interlock.gateway.definitions.lock_file import LockFile, read, write
from interlock.store.pin import Pin, hash_of
from tests.support.rows import each_row

TOOL = {"name": "refund", "description": "Refund an order."}


def pin(name: str, *, state: str = "accepted", accepted: bool = True) -> Pin:
    definition = {**TOOL, "name": name}
    return Pin(
        server="crm",
        kind="tool",
        name=name,
        state=state,  # type: ignore[arg-type] # one of the words
        hash=hash_of(definition) if accepted else None,
        definition=msgspec.json.encode(definition).decode() if accepted else None,
        risk="write",
    )


def test_accepted_definitions_are_written_sorted_and_read_back(tmp_path: Path):
    file = tmp_path / "interlock.lock"

    assert write(file, [pin("b"), pin("new", state="new", accepted=False), pin("a")]) == 2

    text = file.read_text()
    assert text.index('"a"') < text.index('"b"')
    tools = [each for each in read(file) if each.kind == "tool"]
    assert [(each.name, each.hash, each.risk) for each in tools] == [
        ("a", pin("a").hash, "write"),
        ("b", pin("b").hash, "write"),
    ]


def test_a_definition_that_was_edited_without_its_hash_is_refused(tmp_path: Path):
    file = tmp_path / "interlock.lock"
    write(file, [pin("refund")])
    file.write_text(file.read_text().replace("an order", "every order"))

    with pytest.raises(ConfigError, match="the hash of crm:refund is not that of its definition"):
        read(file)


@each_row("content", ["", "{}", '{"version": 2, "servers": {}}', "[" * 10_000])
def test_file_without_a_lock_is_refused(tmp_path: Path, content: str):
    file = tmp_path / "interlock.lock"
    file.write_text(content)

    with pytest.raises(ConfigError, match="is not a lock file"):
        read(file)


def test_a_changed_file_is_read_again_and_a_missing_one_is_an_error(tmp_path: Path):
    file = tmp_path / "interlock.lock"
    write(file, [pin("a")])
    lock = LockFile(file)
    assert ("tool", "a") in lock.pins_of("crm")
    assert lock.pins_of("other") == {}
    assert not lock.has_changed()

    write(file, [pin("a"), pin("b")])

    assert lock.has_changed()
    assert ("tool", "b") in lock.pins_of("crm")
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        lock.pins_of("crm")


def test_format_and_source_of_a_definition_are_kept_and_the_first_format_is_not_written(
    tmp_path: Path,
):
    file = tmp_path / "interlock.lock"
    write(file, [pin("find"), replace(pin("refund"), format=2, source="s")])

    found = [(each.format, each.source) for each in read(file) if each.kind == "tool"]

    assert found == [(1, None), (2, "s")]
    assert [file.read_text().count(each) for each in ('"format"', '"source"')] == [1, 1]
