"""A clock for all that waits in a toolbox."""

from __future__ import annotations

import pytest

from interlock.toolbox import failures, restarts, server_lists, upstream
from tests.support.clock import SetClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Return the clock, which only the test moves."""
    clock = SetClock()
    for module in (failures, restarts, server_lists, upstream):
        monkeypatch.setattr(module, "monotonic", clock)
    return clock
