"""Atomic replacement of files, and what a caller learns when it fails."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock import durable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "notes.json"
    path.write_bytes(b"old")
    return path


def is_folder(descriptor: int) -> bool:
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


@pytest.fixture(params=[0o000, 0o077], ids=["no umask", "umask 077"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_replaced_file_has_its_mode_and_leaves_no_temporary_file(path: Path) -> None:
    durable.replace(path, b"new", 0o644)
    durable.replace(path.with_name("other"), b"secret")

    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == {
        "notes.json": b"new",
        "other": b"secret",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE(path.with_name("other").stat().st_mode) == 0o600


def test_symbolic_link_is_replaced_not_its_target(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)

    durable.replace(link, b"new")

    assert not link.is_symlink()
    assert (link.read_bytes(), path.read_bytes()) == (b"new", b"old")


def test_open_old_file_stays_readable(path: Path) -> None:
    with path.open("rb") as reader:
        durable.replace(path, b"new")

        assert reader.read() == b"old"


def test_file_is_synced_before_the_rename_and_the_folder_after_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def sync(descriptor: int) -> None:
        seen.append((is_folder(descriptor), os.fstat(descriptor).st_size, path.read_bytes()))

    monkeypatch.setattr(os, "fsync", sync)
    durable.replace(path, b"newer")

    (file, folder) = seen
    assert file == (False, 5, b"old")
    assert (folder[0], folder[2]) == (True, b"newer")


@pytest.mark.parametrize("call", ["fchmod", "fsync", "replace"])
def test_failed_write_leaves_the_old_file_and_no_temporary_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path if call == "replace" else os, call, fail)

    with pytest.raises(OSError, match="No space left"):
        durable.replace(path, b"new")

    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("call", ["open", "fsync"])
def test_failed_folder_sync_raises_not_synced(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    to_open, to_sync = os.open, os.fsync

    def opened(path: Path, flags: int, *rest: int, **named: int) -> int:
        if flags & os.O_DIRECTORY:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return to_open(path, flags, *rest, **named)

    def synced(descriptor: int) -> None:
        if is_folder(descriptor):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        to_sync(descriptor)

    monkeypatch.setattr(os, call, opened if call == "open" else synced)

    with pytest.raises(durable.NotSynced) as raised:
        durable.replace(path, b"new")

    assert str(raised.value) == (
        f"{path} is written, but the disk may not keep it (Permission denied): check the disk"
    )
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]
