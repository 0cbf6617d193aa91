"""`interlock keys`: manage the API keys of a gateway's users."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from interlock.cli import config_option
from interlock.cli.database_options import Duration, RateOption, check_view, database_of
from interlock.cli.gateway.recorder import OPERATOR, Recorder, open_recorder
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_json, emit_list, emit_table, say

if TYPE_CHECKING:
    from interlock.auth.stored_key import StoredKey
    from interlock.config import Config
    from interlock.store.database.claims import Claim
    from interlock.store.database.recorded import Record
    from interlock.store.keys import KeyStore

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])
# Returns the audit record of a change, by the name of the change.
Recorded: TypeAlias = "Callable[[str], Record | None]"
_id = click.argument("id", metavar="ID")


def _own_limit(name: str, help: str) -> Callable[[_F], _F]:
    return click.option(name, type=click.IntRange(1, 1_000_000_000), metavar="N", help=help)


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke the API keys of the gateway's users.

    Keys are in the database that `gateway.database` names in the file of servers, else in that of
    your conversations. A running gateway notices a change within two seconds.

    \b
    Example:
      interlock keys create anna --scope mcp:read --expires 90d
      interlock keys list
    """


@keys.command()
@click.argument("user", metavar="USER")
@click.option("--name", default="", help="The key's purpose; shown in lists.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="SCOPE",
    help="The most that the key may do: mcp:*, mcp:read (the default), mcp:SERVER:*, "
    "mcp:SERVER:PATTERN, admin:read, admin:approve or admin:write. May be repeated.",
)
@click.option(
    "--expires",
    type=Duration(or_never=True),
    default="365d",
    show_default=True,
    metavar="TIME",
    help="The time until the key expires, such as 90d or 12h; or never.",
)
@click.option("--view", default="", metavar="NAME", help="The only view that the key opens.")
@click.option("--rate", type=RateOption(), metavar="RATE", help="Limit of its rate, as in 20/s.")
@_own_limit("--burst", "Calls that may come at once before the rate applies.")
@_own_limit("--concurrent", "Limit of calls that run at the same time.")
@_own_limit("--per-day", "Limit of calls per day.")
@config_option.json_option
@config_option.config_option
def create(
    user: str,
    name: str,
    scopes: tuple[str, ...],
    expires: float,
    view: str,
    rate: str | None,
    burst: int | None,
    concurrent: int | None,
    per_day: int | None,
    as_json: bool,
    config: Path | None,
) -> None:
    """Create a key for USER and print it. It cannot be shown again.

    Prints on stderr how many tools the key can call now, and why it cannot call the others. The
    tools come from the lists that a gateway stored last; no server is started.

    \b
    Example:
      interlock keys create anna
      interlock keys create anna --scope mcp:crm:* --expires 90d --rate 20/s
    """
    found = config_option.load(config)
    user = _checked_user(user)
    _check_scopes(scopes)
    check_view(found, view)
    limits = {"rate": rate, "burst": burst, "concurrent": concurrent, "perDay": per_day}

    async def work(store: KeyStore, recorded: Recorded) -> StoredKey:
        stored, key = await store.create(
            user,
            name=name,
            scopes=scopes or ("mcp:read",),
            view=view,
            limits={name: value for name, value in limits.items() if value is not None},
            lifetime=expires or None,
            created_by=OPERATOR,
            record=recorded("key_created"),
        )
        _show_new(stored, key, as_json)
        return stored

    run(_say_reach(found, _change(found, work)))


async def _say_reach(config: Config, key: StoredKey) -> None:
    from interlock.cli.gateway.key_reach import describe_reach

    for line in await describe_reach(config, key):
        say(line)


@keys.command("list")
@config_option.json_option
@config_option.config_option
def list_(as_json: bool, config: Path | None) -> None:
    """List all keys with their users, scopes and states, oldest first.

    \b
    Example:
      interlock keys list
      interlock keys list --json | jq -r '.[] | select(.state == "active").id'
    """
    found = [
        _fields(each)
        for each in _with_store(config_option.load(config), lambda store: store.list())
    ]
    emit_list(
        found,
        lambda each: (
            each["id"],
            each["state"],
            each["user"],
            " ".join(each["scopes"]),
            each.get("view", "-"),
            f"until {each['expires'][:10]}" if "expires" in each else "for good",
            f"used {each['lastUsed'][:16]}Z" if "lastUsed" in each else "never used",
            each["name"],
        ),
        none="no keys yet; create one with `interlock keys create USER`",
        as_json=as_json,
    )


