"""How often a person is asked."""

from __future__ import annotations

from interlock.oauth.login_throttle import MAX_LOGINS, MAX_REMEMBERED, REMEMBERED, LoginThrottle

AS = "https://as.example"


def test_a_person_who_was_not_asked_yet_can_be_asked():
    assert LoginThrottle().blocked_because(AS, {"a"}, step_up=True, now=0.0) is None


def test_who_said_no_is_not_asked_the_same_again_for_five_minutes():
    attempts = LoginThrottle()
    attempts.add(AS, {"a"}, "they said no", now=0.0)

    blocked_because = attempts.blocked_because(AS, {"a"}, step_up=False, now=REMEMBERED - 1)
    assert blocked_because == "they said no; nobody is asked again for 5 minutes"
    assert attempts.blocked_because(AS, {"a"}, step_up=False, now=REMEMBERED) is None


def test_the_last_reason_is_the_one_that_is_told():
    attempts = LoginThrottle()
    attempts.add(AS, {"a"}, "they said no", now=0.0)
    attempts.add(AS, {"a"}, "they said never", now=1.0)

    blocked_because = attempts.blocked_because(AS, {"a"}, step_up=False, now=2.0)
    assert str(blocked_because).startswith("they said never; ")


def test_who_said_no_can_be_asked_something_else():
    attempts = LoginThrottle()
    attempts.add(AS, {"a"}, "they said no", now=0.0)

    assert attempts.blocked_because(AS, {"a", "b"}, step_up=False, now=1.0) is None
    assert attempts.blocked_because("https://other.example", {"a"}, step_up=False, now=1.0) is None


def test_scopes_that_were_granted_and_are_not_enough_are_not_asked_for_again():
    attempts = LoginThrottle()
    attempts.add(AS, {"a", "b"}, now=0.0)

    assert "are not enough" in str(attempts.blocked_because(AS, {"a"}, step_up=True, now=1.0))
    assert attempts.blocked_because(AS, {"a", "c"}, step_up=True, now=1.0) is None
    assert attempts.blocked_because(AS, {"a"}, step_up=True, now=REMEMBERED) is None


def test_a_server_that_refuses_every_token_asks_for_three_logins_and_no_more():
    attempts = LoginThrottle()
    for login in range(MAX_LOGINS):
        assert attempts.blocked_because(AS, {"a"}, step_up=False, now=float(login)) is None
        attempts.add(AS, {"a"}, now=float(login))

    blocked_because = attempts.blocked_because(AS, {"a"}, step_up=False, now=3.0)
    assert (
        blocked_because == "it refuses the tokens of its own authorization server, after 3 logins"
    )


def test_logins_for_other_scopes_are_not_counted():
    attempts = LoginThrottle()
    for login in range(MAX_LOGINS):
        attempts.add(AS, {str(login)}, now=float(login))

    assert attempts.blocked_because(AS, {"a"}, step_up=False, now=3.0) is None


def test_a_machine_that_is_refused_all_the_time_is_not_remembered_without_end():
    """R-118."""
    attempts = LoginThrottle()
    for login in range(10 * MAX_REMEMBERED):
        attempts.add(AS, {str(login)}, now=login / 100)

    assert len(attempts._made) == MAX_REMEMBERED
    last = {str(10 * MAX_REMEMBERED - 1)}
    assert "are not enough" in str(attempts.blocked_because(AS, last, step_up=True, now=10.0))
