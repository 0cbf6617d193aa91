"""Where a database is, and what cannot be one."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from interlock.errors import StoreError
from interlock.store import ConversationStore
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("created_databases")


def test_folder_and_files_are_created_for_their_owner_only(tmp_path: Path):
    path = tmp_path / "new" / "conversations.db"
    modes = []

    async def look() -> None:
        async with ConversationStore.open(path) as store:
            assert store.location == str(path)
            await store.create()
            modes.extend(stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir())

    asyncio.run(look())

    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert modes == [0o600] * 3  # the database, its log and its shared memory
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.slow("fills a database")
def test_the_location_is_the_argument_else_the_variable_else_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def location(given: str | None = None) -> str:
        async with ConversationStore.open(given) as store:
            return store.location

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("INTERLOCK_DATABASE", raising=False)
    assert asyncio.run(location()) == f"{tmp_path}/data/interlock/conversations.db"
    monkeypatch.setenv("INTERLOCK_DATABASE", "")
    assert asyncio.run(location()) == f"{tmp_path}/data/interlock/conversations.db"
    monkeypatch.setenv("INTERLOCK_DATABASE", "~/set.db")
    assert asyncio.run(location()) == f"{tmp_path}/set.db"
    monkeypatch.chdir(tmp_path)
    assert asyncio.run(location("a?b #%41;c.db")) == f"{tmp_path}/a?b #%41;c.db"
    assert (tmp_path / "a?b #%41;c.db").exists()


@each_row(
    ("location", "words"),
    [
        ("mysql://host/db", r"a mysql:// database is not supported: give a path, or a postgresql"),
        (":memory:", "give a path instead of ':memory:'"),
        ("/proc/nothing/here.db", r"/proc/nothing/here.db cannot be created: "),
        ("/dev/null/here.db", r"/dev/null/here.db cannot be created: /dev/null is not a folder"),
        ("/", "/ is not a file: choose another location"),
        ("/dev/null", "/dev/null is not a file"),
    ],
)
async def test_an_unusable_location_is_refused_with_the_reason(location: str, words: str):
    with pytest.raises(StoreError, match=words):
        async with ConversationStore.open(location):
            pass
