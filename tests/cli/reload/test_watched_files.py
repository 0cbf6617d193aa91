"""Which changes of files are noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.cli.reload import watched_files
from interlock.cli.reload.watched_files import WatchedFiles
from tests.support.rows import each_row


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_files, "PAUSE", 0.0)
    monkeypatch.setattr(watched_files, "_SHARE", 0)


def touch(path: Path) -> None:
    path.write_text(path.read_text() + "\n" if path.exists() else "")


@each_row(
    ("change", "is_noticed"),
    [
        (lambda folder: touch(folder / "app/server.py"), True),
        (lambda folder: touch(folder / "app/neighbour.py"), True),
        (lambda folder: touch(folder / "app/new.py"), True),
        (lambda folder: touch(folder / "lib/imported.py"), True),
        (lambda folder: (folder / "lib/imported.py").unlink(), True),
        (lambda folder: (folder / "new.py").replace(folder / "app/server.py"), True),
        (lambda folder: touch(folder / "lib/other.py"), False),
        (lambda folder: touch(folder / "app/notes.txt"), False),
    ],
)
async def test_files_of_the_folder_and_imported_files_are_watched(
    tmp_path: Path, change: Callable[[Path], object], is_noticed: bool
):
    for name in ("app", "lib"):
        (tmp_path / name).mkdir(exist_ok=True)
    for name in ("app/server", "app/neighbour", "lib/imported", "lib/other", "new"):
        (tmp_path / f"{name}.py").write_text("")
    files = WatchedFiles(tmp_path / "app/server.py")
    files.add([str(tmp_path / "lib/imported.py")])
    waiting = asyncio.create_task(files.changed())
    await turns()
    assert not waiting.done()

    change(tmp_path)
    await turns()

    assert waiting.done() is is_noticed
    waiting.cancel()


async def test_file_is_loaded_once_it_stops_changing(tmp_path: Path):
    path = tmp_path / "server.py"
    path.write_text("")
    waiting = asyncio.create_task(WatchedFiles(path).changed())
    for _ in range(20):
        path.write_text(path.read_text() + "x = 1\n")
        await asyncio.sleep(0)
        assert not waiting.done()
    await turns()

    assert waiting.done()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)
