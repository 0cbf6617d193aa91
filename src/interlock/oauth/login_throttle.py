"""How often a person is asked: not again and again for what was refused."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

REMEMBERED = 300.0  # seconds
MAX_LOGINS = 3  # in that time, for the same
MAX_REMEMBERED = 100  # of all; a machine logs in as often as it is refused


class _Attempt(Struct, frozen=True):
    at: float
    issuer: str
    scopes: frozenset[str]
    failure: str


class LoginThrottle:
    """The logins of the last minutes. `now` is a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._made: list[_Attempt] = []

    def add(self, issuer: str, scopes: Collection[str], failure: str = "", *, now: float) -> None:
        """Remember a login, and why it failed; "" when it gave a token."""
        attempt = _Attempt(now, issuer, frozenset(scopes), failure)
        self._made = [*self._made, attempt][-MAX_REMEMBERED:]

    def blocked_because(
        self, issuer: str, scopes: Collection[str], *, step_up: bool, now: float
    ) -> str | None:
        """Say why nobody is to be asked now, or None.

        Args:
            issuer: Who would ask.
            scopes: What for.
            step_up: A token is there, and its scopes are not enough.
            now: Monotonic clock, seconds.
        """
        wanted = frozenset(scopes)
        made = [each for each in self._recent(now) if each.issuer == issuer]
        failures = [each.failure for each in made if each.failure and each.scopes == wanted]
        if failures:
            return f"{failures[-1]}; nobody is asked again for {REMEMBERED / 60:.0f} minutes"
        if step_up and any(wanted <= each.scopes for each in made):
            return "they were asked for, and are not enough"
        if sum(each.scopes == wanted for each in made) >= MAX_LOGINS:
            tokens = f"the tokens of its own authorization server, after {MAX_LOGINS} logins"
            return f"it refuses {tokens}"
        return None

    def _recent(self, now: float) -> list[_Attempt]:
        return [each for each in self._made if now - each.at < REMEMBERED]
