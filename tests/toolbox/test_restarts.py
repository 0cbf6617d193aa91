"""When a server may be started again."""

from __future__ import annotations

from interlock.toolbox.pool import SHARED
from interlock.toolbox.restarts import (
    LONGEST_BACKOFF,
    MAX_STARTS,
    PER_CALL,
    STARTS_WINDOW,
    Restarts,
    RestartsByKey,
)
from tests.support.clock import SetClock


def test_first_start_may_begin_at_once():
    assert Restarts().wait(now=5.0) <= 0


def test_failed_starts_double_the_pause_up_to_a_limit():
    restarts, now, pauses = Restarts(), 0.0, []
    for _ in range(9):
        restarts.failed(now, "refused")
        pauses.append(restarts.wait(now, limited=False))
        now += pauses[-1]

    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0]
    assert pauses[-1] == LONGEST_BACKOFF


def test_success_resets_the_pause():
    restarts = Restarts()
    for now in (0.0, 1.0, 2.0):
        restarts.failed(now, "refused")
    restarts.succeeded()
    restarts.failed(10.0, "refused")

    assert restarts.wait(10.0) == 0.5


def test_a_lost_connection_may_start_again_at_once():
    restarts = Restarts()
    restarts.failed(0.0, "refused")
    restarts.lost(0.1, "exited")

    assert restarts.wait(0.1) <= 0


def test_starts_beyond_the_limit_wait_for_the_end_of_the_window():
    restarts = Restarts()
    for now in range(MAX_STARTS):
        assert restarts.wait(float(now)) <= 0
        restarts.lost(float(now), "exited")

    assert restarts.wait(10.0) == STARTS_WINDOW - 10.0
    assert restarts.wait(STARTS_WINDOW) <= 0


def test_connections_with_different_keys_wait_for_their_own_failures(clock: SetClock):
    restarts = RestartsByKey("s")
    restarts.of(("user", "anna")).failed(clock.now, "refused")

    waits = {key: restarts.wait(key) for key in (("user", "anna"), ("user", "berta"), SHARED)}
    assert waits == {("user", "anna"): 0.5, ("user", "berta"): 0.0, SHARED: 0.0}


def test_calls_with_a_connection_each_wait_for_the_pause_but_not_for_the_window(clock: SetClock):
    restarts = RestartsByKey("s")
    for _ in range(MAX_STARTS):
        restarts.of(PER_CALL).lost(clock.now, "exited")
    assert restarts.wait(("call", "anna", "1")) == 0.0

    restarts.of(PER_CALL).failed(clock.now, "refused")
    assert restarts.wait(("call", "anna", "2")) == 0.5
