"""`interlock clients`: the OAuth clients that people have allowed at a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from interlock.cli import config_option
from interlock.cli.database_options import database_of, principal_of
from interlock.cli.gateway.recorder import OPERATOR, open_recorder
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_json, emit_list, say
from interlock.errors import InvalidArguments

if TYPE_CHECKING:
    from interlock.config import Config
    from interlock.gateway.front_door.operating import ClientOperations
    from interlock.store.database.claims import Claim
    from interlock.store.database.recorded import Record
    from interlock.types import JsonObject

_T = TypeVar("_T")
_client = click.argument("client", metavar="CLIENT")


@click.group()
def clients() -> None:
    """List, block and create the OAuth clients of a gateway, and end their access.

    A gateway with "auth": {"oauth": {}} lets people log in from Claude.ai, ChatGPT, Cursor and
    other clients. CLIENT is a client's id; show, block and revoke also take its name if no other
    client has it; block and allow also take a host such as chatgpt.com, "localhost", or "cursor:"
    for an app. A running gateway notices a change within two seconds.

    \b
    Example:
      interlock clients list
      interlock clients revoke --user anna
    """


@clients.command("list")
@config_option.json_option
@config_option.config_option
def list_(as_json: bool, config: Path | None) -> None:
    """List the clients, with how many people use each of them.

    \b
    Example:
      interlock clients list
    """
    found = _with(config_option.load(config), lambda operations: operations.list())
    emit_list(
        found,
        lambda each: (
            each["client"],
            each["state"],
            each.get("verified") or (f'"{each["name"]}"' if each["name"] else "-"),
            _people(each.get("people", 0)),
            f"used {each['lastUsed'][:16]}Z" if each.get("lastUsed") else "never used",
        ),
        none="no clients yet: people connect them with the gateway's URL only",
        as_json=as_json,
    )


@clients.command()
@_client
@config_option.json_option
@config_option.config_option
def show(client: str, as_json: bool, config: Path | None) -> None:
    """Show what people have allowed to a client, and what has ended.

    \b
    Example:
      interlock clients show https://claude.ai/oauth/mcp-oauth-client-metadata
    """

    async def work(operations: ClientOperations) -> Sequence[JsonObject]:
        return await operations.show(await operations.find(client))

    found = _with(config_option.load(config), work)
    emit_list(
        found,
        lambda each: (
            each["id"],
            each["state"],
            each["user"],
            " ".join(each["scopes"]),
            each.get("view", "-"),
            f"used {each['lastUsed'][:16]}Z",
        ),
        none=f"nobody has allowed the client {client}",
        as_json=as_json,
    )


@clients.command()
@_client
@config_option.config_option
def block(client: str, config: Path | None) -> None:
    """Refuse a client from now on, and end its access.

    \b
    Example:
      interlock clients block chatgpt.com
    """

    async def work(operations: ClientOperations) -> tuple[str, int]:
        id = await operations.find(client)
        return id, await operations.decide(id, "blocked")

    blocked, found = _with(config_option.load(config), work)
    say(f"blocked {blocked}; {_ended(found)}")


@clients.command()
@_client
@config_option.config_option
def allow(client: str, config: Path | None) -> None:
    """Let a client ask people, although it is blocked or not listed in auth.oauth.clients.

    \b
    Example:
      interlock clients allow chatgpt.com
    """
    _with(config_option.load(config), lambda each: each.decide(client, "allowed"))
    say(f"{client} may ask people from now on")


@clients.command()
@click.argument("id", metavar="[ID]", default="")
@click.option("--user", default="", metavar="USER", help="End all that this user has allowed.")
@click.option("--client", default="", metavar="CLIENT", help="End all access of this client.")
@config_option.config_option
def revoke(id: str, user: str, client: str, config: Path | None) -> None:
    """End access: one authorization by its ID, or all of a user or of a client.

    \b
    Example:
      interlock clients revoke --user anna
    """
    principal = principal_of(user) if user else ""

    async def work(operations: ClientOperations) -> int:
        try:
            of = await operations.find(client) if client else ""
            return len(await operations.revoke(id=id, user=principal, client=of))
        except InvalidArguments as error:
            raise click.UsageError(str(error)) from None

    say(_ended(_with(config_option.load(config), work)))


@clients.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--redirect",
    "redirects",
    multiple=True,
    required=True,
    metavar="URL",
    help="Where the answer goes. May be repeated.",
)
@click.option("--secret", "has_secret", is_flag=True, help="Print a secret that it must send.")
@click.option("--jwks", "jwks_url", default="", metavar="URL", help="Where its public keys are.")
@config_option.json_option
@config_option.config_option
def create(
    name: str,
    redirects: tuple[str, ...],
    has_secret: bool,
    jwks_url: str,
    as_json: bool,
    config: Path | None,
) -> None:
    """Create a client for a program that cannot register itself, and print its id.

    \b
    Example:
      interlock clients create Reports --redirect https://reports.example.com/callback --secret
    """

    async def work(operations: ClientOperations) -> JsonObject:
        try:
            created = await operations.create(
                name, redirects, has_secret=has_secret, jwks_url=jwks_url
            )
        except InvalidArguments as error:
            raise click.UsageError(str(error)) from None
        secret = {"secret": created.secret} if created.secret else {}
        return created.stored.as_json() | secret

    made = _with(config_option.load(config), work)
    if as_json:
        emit_json(made)
        return
    emit(made["client"])
    if has_secret:
        emit(made["secret"])
        say("the second line is the client's secret; it is not shown again")


def _people(count: int) -> str:
    return "1 person" if count == 1 else f"{count} people"


def _ended(count: int) -> str:
    return "1 access has ended" if count == 1 else f"{count} accesses have ended"


def _with(config: Config, work: Callable[[ClientOperations], Awaitable[_T]]) -> _T:
    async def opened() -> _T:
        async with _operations(config) as operations:
            return await work(operations)

    return run(opened())


@asynccontextmanager
async def _operations(config: Config) -> AsyncIterator[ClientOperations]:
    from interlock.gateway.front_door.operating import ClientOperations
    from interlock.store.authorizations import AuthorizationStore
    from interlock.store.database.database import open_database
    from interlock.store.oauth_clients import OAuthClientStore

    location = database_of(config)
    database = await open_database(location)
    try:
        async with open_recorder(config) as recorder:

            def recording(body: JsonObject) -> Record | None:
                if recorder is None:
                    return None

                async def record(claim: Claim, *_: object) -> None:
                    await recorder.write("client", body, claim)

                return record

            yield ClientOperations(
                AuthorizationStore(database),
                OAuthClientStore(database),
                recording,
                OPERATOR,
            )
    finally:
        await database.close()
