"""`interlock credentials`: manage users' credentials for the servers behind a gateway."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from interlock.cli import completion, config_option
from interlock.cli.database_options import database_of, principal_of
from interlock.cli.gateway.recorder import Recorder, open_recorder
from interlock.cli.signals import run
from interlock.cli.terminal import emit_list, say, warn
from interlock.errors import ConfigError, InterlockError, StoreCorrupt, StoreError

if TYPE_CHECKING:
    from interlock.config import Config, ServerConfig
    from interlock.oauth import TokenStore
    from interlock.store.credentials import CredentialStore, Place
    from interlock.store.database.claims import Claim
    from interlock.store.database.recorded import Record

_T = TypeVar("_T")
_MAX_INPUT = 64 * 1024  # the maximum characters that are read from stdin
_user = click.option(
    "--user", required=True, metavar="USER", help="A user, or ISSUER#SUBJECT of a token."
)
_server = click.argument("server", metavar="SERVER", shell_complete=completion.servers)
_name = click.argument("name", metavar="NAME")


@click.group()
def credentials() -> None:
    """List, set and delete the credentials of users for servers.

    A server that has ${user:NAME} in its configuration gets the value that its caller has stored.
    Values are encrypted with the gateway's key and cannot be shown. A running gateway notices a
    change within two seconds.

    \b
    Example:
      interlock credentials set crm TOKEN --user anna < token.txt
      interlock credentials list
    """


@credentials.command("list")
@click.option("--user", default="", metavar="USER", help="Only credentials of this user.")
@config_option.json_option
@config_option.config_option
def list_(user: str, as_json: bool, config: Path | None) -> None:
    """List the credentials of all users, with their states and without their values.

    \b
    Example:
      interlock credentials list --user anna --json
    """
    from interlock.text.timestamps import now_micros

    async def work(store: CredentialStore) -> list[dict[str, Any]]:
        now = now_micros()
        found = await store.list(user=principal_of(user) if user else "")
        return [each.as_json(now) for each in found]

    found = _with_store(config_option.load(config), work)
    emit_list(
        found,
        lambda each: (
            each["user"],
            each["server"],
            each["name"],
            each["state"],
            f"{each['updated'][:16]}Z",
        ),
        none="no credentials yet; store one with `interlock credentials set SERVER NAME --user U`",
        as_json=as_json,
    )


@credentials.command("set")
@_server
@_name
@_user
@config_option.config_option
def set_(server: str, name: str, user: str, config: Path | None) -> None:
    """Store a user's value for ${user:NAME} of SERVER, read from stdin.

    \b
    Example:
      interlock credentials set crm TOKEN --user anna < token.txt
      pass show crm | interlock credentials set crm TOKEN --user anna
    """
    found, principal = config_option.load(config), principal_of(user)
    _check_name(found, server, name)
    value = _read_value(name)

    async def work(store: CredentialStore) -> None:
        place = _place(principal, server, name)
        async with open_recorder(found) as recorder:
            await store.set(place, value, record=_recording(recorder, "set"))
        say(f"stored {name} of {principal} for server {server!r}")

    _with_store(found, work)


@credentials.command()
@_server
@_name
@_user
@config_option.config_option
def delete(server: str, name: str, user: str, config: Path | None) -> None:
    """Delete a value, or with the NAME "login" a login.

    A running gateway closes the connections that used it. A login is revoked at its authorization
    server, if that has an endpoint for it and answers.

    \b
    Example:
      interlock credentials delete crm TOKEN --user anna
      interlock credentials delete notes login --user anna
    """
    found, principal = config_option.load(config), principal_of(user)

    async def work(store: CredentialStore) -> None:
        place = _place(principal, server, name)
        login = await _login_at(store, place)
        async with open_recorder(found) as recorder:
            if not await store.revoke(place, record=_recording(recorder, "deleted")):
                raise StoreError(
                    f"{principal} has no credential {name!r} for server {server!r}: "
                    "see `interlock credentials list`"
                )
            say(f"deleted {name} of {principal} for server {server!r}")
            if login is not None:
                await _revoke(found, place, login, recorder)

    _with_store(found, work)


async def _login_at(store: CredentialStore, place: Place) -> TokenStore | None:
    """Copy a login, so that it can be revoked after its deletion; None if it cannot be read."""
    from interlock.store.credentials import LOGIN
    from interlock.store.login_tokens import LoginTokens

    if place.name == LOGIN:
        with suppress(StoreCorrupt):  # a login that cannot be read cannot be revoked
            return await LoginTokens(store, place).copied()
    return None


async def _revoke(
    config: Config, place: Place, login: TokenStore, recorder: Recorder | None
) -> None:
    from interlock.cli.servers.login import end_login

    problem = f"server {place.server!r} is not in the configuration any more"
    server = _servers(config).get(place.server)
    if server is not None:
        try:
            ended = await end_login(server, login)
            problem = "" if ended is None else ended.problem
        except InterlockError as error:
            problem = str(error)
    if problem:
        warn(f"its tokens are valid until they expire: {problem}")
    if recorder is not None:
        body = _about("not_revoked" if problem else "revoked", place)
        await recorder.write("credential", body, None, server=place.server)


# Input


def _place(user: str, server: str, name: str) -> Place:
    from interlock.store.credentials import Place

    return Place(user, server, name)


def _servers(config: Config) -> dict[str, ServerConfig]:
    return {each.namespace or key: each for key, each in config.servers.items()}


def _check_name(config: Config, server: str, name: str) -> None:
    """Raise an error if the server's configuration does not use a name."""
    from interlock.config.section import nearest
    from interlock.toolbox.user_credentials import needs_of

    servers = _servers(config)
    if server not in servers:
        raise ConfigError(f"no server {server!r} is configured{nearest(server, servers)}")
    names = needs_of(servers[server]).names
    if name not in names:
        used = ", ".join(sorted(names)) or "none"
        raise ConfigError(
            f"the configuration of server {server!r} has no ${{user:{name}}}; its names are: {used}"
        )


def _read_value(name: str) -> str:
    if sys.stdin is None:
        return ""
    if sys.stdin.isatty():
        value: str = click.prompt(f"value of {name}", hide_input=True, err=True)
        return value
    value = sys.stdin.read(_MAX_INPUT)
    return value.removesuffix("\n").removesuffix("\r")


# The database


def _with_store(config: Config, work: Callable[[CredentialStore], Awaitable[_T]]) -> _T:
    async def opened() -> _T:
        from interlock.store.credentials import CredentialStore

        async with CredentialStore.open(database_of(config)) as store:
            return await work(store)

    return run(opened())


def _recording(recorder: Recorder | None, action: str) -> Record | None:
    if recorder is None:
        return None

    async def record(claim: Claim, place: Place) -> None:
        await recorder.write("credential", _about(action, place), claim, server=place.server)

    return record


def _about(action: str, place: Place) -> dict[str, Any]:
    return {"action": action, "name": place.name, "of": place.user}
