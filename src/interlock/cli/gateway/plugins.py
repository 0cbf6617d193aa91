"""`interlock plugins`: install plugins for users."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from interlock.cli import config_option
from interlock.cli.database_options import database_of, principal_of
from interlock.cli.gateway.recorder import OPERATOR, open_recorder
from interlock.cli.signals import run
from interlock.cli.terminal import emit_json, emit_table, say, warn

if TYPE_CHECKING:
    from interlock.config import Config
    from interlock.gateway.manifests import Plugin
    from interlock.store.database.claims import Claim
    from interlock.store.database.recorded import Record
    from interlock.store.plugins import Installation, PluginStore
    from interlock.types import JsonObject

_T = TypeVar("_T")
_name = click.argument("name", metavar="NAME")
_user = click.option(
    "--user", required=True, metavar="U", help="A user, or ISSUER#SUBJECT of a token."
)


@click.group()
def plugins() -> None:
    """List plugins, and install or remove them for users.

    A plugin is a folder with a manifest in gateway.plugins.folder. Only users who have it installed
    see its tools. A running gateway applies a change within a second.

    \b
    Example:
      interlock plugins install refunds --user anna
      interlock plugins list
    """


@plugins.command("list")
@config_option.json_option
@config_option.config_option
def list_(as_json: bool, config: Path | None) -> None:
    """List the plugins with their tools and users, and the problems of their manifests.

    \b
    Example:
      interlock plugins list --json
    """
    found = config_option.load(config)
    installed = _with_store(found, lambda store: store.list())
    rows = [_as_json(each, installed) for each in _plugins(found)]
    if as_json:
        emit_json(rows)
        return
    emit_table(
        (
            each["name"],
            each["version"] or "-",
            " ".join(each["tools"]) or "-",
            " ".join(each["users"]) or "not installed",
        )
        for each in rows
    )
    for each in rows:
        for name, problem in each["problems"].items():
            warn(f"plugin {each['name']}{f', tool {name}' if name else ''}: {problem}")
    if not rows:
        say("no plugins; see gateway.plugins in the documentation")


@plugins.command()
@_name
@_user
@config_option.config_option
def install(name: str, user: str, config: Path | None) -> None:
    """Install a plugin for a user, who then sees its tools.

    \b
    Example:
      interlock plugins install refunds --user anna
    """
    found, principal = config_option.load(config), principal_of(user)
    _check_name(found, name)

    async def work(store: PluginStore, record: Record | None) -> bool:
        return await store.install(name, principal, by=OPERATOR, record=record) is not None

    if _change(found, work, "plugin_installed", name, principal):
        say(f"installed {name} for {principal}")
    else:
        say(f"{principal} has {name} already")


@plugins.command()
@_name
@_user
@config_option.config_option
def remove(name: str, user: str, config: Path | None) -> int:
    """Remove a plugin from a user, who then no longer sees its tools.

    \b
    Example:
      interlock plugins remove refunds --user anna
    """
    found, principal = config_option.load(config), principal_of(user)

    async def work(store: PluginStore, record: Record | None) -> bool:
        return await store.remove(name, principal, record=record)

    if not _change(found, work, "plugin_removed", name, principal):
        say(f"{principal} does not have {name}")
        return 1
    say(f"removed {name} of {principal}")
    return 0


def _plugins(config: Config) -> list[Plugin]:
    from interlock.gateway.manifests import with_plugins

    return with_plugins(config)[1].found


def _as_json(plugin: Plugin, installed: list[Installation]) -> JsonObject:
    return {
        "name": plugin.name,
        "version": plugin.version,
        "tools": [each.name for each in plugin.tools],
        "users": [each.user for each in installed if each.plugin == plugin.name],
        "problems": plugin.problems,
    }


def _check_name(config: Config, name: str) -> None:
    from interlock.config.section import nearest

    names = [each.name for each in _plugins(config)]
    if name not in names:
        raise click.BadParameter(f"no plugin {name!r}{nearest(name, names)}", param_hint="NAME")


def _with_store(config: Config, work: Callable[[PluginStore], Awaitable[_T]]) -> _T:
    async def opened() -> _T:
        from interlock.store.database.database import open_database
        from interlock.store.plugins import PluginStore

        database = await open_database(database_of(config))
        try:
            return await work(PluginStore(database))
        finally:
            await database.close()

    return run(opened())


def _change(
    config: Config,
    work: Callable[[PluginStore, Record | None], Awaitable[bool]],
    action: str,
    name: str,
    user: str,
) -> bool:
    """Run work that changes an installation, and write the change with its audit record."""

    async def recorded(store: PluginStore) -> bool:
        async with open_recorder(config) as recorder:
            if recorder is None:
                return await work(store, None)
            write = recorder.write

            async def record(claim: Claim, *_: Installation | None) -> None:
                await write("admin", {"action": action, "plugin": name, "of": user}, claim)

            return await work(store, record)

    return _with_store(config, recorded)
