"""A limit on how often logins may start, so that a refused login is not repeated at once."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

WINDOW = 300.0  # seconds for which a login counts towards the limit
MAX_LOGINS = 3  # logins within `WINDOW` for the same issuer and scopes
NOT_ENOUGH = (
    "these scopes were requested already and are not enough; if it needs others, request them with "
    "--scope or as scopes in the configuration"
)
MAX_RECORDED = 100  # logins that are remembered; a program without a user may start many


class _Login(Struct, frozen=True):
    at: float
    issuer: str
    scopes: frozenset[str]
    failure: str


class LoginThrottle:
    """The logins of the last `WINDOW` seconds. `now` is the time by a monotonic clock."""

    def __init__(self) -> None:
        self._logins: list[_Login] = []

    def add(self, issuer: str, scopes: Collection[str], failure: str = "", *, now: float) -> None:
        login = _Login(now, issuer, frozenset(scopes), failure)
        self._logins = [*self._logins, login][-MAX_RECORDED:]

    def blocked_because(
        self, issuer: str, scopes: Collection[str], *, step_up: bool, now: float
    ) -> str | None:
        """Return why a login must not start now; None if the login may start.

        Args:
            issuer: The authorization server at which the user would log in.
            scopes: The scopes that the login would request.
            step_up: Whether there is a token, but its scopes are not sufficient.
            now: The time by a monotonic clock, in seconds.
        """
        requested = frozenset(scopes)
        recent = [each for each in self._recent(now) if each.issuer == issuer]
        failures = [each.failure for each in recent if each.failure and each.scopes == requested]
        if failures:
            return f"{failures[-1]}; the next try is possible in {WINDOW / 60:.0f} minutes"
        if step_up and any(requested <= each.scopes for each in recent):
            return NOT_ENOUGH
        if sum(each.scopes == requested for each in recent) >= MAX_LOGINS:
            tokens = f"the tokens of its own authorization server, after {MAX_LOGINS} logins"
            return f"it refuses {tokens}"
        return None

    def _recent(self, now: float) -> list[_Login]:
        return [each for each in self._logins if now - each.at < WINDOW]