@keys.command()
@_id
@config_option.json_option
@config_option.config_option
def show(id: str, as_json: bool, config: Path | None) -> None:
    """Show the data of a key, but not its secret.

    \b
    Example:
      interlock keys show 7fk2m9qdx3ha
    """
    shown = _fields(_with_store(config_option.load(config), lambda store: store.get(id)))
    if as_json:
        emit_json(shown)
        return
    emit_table((member, _text(value)) for member, value in shown.items())


@keys.command()
@_id
@click.option(
    "--overlap",
    type=Duration(),
    default="24h",
    show_default=True,
    metavar="TIME",
    help="How long the old key stays valid.",
)
@config_option.json_option
@config_option.config_option
def rotate(id: str, overlap: float, as_json: bool, config: Path | None) -> None:
    """Replace a key by a new one with the same rights, and print the new one.

    The old key stays valid for the overlap, so that its users can change over.

    \b
    Example:
      interlock keys rotate 7fk2m9qdx3ha --overlap 1h
    """

    async def work(store: KeyStore, recorded: Recorded) -> None:
        record = recorded("key_rotated")
        stored, key = await store.rotate(id, overlap=overlap, created_by=OPERATOR, record=record)
        old = await store.get(id)
        _show_new(stored, key, as_json)
        say(f"key {id} stays valid until {_fields(old)['expires']}")

    _change(config_option.load(config), work)


@keys.command()
@_id
@config_option.json_option
@config_option.config_option
def revoke(id: str, as_json: bool, config: Path | None) -> None:
    """Revoke a key. A running gateway ends its calls, sessions and streams within two seconds.

    \b
    Example:
      interlock keys revoke 7fk2m9qdx3ha
    """

    async def work(store: KeyStore, recorded: Recorded) -> None:
        revoked = await store.revoke(id, record=recorded("key_revoked"))
        if as_json:
            emit_json(_fields(revoked))
        say(f"revoked key {id} of user:{revoked.user}")

    _change(config_option.load(config), work)


# Output


def _show_new(stored: StoredKey, key: str, as_json: bool) -> None:
    from interlock.text.timestamps import now_micros, rfc3339

    if as_json:
        emit_json(stored.as_json(now_micros(), key))
    else:
        emit(key)
    expires = rfc3339(stored.expires)
    until = f"until {expires[:10]}" if expires else "for good"
    say(
        f"key {stored.id} of user:{stored.user}, scopes {' '.join(stored.scopes)}, {until};"
        " it is not shown again"
    )


def _fields(stored: StoredKey) -> dict[str, Any]:
    from interlock.text.timestamps import now_micros

    return stored.as_json(now_micros())


def _text(value: object) -> str:
    if isinstance(value, list):
        return " ".join(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items()) or "-"
    return str(value) or "-"


# Input


def _with_store(config: Config, work: Callable[[KeyStore], Awaitable[_T]]) -> _T:
    async def opened() -> _T:
        from interlock.store import KeyStore

        async with KeyStore.open(database_of(config)) as store:
            return await work(store)

    return run(opened())


def _change(config: Config, work: Callable[[KeyStore, Recorded], Awaitable[_T]]) -> _T:
    """Run work that changes keys, and write each change together with its audit record."""

    async def opened() -> _T:
        from interlock.store import KeyStore

        async with KeyStore.open(database_of(config)) as store, open_recorder(config) as recorder:
            return await work(store, lambda action: _recording(recorder, action))

    return run(opened())


def _recording(recorder: Recorder | None, action: str) -> Record | None:
    if recorder is None:
        return None
    from interlock.gateway.admin.key_rights import change_of

    async def record(claim: Claim, before: StoredKey | None, *keys: StoredKey) -> None:
        await recorder.write("admin", change_of(action, before, *keys), claim)

    return record


def _checked_user(user: str) -> str:
    from interlock.gateway.admin.key_rights import user_problem

    user = user.removeprefix("user:")
    if problem := user_problem(user):
        raise click.BadParameter(problem, param_hint="USER")
    return user


def _check_scopes(scopes: tuple[str, ...]) -> None:
    from interlock.config.gateway_reading import scope_problem

    for scope in scopes:
        if problem := scope_problem(scope):
            raise click.BadParameter(f"{scope!r} {problem}", param_hint="--scope")
