"""What programs of a version may do with tables of other versions."""

from __future__ import annotations

from interlock.store.database.schema_version import COMPATIBLE_FROM, FIRST, REVISION, standing
from interlock.store.database.tables import versions
from tests.support.rows import each_row


@each_row(
    "revision, since, expected",
    [
        ("0021", "0020", "current"),
        ("0021", None, "current"),
        ("0020", "0020", "older"),
        ("0020", None, "older"),
        ("0022", "0020", "newer"),
        ("0022", "0021", "newer"),
        ("0022", "0022", "too new"),
        ("0022", None, "too new"),
        ("0022", "dev-1", "too new"),
        ("0100", "0099", "too new"),
        ("0019", "0019", "unreleased"),
        ("dev-0123456789abcdef", "0020", "unreleased"),
        (None, None, "unreleased"),
    ],
)
def test_program_uses_newer_tables_only_if_they_state_so(
    revision: str | None, since: str | None, expected: str
):
    assert standing(revision, since, "0021") == expected


def test_versions_are_numbers_in_order():
    assert FIRST <= COMPATIBLE_FROM <= REVISION
    assert REVISION.isdecimal()
    assert len(REVISION) <= versions.c.version_num.type.length
