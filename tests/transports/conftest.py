"""How long tests of processes wait."""

from __future__ import annotations

import pytest

from interlock.transports import process


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch, nothing_is_left: object) -> None:
    """Wait long enough for processes that exit by themselves, even on a busy machine."""
    monkeypatch.setattr(process, "EOF_PATIENCE", 60.0)
    monkeypatch.setattr(process, "TERM_PATIENCE", 60.0)
