"""Replacement of `${VAR}` in texts by environment variables and credentials."""

from __future__ import annotations

import os
import re
from collections import ChainMap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from interlock.config.section import Section
from interlock.errors import ConfigError

USER = "user:"  # the prefix in `${user:NAME}`, a credential of the user who makes the call
CALLER = ("caller.", "header:")  # the prefixes of values of the caller and of its request
CALLER_USER, CALLER_CLAIM, HEADER = "caller.user", "caller.claim:", "header:"
INPUT = "input:"  # the prefix in `${input:ID}`, a value that the user is asked for
MAX_SHOWN = 64  # characters of an invalid reference that an error shows

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_USER_REFERENCE = re.compile(r"\$\{user:([^}]*)\}")
# Names that Cursor and VS Code also replace. The working directory serves as the workspace.
_BUILT_IN = {
    "userHome": lambda: str(Path.home()),
    "workspaceFolder": lambda: str(Path.cwd()),
    "workspaceFolderBasename": lambda: Path.cwd().name,
    "pathSeparator": lambda: os.sep,
    "/": lambda: os.sep,
}
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def fill(
    text: str, place: str, environ: Mapping[str, str], user: Mapping[str, str] | None = None
) -> str:
    """Replace `${VAR}`, `${env:VAR}` and `${VAR:-default}`; the default also replaces "".

    `${userHome}`, `${workspaceFolder}` and `${/}` become folders and the path separator, as in the
    files of editors, unless environment variables with these names exist.

    References inside a variable's value are not replaced.

    Args:
        text: Any text.
        place: The place of the text in the file, such as "env.TOKEN", for error messages.
        environ: The environment variables.
        user: The values for `${user:NAME}`, keyed by NAME, and for references to the caller, keyed
            by the whole reference, such as "${caller.user}"; None if the call is for no user.

    Raises:
        ConfigError: A variable is not set and has no default.
    """
    return _REFERENCE.sub(lambda match: _value(match[1], place, environ, user), text)


def fill_user(text: str, user: Mapping[str, str]) -> str:
    """Replace only `${user:NAME}`; leave names that `user` lacks unchanged."""
    return _USER_REFERENCE.sub(lambda match: user.get(match[1], match[0]), text)


def kept(text: str) -> dict[str, str]:
    """Return values for `fill` with which each `${user:NAME}` in a text stays unchanged."""
    return {name: f"${{{USER}{name}}}" for name in user_names(text)}


def user_names(text: str) -> list[str]:
    """Return each NAME for which a text contains `${user:NAME}`."""
    found = (each.partition(":") for each in _REFERENCE.findall(text))
    return [name for kind, colon, name in found if kind == "user" and colon]


def caller_references(text: str) -> list[str]:
    """Return each reference to the caller in a text, such as "${caller.claim:tenant}"."""
    return [f"${{{each}}}" for each in _REFERENCE.findall(text) if each.startswith(CALLER)]


def input_names(text: str) -> list[str]:
    """Return each ID for which a text contains `${input:ID}`."""
    found = (each.partition(":") for each in _REFERENCE.findall(text))
    return [id for kind, colon, id in found if kind == "input" and colon]


def input_variable(id: str) -> str:
    """Return the environment variable that provides an input's value, instead of the user."""
    return f"INTERLOCK_INPUT_{re.sub(r'[^A-Z0-9]', '_', id.upper())}"


def with_known(environ: Mapping[str, str], known: Mapping[str, str]) -> Mapping[str, str]:
    """Return environment variables plus further values for `fill`, such as for "input:ID"."""
    return ChainMap(dict(known), environ)  # type: ignore[arg-type]  # neither is changed


def names(text: str) -> list[str]:
    """Return the variables without a default in a text, which `fill` requires to be set."""
    matches = [_VARIABLE.fullmatch(each) for each in _REFERENCE.findall(text)]
    found = [match[1] for match in matches if match and match[2] is None]
    return [name for name in dict.fromkeys(found) if name not in _BUILT_IN]


def parse_file(text: str) -> dict[str, str]:
    """Return the variables in a file with lines such as `NAME=VALUE` or `NAME="VALUE"`.

    All other lines are ignored, such as blank lines and comments.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        if match := _LINE.fullmatch(line):
            value = match[2].strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1]
            else:
                value = re.split(r"\s#", value, maxsplit=1)[0].rstrip()
            found[match[1]] = value
    return found


def _value(
    reference: str, place: str, environ: Mapping[str, str], user: Mapping[str, str] | None
) -> str:
    match = _VARIABLE.fullmatch(reference)
    if reference in _BUILT_IN and reference not in environ:
        return _BUILT_IN[reference]()
    if match is None and reference.startswith(USER):
        name = reference.removeprefix(USER)
        if user is not None and name in user:
            return user[name]
        if (value := environ.get(reference)) is not None:
            return value
        raise ConfigError(
            f"{place} uses ${{{reference[:MAX_SHOWN]}}}, a credential of the calling user: store "
            f"yours with `interlock credentials set SERVER {name[:MAX_SHOWN]} --user local`"
        )
    if match is None and reference.startswith(CALLER):
        # The braces keep these keys apart from the names of credentials.
        if user is not None and (value := user.get(f"${{{reference}}}")) is not None:
            return value
        raise ConfigError(
            f"{place} uses ${{{reference[:MAX_SHOWN]}}}, which only calls through a gateway have"
        )
    if match is None and reference.startswith(INPUT):
        return _input(reference, place, environ)
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


def _input(reference: str, place: str, environ: Mapping[str, str]) -> str:
    variable = input_variable(reference.removeprefix(INPUT))
    for name in (reference, variable):
        if (value := environ.get(name)) is not None:
            return value
    raise ConfigError(
        f"{place} uses ${{{reference[:MAX_SHOWN]}}}, which has no answer: give one on a terminal, "
        f"or set the environment variable {variable}"
    )


def check_user_variables(entry: Section, *, is_shared: bool, headers: Collection[str]) -> None:
    """Refuse `${user:NAME}` and references to the caller in places where they have no value.

    Args:
        entry: A server's entry.
        is_shared: Whether all users share one connection to the server.
        headers: The names in `gateway.headers`, in lower case.

    Raises:
        ConfigError: A reference is outside `env`, `headers` and `openapi.auth`, or all users share
            one connection to the server, or a header is not in `gateway.headers`.
    """
    for place, text in _texts(entry.members):
        for each in caller_references(text):
            _check_reference(entry, place, each, is_shared=is_shared, headers=headers)
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


def _check_reference(
    entry: Section,
    place: tuple[str | int, ...],
    reference: str,
    *,
    is_shared: bool,
    headers: Collection[str],
) -> None:
    name = reference[2:-1]
    shown = reference[:MAX_SHOWN]
    is_claim = name.startswith(CALLER_CLAIM) and name != CALLER_CLAIM
    if name != CALLER_USER and not is_claim and not name.startswith(HEADER):
        known = "${caller.user}, ${caller.claim:NAME} and ${header:NAME}"
        entry.refuse(f"has {shown}; of the caller there are {known}", *place)
    if place[0] not in ("env", "headers") or "openapi" in entry.members:
        entry.refuse(
            f'has {shown}, which only env and headers of a "command" or "url" may have', *place
        )
    if is_shared:
        entry.refuse(
            f"has {shown}, but all users share this server: add "
            '"sharing": "per_user", "per_session" or "per_call"',
            *place,
        )
    if name.startswith(HEADER) and name.removeprefix(HEADER).lower() not in headers:
        entry.refuse(f"has {shown}, whose name is not in gateway.headers", *place)


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
