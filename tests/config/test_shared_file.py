import os
import stat
from pathlib import Path

import pytest

from interlock.config import shared_file
from interlock.errors import ConfigError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "notes.json"
    path.write_bytes(b"old")
    return path


def test_read_of_an_unreadable_file_names_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        shared_file.read(tmp_path)
    with pytest.raises(ConfigError, match=r"gone\.json cannot be read: No such file"):
        shared_file.read(tmp_path / "gone.json")


def test_read_refuses_a_file_over_one_mebibyte(path: Path) -> None:
    path.write_bytes(b"x" * shared_file.MAX_FILE_BYTES)
    assert len(shared_file.read(path)) == 1_048_576

    with pytest.raises(ConfigError, match="/dev/zero is larger than 1,048,576 bytes"):
        shared_file.read(Path("/dev/zero"))


def test_edit_creates_file_and_folder_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "notes.json"
    shared_file.edit(path, lambda: b"content")

    assert path.read_bytes() == b"content"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_edit_keeps_the_mode_and_leaves_no_other_file(path: Path) -> None:
    path.chmod(0o640)
    shared_file.edit(path, lambda: b"new")

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert list(path.parent.iterdir()) == [path]


def test_edit_changes_nothing_if_the_content_cannot_be_made(path: Path) -> None:
    def content() -> bytes:
        raise ConfigError("nothing to write")

    with pytest.raises(ConfigError, match="nothing to write"):
        shared_file.edit(path, content)

    assert path.read_bytes() == b"old"


def test_edit_that_cannot_write_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"notes.json cannot be written: No space left on device"):
        shared_file.edit(path, lambda: b"new")

    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_edit_reports_a_folder_that_cannot_be_synced_and_does_not_retry(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []

    def failing(descriptor: int) -> None:
        synced.append(stat.S_ISDIR(os.fstat(descriptor).st_mode))
        if synced[-1]:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(ConfigError) as raised:
        shared_file.edit(path, lambda: b"new")

    assert str(raised.value) == (
        f"{path} is written, but the disk may not keep it (Input/output error): check the disk"
    )
    assert path.read_bytes() == b"new"
    assert synced == [False, True]
    assert list(path.parent.iterdir()) == [path]


def test_edit_refuses_a_folder_that_cannot_be_created(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"n\.json cannot be written: Not a directory"):
        shared_file.edit(path / "folder" / "n.json", lambda: b"new")


def test_edit_fails_if_a_lock_is_never_released(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_file, "LOCK_SECONDS", 0.0)

    def content() -> bytes:
        shared_file.edit(path, lambda: b"inner")
        return b"outer"

    with pytest.raises(ConfigError, match=r"another process keeps .* locked"):
        shared_file.edit(path, content)
    assert path.read_bytes() == b"old"
