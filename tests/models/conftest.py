"""What models have taught is remembered in a file of the test."""

from pathlib import Path

import pytest

from interlock.models import learned


@pytest.fixture(autouse=True)
def learned_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache" / "models.json"
    monkeypatch.setattr(learned, "file", lambda: path)
    return path
