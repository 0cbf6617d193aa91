"""The JSON object of a record: its columns and its body, without what is empty."""

from __future__ import annotations

import pytest

from interlock.store.audit_records import as_object


@pytest.mark.parametrize("tenant", ["", "default"])  # what is stored now, and was before
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
    row = ("ab", 1, 0, *["x"] * 9, '{"user":"user:eve","hash":"00","writer":"cd"}', b"\x01")

    shown = as_object(row)

    assert (shown["user"], shown["writer"], shown["hash"]) == ("x", "ab", "01")
