"""The JSON object of a record: its columns and its body, without what is empty."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.store.audit.records import COLUMNS, as_object, stored_object
from tests.support.rows import each_row


@each_row("tenant", ["", "default"])  # what is stored now, and was before
def test_object_has_the_columns_in_order_and_the_body_before_the_hash(tenant: str):
    names = (tenant, "intent", "c1", "user:anna", "", "crm", "crm:refund", "", "")
    row = ("ab", 3, 1_800_000_000_123_456, *names, '{"risk":"write","bytes":9}', b"\x01\xff")

    assert list(as_object(row).items()) == [
        ("writer", "ab"),
        ("seq", 3),
        ("at", "2027-01-15T08:00:00.123Z"),
        ("tenant", "default"),
        ("kind", "intent"),
        ("call", "c1"),
        ("user", "user:anna"),
        ("server", "crm"),
        ("tool", "crm:refund"),
        ("risk", "write"),
        ("bytes", 9),
        ("hash", "01ff"),
    ]


def test_member_of_a_body_cannot_replace_a_column():
    row = (
        "ab",
        1,
        0,
        *["x"] * 4,
        "",
        *["x"] * 5,
        '{"user":"user:eve","hash":"00","writer":"cd"}',
        b"\x01",
    )

    shown = as_object(row)

    assert (shown["user"], shown["writer"], shown["hash"]) == ("x", "ab", "01")


WHOLE = ("ab", 3, 0, *["x"] * 9, '{"risk":"write"}', b"\x01")


def test_object_read_from_a_row_equals_the_written_object():
    assert stored_object(WHOLE) == as_object(WHOLE)


@each_row(
    ("position", "value", "shown"),
    [
        (0, b"\xff", "x'ff'"),
        (1, "abc", "abc"),
        (1, 10.5, "10.5"),
        (1, -1, "-1"),
        (2, "noon", "noon"),
        (6, b"", "x''"),
        (6, "user:\udcff", r"user:\xff"),
        (12, "not json", "not json"),
        (12, "[]", "[]"),
        (12, b"{}", "x'7b7d'"),
        (13, "x", "x"),
        (13, 5, "5"),
    ],
)
def test_damaged_row_is_shown_with_the_name_of_its_invalid_column(
    position: int, value: Any, shown: str
):
    row = (*WHOLE[:position], value, *WHOLE[position + 1 :])

    found = stored_object(row)

    assert found["damaged"] == [COLUMNS[position]]
    assert found[COLUMNS[position]] == shown
    assert "risk" not in found
    assert found["body"] == (shown if position == 12 else WHOLE[12])
    assert msgspec.json.encode(found)
