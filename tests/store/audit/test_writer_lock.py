"""A writer is alive as long as its process is, whoever looks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from interlock.store.audit import writer_lock
from interlock.store.audit.writer_lock import WriterLock

HOLD = """
import sys
from pathlib import Path
from interlock.store.audit.writer_lock import WriterLock
lock = WriterLock(Path(sys.argv[1]), "ab")
print("held", flush=True)
sys.stdin.read()
"""


def test_writer_is_alive_until_it_releases_its_lock(tmp_path: Path):
    database = tmp_path / "a.db"
    lock = WriterLock(database, "ab")

    assert writer_lock.is_alive(database, "ab")
    assert not writer_lock.is_alive(database, "cd")
    lock.release()
    assert not writer_lock.is_alive(database, "ab")
    assert [*tmp_path.iterdir()] == []


def test_killed_writer_is_dead_and_its_file_can_be_removed(tmp_path: Path):
    database = tmp_path / "a.db"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert writer_lock.is_alive(database, "ab")
        process.kill()
        process.wait()

    assert not writer_lock.is_alive(database, "ab")
    taken = WriterLock.of_dead(database, "ab")
    assert taken is not None
    assert WriterLock.of_dead(database, "ab") is None
    taken.release()
    assert [*tmp_path.iterdir()] == []
