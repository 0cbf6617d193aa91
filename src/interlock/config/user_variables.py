"""Where `${user:NAME}` may stand in a configuration."""

from __future__ import annotations

from typing import Any

from interlock.config.section import Section


def check_user_variables(entry: Section, *, is_shared: bool) -> None:
    """Refuse `${user:NAME}` where no credential of a user can stand for it.

    Raises:
        ConfigError: It stands outside of `env`, `headers` and `openapi.auth`, or in them while
            all users share the server's connection.
    """
    for place, text in _texts(entry.members):
        if "${user:" not in text:
            continue
        if place[0] not in ("env", "headers") and place[:2] != ("openapi", "auth"):
            entry.refuse("has ${user:…}, which only env, headers and openapi.auth may have", *place)
        if is_shared:
            entry.refuse(
                "has ${user:…}, but all users share this server: add "
                '"sharing": "per_user", "per_session" or "per_call"',
                *place,
            )


def _texts(value: Any, *place: str | int) -> list[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        return [(place, value)]
    if isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list):
        parts = list(enumerate(value))
    else:
        return []
    return [found for step, each in parts for found in _texts(each, *place, step)]
