"""Which scopes to ask for. Spec 2026-07-28: basic/authorization, "Scope Selection Strategy"."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.oauth.challenges import Challenge
from interlock.oauth.discovery import Discovery

MAX_REMEMBERED = 1_000  # characters of scopes that are kept for the next login
MAX_ASKED = 500  # scopes at once; a server may want another one each time
OFFLINE = "offline_access"


def scopes_to_ask(
    challenge: Challenge, found: Discovery, before: Sequence[str] = (), wanted: Sequence[str] = ()
) -> tuple[str, ...]:
    """Choose the scopes of an authorization request; () is for none at all.

    Args:
        challenge: What the server asks for now.
        found: What the two servers offer.
        before: What was asked for last time, and is not given up.
        wanted: What the operator wants, instead of all that the server offers.
    """
    basis = tuple(wanted) or challenge.scopes or found.scopes_supported or ()
    union = dict.fromkeys((*before, *basis, *challenge.scopes))
    # It is between us and the authorization server, so the protected server has no say in it.
    union.pop(OFFLINE, None)
    if union and OFFLINE in (found.server.scopes_supported or ()):
        union[OFFLINE] = None
    return tuple(union)[-MAX_ASKED:]


def remember(known: str, needed: Sequence[str]) -> str:
    """Add scopes to a string of them, as far as `MAX_REMEMBERED` goes."""
    for scope in needed:
        longer = f"{known} {scope}".lstrip()
        if scope not in known.split() and len(longer) <= MAX_REMEMBERED:
            known = longer
    return known
