"""Options of commands that use a gateway's database, whether a gateway is running or not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from interlock.config import Config

FOREVER = "never"


def database_of(config: Config) -> str | None:
    """Return the path or URL of the gateway's database; None for the database of conversations.

    Raises:
        ConfigError: The setting names a variable that is not set.
    """
    from interlock.config import gateway_reading

    if config.gateway is None:
        return None
    return gateway_reading.resolve(config, os.environ).database or None


def principal_of(user: str) -> str:
    """Return the principal id of the user that `--user` names."""
    if not user or not user.isprintable() or user != user.strip():
        raise click.BadParameter("a user is a name without spaces around it", param_hint="--user")
    from interlock.auth.principal import principal_id

    return principal_id(user)


def check_view(config: Config, view: str) -> None:
    """Raise an error if `--view` names a view that the file does not define."""
    views = config.gateway.views if config.gateway is not None else {}
    if view and view not in views:
        known = f"the views are {', '.join(views)}" if views else "it has no views"
        where = config.path or "the configuration"
        raise click.BadParameter(f"no view {view!r} in {where}; {known}", param_hint="--view")


class Duration(click.ParamType[float]):
    """A duration in seconds, written as "90d"; 0 means "never"."""

    name = "duration"

    def __init__(self, *, or_never: bool = False) -> None:
        self._or_never = or_never

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the duration in seconds."""
        from interlock.config.section import parse_duration

        if isinstance(value, int | float):
            return value
        if self._or_never and value == FOREVER:
            return 0.0
        seconds = parse_duration(str(value))
        if seconds is None:
            also = ", or never" if self._or_never else ""
            self.fail(f"{value!r} is not a time such as 30s, 10m, 24h or 90d{also}", param, ctx)
        return float(seconds)


class RateOption(click.ParamType[str]):
    """A rate, such as "20/s"."""

    name = "rate"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the rate unchanged after checking that it is valid."""
        from interlock.config.limits_reading import RATE_FORM, parse_rate

        if parse_rate(str(value)) is None:
            self.fail(f"{value!r} is not {RATE_FORM}", param, ctx)
        return str(value)
