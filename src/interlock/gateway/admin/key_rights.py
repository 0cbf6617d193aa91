"""Checks of an API key's rights, and changes that only reduce the rights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from msgspec.structs import replace

from interlock.auth.scopes import covers
from interlock.auth.stored_key import StoredKey
from interlock.config.gateway import GatewaySettings, KeyLimits
from interlock.config.gateway_reading import scope_problem
from interlock.config.limits_reading import key_limits, key_limits_problem
from interlock.config.section import parse_duration
from interlock.errors import InvalidArguments
from interlock.text.timestamps import now_micros
from interlock.types import JsonObject

NEVER = "never"
LIMITS = ("rate", "burst", "concurrent", "perDay")


def user_problem(user: str) -> str:
    """Return what is wrong with a user name; "" if it is valid."""
    if not user or any(char.isspace() or char == "*" or not char.isprintable() for char in user):
        return "a user is a name without spaces and *"
    return ""


def rights_problem(
    scopes: Collection[str], view: str, limits: Mapping[str, Any], views: Collection[str]
) -> str:
    """Return what is wrong with a new key's rights; "" if they are valid."""
    if not scopes:
        return "a key needs a scope"
    for scope in scopes:
        if problem := scope_problem(scope):
            return f"scope {scope!r} {problem}"
    if view and view not in views:
        return f"no view {view!r} in the configuration"
    return key_limits_problem(limits)


def lifetime_of(text: str) -> float | None:
    """Return the seconds in a duration such as "90d"; None for "never".

    Raises:
        InvalidArguments: The text is not a duration.
    """
    if text == NEVER:
        return None
    seconds = parse_duration(text)
    if not seconds:
        raise InvalidArguments("expires is not a time such as 12h or 90d, or never")
    return float(seconds)


def change_of(
    action: str,
    before: StoredKey | None,
    after: StoredKey,
    created: StoredKey | None = None,
) -> JsonObject:
    """Return the audit record for a change of a key, without the key's free name.

    Args:
        action: The name of the action.
        before: The key before the change; None if the change created it.
        after: The key after the change.
        created: The new key that replaces it; None if the change is not a rotation.
    """
    now, keys = now_micros(), {"before": before, "after": after, "created": created}
    shown = {name: key.as_json(now) for name, key in keys.items() if key is not None}
    for each in shown.values():
        del each["name"]  # it may contain the name of a person
    return {"action": action, "id": after.id, **shown}


def narrowed(
    old: StoredKey, change: Mapping[str, Any], settings: GatewaySettings, now: int
) -> StoredKey:
    """Return a key with reduced rights.

    Args:
        old: The key before the change.
        change: New values for any of `name`, `scopes`, `expires` (such as "90d" from now), `view`
            and the members of `LIMITS`.
        settings: The settings, with the views and the limits of keys that have no limits of their
            own.
        now: Microseconds since 1970.

    Raises:
        InvalidArguments: A value is not valid, or exceeds the key's current rights.
    """
    scopes: tuple[str, ...] = tuple(change.get("scopes", old.scopes))
    view: str = change.get("view", old.view)
    limits = old.limits | {name: change[name] for name in LIMITS if name in change}
    problem = rights_problem(scopes, view, limits, {*settings.views, old.view})
    if problem:
        raise InvalidArguments(problem)
    for scope in scopes:
        if not any(covers(each, scope) for each in old.scopes):
            raise InvalidArguments(f"scope {scope!r} exceeds the scopes of the key")
    if view != old.view and old.view:
        raise InvalidArguments(f"the key is bound to view {old.view!r}")
    expires = old.expires
    if "expires" in change:
        expires = _sooner(old, lifetime_of(change["expires"]), now)
    common = settings.limits.per_key
    _check_limits(key_limits(old.limits, common), key_limits(limits, common))
    name = change.get("name", old.name)
    return replace(old, name=name, scopes=scopes, view=view, limits=limits, expires=expires)


def _sooner(old: StoredKey, lifetime: float | None, now: int) -> int | None:
    expires = None if lifetime is None else now + int(lifetime * 1_000_000)
    if old.expires is not None and (expires is None or expires > old.expires):
        raise InvalidArguments("the key itself expires earlier; create another key")
    return expires


def _check_limits(old: KeyLimits, new: KeyLimits) -> None:
    """Raise an error if a new limit is above the old limit.

    Raises:
        InvalidArguments: A limit is above the old limit; the text names the limit.
    """
    for name, before, after in (
        ("rate", _calls_a_second(old), _calls_a_second(new)),
        ("burst", _burst(old), _burst(new)),
        ("concurrent", old.concurrent, new.concurrent),
        ("perDay", old.per_day, new.per_day),
    ):
        if before is not None and (after is None or after > before):
            raise InvalidArguments(f"{name} is above the limit that holds now ({before:g})")


def _calls_a_second(limits: KeyLimits) -> float | None:
    return None if limits.rate is None else limits.rate.calls / limits.rate.seconds


def _burst(limits: KeyLimits) -> int | None:
    return None if limits.rate is None else limits.burst or limits.rate.calls
