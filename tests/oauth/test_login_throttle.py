"""How often a user is asked to log in."""

from __future__ import annotations

from interlock.oauth.login_throttle import MAX_LOGINS, MAX_RECORDED, WINDOW, LoginThrottle

AS = "https://as.example"


def blocked(throttle: LoginThrottle, *scopes: str, now: float, step_up: bool = False) -> str | None:
    return throttle.blocked_because(AS, scopes, step_up=step_up, now=now)


def test_the_first_login_is_not_blocked():
    assert blocked(LoginThrottle(), "a", step_up=True, now=0.0) is None


def test_a_failed_login_blocks_the_same_scopes_for_five_minutes():
    throttle = LoginThrottle()
    throttle.add(AS, {"a"}, "access_denied", now=0.0)

    reason = blocked(throttle, "a", now=WINDOW - 1)

    assert reason == "access_denied; the next try is possible in 5 minutes"
    assert blocked(throttle, "a", now=WINDOW) is None


def test_the_reason_of_the_last_failure_is_returned():
    throttle = LoginThrottle()
    throttle.add(AS, {"a"}, "access_denied", now=0.0)
    throttle.add(AS, {"a"}, "server_error", now=1.0)

    assert str(blocked(throttle, "a", now=2.0)).startswith("server_error; ")


def test_a_failed_login_does_not_block_other_scopes_or_issuers():
    throttle = LoginThrottle()
    throttle.add(AS, {"a"}, "access_denied", now=0.0)

    assert blocked(throttle, "a", "b", now=1.0) is None
    assert throttle.blocked_because("https://b.example", {"a"}, step_up=False, now=1.0) is None


def test_a_step_up_for_scopes_that_were_requested_already_is_blocked():
    throttle = LoginThrottle()
    throttle.add(AS, {"a", "b"}, now=0.0)

    assert "are not enough" in str(blocked(throttle, "a", step_up=True, now=1.0))
    assert blocked(throttle, "a", "c", step_up=True, now=1.0) is None
    assert blocked(throttle, "a", step_up=True, now=WINDOW) is None


def test_a_fourth_login_for_the_same_scopes_is_blocked():
    throttle = LoginThrottle()
    for login in range(MAX_LOGINS):
        assert blocked(throttle, "a", now=float(login)) is None
        throttle.add(AS, {"a"}, now=float(login))

    reason = blocked(throttle, "a", now=3.0)

    assert reason == "it refuses the tokens of its own authorization server, after 3 logins"


def test_logins_for_other_scopes_are_not_counted():
    throttle = LoginThrottle()
    for login in range(MAX_LOGINS):
        throttle.add(AS, {str(login)}, now=float(login))

    assert blocked(throttle, "a", now=3.0) is None


def test_only_the_latest_logins_are_recorded():
    """R-118."""
    throttle = LoginThrottle()
    for login in range(MAX_RECORDED + 1):
        throttle.add(AS, {str(login)}, now=login / 100)

    assert blocked(throttle, "0", step_up=True, now=10.0) is None
    assert "are not enough" in str(blocked(throttle, "1", step_up=True, now=10.0))
