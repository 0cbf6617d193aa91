"""`interlock serve --check`: report problems of a configuration, and what it would change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path

from interlock import __version__
from interlock.auth.gateway_key import GatewayKey
from interlock.calls import Entry
from interlock.cli.gateway.last_lists import stored_lists
from interlock.cli.gateway.list_sizes import long_lists, principals_in
from interlock.cli.server_status import problem_of
from interlock.cli.terminal import say, warn
from interlock.config import Config
from interlock.config.resolving import resolve
from interlock.errors import AuditUnavailable, ConfigError
from interlock.gateway.deployment.front_door import check_issuers
from interlock.gateway.parts import Parts, configuration_hash, described_parts, make_parts
from interlock.gateway.planning import compared
from interlock.policy import find_unchecked, find_warnings
from interlock.store import AuditReader
from interlock.store.database import location
from interlock.store.replicas import running_at
from interlock.toolbox import Toolbox
from interlock.toolbox.user_credentials import placeholders_of
from interlock.types import JsonObject

GOOGLE = "https://accounts.google.com"
_NOT_STARTED = "no server was started; add --start-servers"


def check_configuration(config: Config, *, start_servers: bool) -> int:
    """Print a configuration's problems and the changes it would make; return the exit code.

    Args:
        config: The configuration.
        start_servers: Whether to start the servers briefly, to get the names of their tools.

    Raises:
        ConfigError: The configuration cannot be served.
        StoreError: The database cannot be read.
    """
    parts = make_parts(config, os.environ)
    place = location.find(parts.settings.database or None)
    # Serving would create the database; a check must not.
    database = place if isinstance(place, Path) and place.exists() else None
    Toolbox(parts.servers)  # raises an error if a name is reserved
    changes: list[str] = []
    if start_servers:
        odd = asyncio.run(_with_servers(config, parts, database))
    else:
        odd, changes = asyncio.run(_with_last_lists(config, parts, database))
    odd += _open_issuers(parts)
    if isinstance(place, str):
        odd += asyncio.run(_other_gateways(config, place))
    for line in odd:
        warn(line)
    for line in changes:
        say(line)
    if config.ignored:
        say(f"{len(config.ignored)} servers of {config.path or 'the configuration'} are ignored")
        return 1
    say(f"{config.path or 'the configuration'} can be served")
    return 0


def _open_issuers(parts: Parts) -> list[str]:
    """Return the issuers at which anybody in the world can sign in."""
    return [
        f"anybody with a Google account can sign in at {each.issuer}: add"
        ' "people": {"hd": {"const": "YOUR-DOMAIN"}} to the issuer'
        for each in parts.settings.issuers
        if each.issuer == GOOGLE and each.client_id and not each.people
    ]


async def _with_servers(config: Config, parts: Parts, place: Path | None) -> list[str]:
    """Start the servers briefly; return problems with their tools."""
    toolbox = Toolbox(parts.servers)
    try:
        await toolbox.open()
        down = [each for each in toolbox.status.values() if each.state not in ("ok", "disabled")]
        unknown = [f"the tools of a server are unknown: {problem_of(each)}" for each in down]
        odd = _odd_names(config, toolbox.tools, "no tools of such a server are known")
        sizes = long_lists(parts.settings, parts.policy, toolbox.tools, await principals_in(place))
        problems = [each.text async for each in check_issuers(parts.settings) if each.state != "ok"]
        return [*odd, *sizes, *unknown, *problems]
    finally:
        await toolbox.close()


async def _with_last_lists(
    config: Config, parts: Parts, place: Path | None
) -> tuple[list[str], list[str]]:
    """Use the servers' stored tool lists, without starting them; return problems and changes."""
    odd = [*_unset_variables(config), *_unchecked_logins(config)]
    if place is None:
        return [*odd, *_odd_names(config, (), _NOT_STARTED)], []
    async with stored_lists(parts.servers, place) as (toolbox, relaunched):
        odd += _odd_names(config, toolbox.tools, _NOT_STARTED)
        principals = await principals_in(place)
        odd += long_lists(parts.settings, parts.policy, toolbox.tools, principals)
    async with AuditReader.open(place) as reader:
        last = await reader.last("config")
    if last is None:
        return odd, []
    changes = _changes(last["after"], described_parts(parts))
    if parts.settings.lock.mode == "first":
        changes += [
            f"server {name} is launched in another way: its tools will wait for `interlock lock`"
            for name in relaunched
        ]
    heading = [f"changes since {last['at']}, when a configuration was loaded last:"]
    return odd, [*heading, *(f"  {each}" for each in changes)] if changes else []


async def _other_gateways(config: Config, url: str) -> list[str]:
    """Return the running gateways of a shared database, and whether their configuration differs."""
    try:
        running = await running_at(url)
    except AuditUnavailable as error:
        return [f"other gateways are not known: {error}"]
    folder = location.folder_beside(url)
    own = ""
    if running and GatewayKey.exists(folder):
        own = configuration_hash(config, GatewayKey.load(folder))
    lines = []
    for each in running:
        about = f"gateway {each.writer} on {each.host} is running, version {each.version}"
        if each.version != __version__:
            about += f" (here {__version__})"
        if own and each.configuration != own:
            about += f", with another configuration ({each.configuration}, here {own})"
        lines.append(f"{about}, but could not load its file" if each.error else about)
    if running:
        lines.append("send all requests of a caller to the same gateway: hash its credential")
    return lines


def _unchecked_logins(config: Config) -> list[str]:
    issuers = () if config.gateway is None else config.gateway.issuers
    names = [each.issuer for each in issuers if each.client_id]
    return [f"not checked: login at {each} ({_NOT_STARTED})" for each in names]


def _odd_names(config: Config, tools: Collection[Entry], why_unchecked: str) -> list[str]:
    unchecked = [f"not checked: {each} ({why_unchecked})" for each in find_unchecked(config, tools)]
    return [*find_warnings(config, tools), *unchecked]


def _unset_variables(config: Config) -> list[str]:
    found = []
    for name, server in config.servers.items():
        of_users = placeholders_of(server)
        try:
            if server.enabled:
                resolve(server, os.environ, of_users)  # type: ignore[type-var]  # each kind is one it accepts
        except ConfigError as error:
            found.append(f"server {name!r} cannot start: {error}")
    return found


def _changes(before: JsonObject, now: JsonObject) -> list[str]:
    """Return the differences between two configurations, which are given as in audit records."""
    changes = []
    for noun, member in (("server", "servers"), ("view", "views"), ("plugin", "plugins")):
        found = compared(dict.fromkeys(before[member]), dict.fromkeys(now[member]))
        changes += [f"new {noun} {name}" for name in found["added"]]
        changes += [f"no {noun} {name} any more" for name in found["removed"]]
    if before["policy"] != now["policy"]:
        changes.append("another policy")
    return changes
