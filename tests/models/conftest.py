"""What models have taught is remembered in a file of the test."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.models import learned


@pytest.fixture(autouse=True)
def learned_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache" / "models.json"
    monkeypatch.setattr(learned, "file", lambda: path)
    return path


@pytest.fixture(scope="session")
def cache() -> Iterator[Path]:
    """The folder in which the embedded model puts its weights together, once for all tests."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
