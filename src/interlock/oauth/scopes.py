"""Selection of the scopes that an authorization request contains.

Spec 2026-07-28: basic/authorization, "Scope Selection Strategy".
"""

from __future__ import annotations

from collections.abc import Sequence

from interlock.oauth.challenges import Challenge
from interlock.oauth.discovery import Discovery

MAX_MISSING = 1_000  # characters of missing scopes that are stored for the next login
MAX_REQUESTED = 500  # scopes in one request, as a server may require a new scope each time
OFFLINE = "offline_access"


def scopes_to_request(
    challenge: Challenge, found: Discovery, before: Sequence[str] = (), wanted: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the scopes to request; () means that the parameter `scope` is omitted.

    Args:
        challenge: The scopes that the server requires now.
        found: The scopes that the protected server and the authorization server support.
        before: The scopes of the last request, which are requested again.
        wanted: The scopes that the operator configured, instead of all supported scopes.
    """
    basis = tuple(wanted) or challenge.scopes or found.scopes_supported or ()
    union = dict.fromkeys((*before, *basis, *challenge.scopes))
    # Request `offline_access` only if the authorization server, which grants it, lists it.
    union.pop(OFFLINE, None)
    if union and OFFLINE in (found.server.scopes_supported or ()):
        union[OFFLINE] = None
    return tuple(union)[-MAX_REQUESTED:]


def add_missing(missing: str, required: Sequence[str]) -> str:
    """Append required scopes to `missing`, as long as it has at most `MAX_MISSING` characters."""
    for scope in required:
        longer = f"{missing} {scope}".lstrip()
        if scope not in missing.split() and len(longer) <= MAX_MISSING:
            missing = longer
    return missing
