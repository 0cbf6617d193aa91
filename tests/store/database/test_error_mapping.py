"""Errors of databases and the errors that are raised for them."""

from __future__ import annotations

from interlock.errors import StoreCorrupt, StoreError, StoreLocked
from interlock.store.database.error_mapping import damage_error, store_error
from tests.support.rows import each_row


@each_row(
    ("sqlstate", "kind", "words"),
    [
        ("53100", StoreError, "the disk is full"),
        ("53300", StoreError, "out of connections or memory"),
        ("57014", StoreLocked, "took too long"),
        ("57P01", StoreError, "has closed the connection"),
        ("XX001", StoreCorrupt, "is damaged"),
        ("22021", StoreError, "PostgreSQL error 22021"),
    ],
)
def test_store_error_describes_a_sqlstate_without_the_servers_text(sqlstate, kind, words):
    class Failed(Exception):
        pass

    failed = Failed("hunter2")
    failed.sqlstate = sqlstate
    error = store_error(failed, "PostgreSQL db")

    assert type(error) is kind
    assert words in str(error)
    assert "hunter2" not in str(error)


def test_store_error_names_the_type_of_an_error_without_a_code():
    assert str(store_error(ValueError("hunter2"), "x.db")) == "x.db failed: ValueError"


@each_row(
    ("verdict", "kind"),
    [
        ("Tree 5 page 2: unable to get the page. error code=266", StoreError),
        ("Tree 5 page 2: unable to get the page. error code=11", StoreCorrupt),
        ("row 1 missing from index conversations_owner_updated", StoreCorrupt),
    ],
)
def test_damage_error_has_the_kind_that_the_integrity_check_shows(
    verdict: str, kind: type[StoreError]
):
    assert type(damage_error(verdict, "x.db")) is kind
