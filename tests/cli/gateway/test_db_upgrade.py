"""`interlock db upgrade` and `check`: operators see what a database lacks, and add it."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from interlock.store.database.schema_version import REVISION
from tests.store import later
from tests.store.releases.contents import FOLDER, KEY


@pytest.fixture
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The database that was kept of the first release."""
    place = home / "kept.db"
    place.write_bytes(gzip.decompress((FOLDER / "0.2.0.db.gz").read_bytes()))
    monkeypatch.setenv("INTERLOCK_DATABASE", str(place))
    monkeypatch.setenv("INTERLOCK_KEY", bytes(range(32)).hex())
    return place


def test_upgrade_shows_first_what_it_adds(interlock, place: Path, monkeypatch: pytest.MonkeyPatch):
    later.expand(monkeypatch.setattr)
    before = place.read_bytes()

    shown = interlock("db", "upgrade", "--dry-run")
    assert shown.out.splitlines()[-3:] == later.ADDED
    assert shown.err == f"{place} would be upgraded: version {later.REVISION}\n"
    assert place.read_bytes() == before
    checked = interlock("db", "check")
    assert (checked.code, checked.out.splitlines()[0]) == (
        1,
        f"it is older than this interlock ({later.REVISION}): run `interlock db upgrade`",
    )

    done = interlock("db", "upgrade")
    assert (done.out, done.code) == (shown.out, 0)
    assert done.err == f"{place} was upgraded: version {later.REVISION}\n"
    again = interlock("db", "upgrade")
    assert (again.out, again.err) == ("", f"{place} needs nothing: version {later.REVISION}\n")
    assert interlock("db", "check") == (0, "", f"{place}: version {later.REVISION}, problems: 0\n")


def test_upgrade_of_a_newer_database_states_its_version(
    interlock, place: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        later.expand(patch.setattr)
        interlock("db", "upgrade")

    for options in ((), ("--dry-run",)):
        ran = interlock("db", "upgrade", *options)
        assert ran == (0, "", f"{place} needs nothing: version {later.REVISION}\n")


def test_upgrade_of_a_damaged_file_says_so(interlock, place: Path):
    interlock("db", "upgrade")
    content = place.read_bytes()
    place.write_bytes(content[:8_192] + b"\xff" * (len(content) - 8_192))

    for options in ((), ("--dry-run",)):
        ran = interlock("db", "upgrade", *options)
        assert (ran.code, ran.out) == (1, "")
        assert "is damaged" in ran.err


def test_check_fails_with_one_line_for_each_problem(
    interlock, place: Path, monkeypatch: pytest.MonkeyPatch
):
    interlock("db", "upgrade")
    with closing(sqlite3.connect(place)) as database:
        database.execute("DROP INDEX approvals_open")
    monkeypatch.delenv("INTERLOCK_KEY")

    ran = interlock("db", "check")

    assert ran.code == 1
    assert ran.out.splitlines() == [
        "index approvals_open is missing: run `interlock db upgrade`",
        f"the gateway key {KEY.id}… is missing: put it into {place.parent / 'gateway.key'},"
        " or set INTERLOCK_KEY",
    ]
    assert ran.err == f"{place}: version {REVISION}, problems: 2\n"
