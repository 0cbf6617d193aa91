"""Substitution of `${VAR}` by environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping

from interlock.errors import ConfigError

MAX_SHOWN = 64  # characters of a wrong reference in an error

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def fill(text: str, place: str, environ: Mapping[str, str]) -> str:
    """Replace `${VAR}`, `${env:VAR}` and `${VAR:-default}`, whose default also replaces "".

    References in a variable's value are not replaced.

    Args:
        text: Any text.
        place: Its place in the file, for messages, such as "env.TOKEN".
        environ: The environment variables.

    Raises:
        ConfigError: A variable is not set and has no default.
    """
    return _REFERENCE.sub(lambda match: _value(match[1], place, environ), text)


def names(text: str) -> list[str]:
    """Return the variables that `fill` requires: those without a default."""
    matches = [_VARIABLE.fullmatch(each) for each in _REFERENCE.findall(text)]
    return list(dict.fromkeys(match[1] for match in matches if match and match[2] is None))


def _value(reference: str, place: str, environ: Mapping[str, str]) -> str:
    match = _VARIABLE.fullmatch(reference)
    if match is None and reference.startswith("user:"):
        raise ConfigError(
            f"{place} uses ${{{reference[:MAX_SHOWN]}}}, a credential of the calling user, which "
            "only `interlock serve` has"
        )
    if match is None:
        raise ConfigError(
            f"{place} uses ${{{reference[:MAX_SHOWN]}}}, which cannot be filled in: only "
            "environment variables can, as ${NAME} or ${NAME:-default}"
        )
    name, default = match.groups()
    value = environ.get(name)
    if not value and default is not None:
        return str(default)
    if value is None:
        raise ConfigError(
            f"{place} uses ${{{name}}}, and the environment variable {name} is not set: "
            f"set it, or write ${{{name}:-default}}"
        )
    return value
