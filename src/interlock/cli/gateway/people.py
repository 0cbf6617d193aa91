"""`interlock people`: erase what belongs to a person."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interlock.cli import config_option
from interlock.cli.database_options import database_of, principal_of
from interlock.cli.gateway.recorder import open_recorder
from interlock.cli.signals import run
from interlock.cli.terminal import emit_table, is_terminal, say

if TYPE_CHECKING:
    from interlock.auth.gateway_key import GatewayKey
    from interlock.config import Config
    from interlock.config.gateway import Audit
    from interlock.store.people import PersonalData


@click.group()
def people() -> None:
    """Erase what a gateway's database contains of a person.

    \b
    Example:
      interlock people forget anna
    """


@people.command()
@click.argument("user", metavar="USER")
@click.option("--yes", is_flag=True, help="Erase without asking.")
@config_option.config_option
def forget(user: str, yes: bool, config: Path | None) -> None:
    """Erase what the gateway's database contains of USER, and revoke the user's keys.

    Shows first what would be erased: conversations, files, credentials, kept results, approvals,
    sessions and plugins. A running gateway notices it within two seconds. The audit records and
    this machine's copy of them stay, with a pseudonym instead of the user's name: see "Security" in
    the documentation. USER may be ISSUER#SUBJECT of a token.

    \b
    Example:
      interlock people forget anna
      interlock people forget anna --yes
    """
    run(_forget(config_option.load(config), principal_of(user), yes))


async def _forget(config: Config, principal: str, yes: bool) -> None:
    from interlock.config.gateway_reading import resolve
    from interlock.store.audit.names import Pseudonyms
    from interlock.store.database.key_loading import load_key
    from interlock.store.database.key_owner import open_owned
    from interlock.store.kept_results import delete_files
    from interlock.store.people import PeopleStore

    location = database_of(config)
    key = await load_key(location)
    database = await open_owned(location, key)
    try:
        store = PeopleStore(database)
        found = await store.find(principal)
        _show(principal, found)
        if not yes:
            if not is_terminal(sys.stdin):
                raise click.UsageError("cannot ask for confirmation without a terminal; add --yes")
            click.confirm(f"Erase this of {principal}?", abort=True, err=True)
        pseudonym = Pseudonyms(key)[principal]
        body = {"action": "person_forgotten", "person": pseudonym, "erased": found.counts}
        async with open_recorder(config) as recorder:
            record = None if recorder is None else partial(recorder.write, "admin", body)
            await store.forget(principal, found, pseudonym, record=record)
        delete_files(location, found.files)
        audit = resolve(config, os.environ).audit
        renamed = await _forget_in_trail(audit, location, principal, key)
    finally:
        await database.close()
    records = "1 audit record" if renamed == 1 else f"{renamed} audit records"
    say(f"erased; {records} and the decisions that stay show {pseudonym} instead of the name")


async def _forget_in_trail(
    settings: Audit, location: str | None, principal: str, key: GatewayKey
) -> int:
    """Replace a name in the audit trail and its copy; return the number of changed records."""
    from interlock.store.audit.copies import copy_folder
    from interlock.store.audit.forgetting import forget_in_copy, forget_in_trail
    from interlock.store.audit.writer import open_tables

    tables = open_tables(location)
    try:
        renamed = await forget_in_trail(tables, principal, key)
    finally:
        await tables.close()
    folder = copy_folder(settings, location)
    try:
        forget_in_copy(folder, principal, key)
    except OSError as error:
        text = f"the copy in {folder} still has the name: {error.strerror}; run this again"
        raise click.ClickException(text) from None
    return renamed


def _show(principal: str, found: PersonalData) -> None:
    emit_table((name, str(count)) for name, count in found.counts.items() if count)
    if not any(found.counts.values()):
        say(f"the database contains nothing of {principal} but audit records")
