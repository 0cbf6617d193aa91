"""`interlock db`: back up, restore and move the database, and replace its key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interlock.cli import config_option
from interlock.cli.database_options import database_of
from interlock.cli.signals import run
from interlock.cli.terminal import emit, say, warn, working

if TYPE_CHECKING:
    from interlock.auth.gateway_key import GatewayKey
    from interlock.types import JsonObject

_BACKGROUND = 19  # the niceness of a backup: calls of a gateway on this machine come first


@click.group()
def db() -> None:
    """Back up, restore, upgrade, check and move the database, and replace its key.

    \b
    Example:
      interlock db backup /mnt/backups/2026-11-28
    """


@db.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--with-key",
    "key_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write the gateway's key to a new FILE, outside of FOLDER. A thief of both can read "
    "everything.",
)
@config_option.config_option
def backup(folder: Path, key_file: Path | None, config: Path | None) -> None:
    """Back up the database to a new FOLDER, while gateways use it.

    Includes the kept results beside a SQLite file and the signed heads of the audit trail, but
    neither the gateway's key nor the configuration. PostgreSQL needs its program pg_dump; without
    it, the command prints the line to type where it is installed, and fails.

    \b
    Example:
      interlock db backup /mnt/backups/2026-11-28
      interlock db backup /mnt/backups/first --with-key /media/safe/gateway.key
    """
    from interlock.store.backup.saving import back_up

    location = database_of(config_option.load(config))
    os.nice(_BACKGROUND)
    with working("backing up"):
        saved = run(back_up(location, folder.absolute(), key_file=key_file))
    emit(str(folder.absolute()))
    files = "1 file" if saved.files == 1 else f"{saved.files} files"
    say(f"backed up: {files}, {saved.bytes:,} bytes")


@db.command("restore")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@config_option.config_option
def restore_(folder: Path, config: Path | None) -> None:
    """Restore the backup in FOLDER, where the configured database does not exist yet.

    The gateway's key must be here before: in gateway.key beside the database, or in INTERLOCK_KEY.
    Afterwards, API keys that were revoked after the backup are valid again.

    \b
    Example:
      interlock db restore /mnt/backups/2026-11-28
      interlock audit verify
    """
    from interlock.store.backup.restoring import restore
    from interlock.store.database.location import find, public_name

    location = database_of(config_option.load(config))
    with working("restoring"):
        manifest = run(restore(location, folder.absolute()))
    found = find(location)
    emit(public_name(found) if isinstance(found, str) else str(found))
    say(f"restored the backup of {manifest.created}")
    say("check it with `interlock audit verify`; keys revoked after the backup are valid again")


@db.command()
@click.option("--dry-run", is_flag=True, help="Show what would be added, and change nothing.")
@config_option.config_option
def upgrade(dry_run: bool, config: Path | None) -> None:
    """Create the database's tables, or add what those of an older interlock lack.

    A program adds it by itself when it opens the database, within some seconds. Use this command
    where that takes longer, where programs may not change tables, or if a program refuses to do it,
    because older programs could not use the tables any more.

    \b
    Example:
      interlock db upgrade --dry-run
      interlock db upgrade
    """
    from interlock.store.database.location import public
    from interlock.store.database.maintenance import pending, upgrade

    location = database_of(config_option.load(config))
    revision, added = run(pending(location) if dry_run else upgrade(location))
    for each in added:
        emit(each)
    done = "would be upgraded" if dry_run else "was upgraded"
    say(f"{public(location)} {done if added else 'needs nothing'}: version {revision}")


@db.command()
@config_option.config_option
def check(config: Path | None) -> int:
    """Check the database's tables, its integrity, and whether the gateway's key belongs to it.

    Changes nothing. The exit code is 1 if there is a problem. `interlock audit verify` checks the
    audit records.

    \b
    Example:
      interlock db check
    """
    from interlock.store.database.maintenance import check

    with working("checking"):
        about, problems = run(check(database_of(config_option.load(config))))
    for each in problems:
        emit(each)
    say(f"{about}, problems: {len(problems)}")
    return 1 if problems else 0


@db.command("copy")
@click.argument("sqlite", metavar="SQLITE", type=click.Path(path_type=Path))
@click.argument("postgres", metavar="POSTGRES")
def copy_(sqlite: Path, postgres: str) -> None:
    """Copy the database in the file SQLITE into the empty database at the URL POSTGRES.

    No gateway may serve from the file. An interrupted copy is continued by the same command. The
    URL has no password, which would be visible to other users: set PGPASSWORD, or write '${VAR}'
    for a variable with the URL.

    \b
    Example:
      interlock db copy conversations.db postgresql://interlock@db.example.com/interlock
      interlock db copy conversations.db '${DATABASE_URL}'
    """
    from interlock.auth.gateway_key import GatewayKey
    from interlock.config.variables import fill
    from interlock.store.backup.moving import copy_database
    from interlock.store.database.location import public_name, without_links

    url = fill(postgres, "POSTGRES", os.environ)
    if not url.startswith(("postgresql://", "postgres://")):
        raise click.BadParameter("must be a postgresql:// URL", param_hint="POSTGRES")
    if url == postgres and _has_password(url):
        raise click.BadParameter(
            "the URL contains a password, which other users can see: set PGPASSWORD, or write"
            " '${DATABASE_URL}' and set that variable",
            param_hint="POSTGRES",
        )
    path = sqlite.absolute()
    beside = without_links(path).parent
    key = GatewayKey.load(beside) if GatewayKey.exists(beside) else None
    copied = run(copy_database(path, url, key, say))
    state = "was there already" if copied.is_old else "is complete"
    say(f"the copy {state}: {copied.rows:,} rows; now set gateway.database to its URL")
    emit(public_name(url))


def _has_password(url: str) -> bool:
    from interlock.store.backup.postgres_programs import environment_of

    return "PGPASSWORD" in environment_of(url)


@db.command("rotate-key")
@config_option.config_option
def rotate_key_(config: Path | None) -> None:
    """Replace the gateway's key, and encrypt everything again with the new one.

    End all gateways first. The new key is random, or that of INTERLOCK_NEW_KEY if the present one
    is in INTERLOCK_KEY. If the command is interrupted, run it again. Old audit records stay
    verifiable; the states of clients, such as sessions and open questions, end.

    \b
    Example:
      interlock db rotate-key
      INTERLOCK_NEW_KEY=$(openssl rand -hex 32) interlock db rotate-key
    """
    from interlock.config.gateway_reading import resolve
    from interlock.layers.audit import ARGUMENTS_KEY, arguments_hash, canonical
    from interlock.store.backup.key_rotation import rotate_key

    loaded = config_option.load(config)
    audit = resolve(loaded, os.environ).audit

    def hash_of(key: GatewayKey, arguments: JsonObject) -> str:
        return arguments_hash(key.derive(ARGUMENTS_KEY), canonical(arguments))

    with working("encrypting everything again"):
        rotation = run(rotate_key(database_of(loaded), audit, hash_of))
    emit(rotation.new)
    if (done := rotation.resealed) is not None:
        say(
            f"encrypted again: {done.credentials} credentials, {done.approvals} approvals,"
            f" {done.results} kept results, {done.people} people"
        )
        if done.ended:
            say(f"{done.ended} authorizations of OAuth clients have ended: people log in again")
        if done.unreadable:
            warn(f"{done.unreadable} of them could not be decrypted, and stay as they were")
    if rotation.kept is None:
        say(f"the key is {rotation.new}… now: set INTERLOCK_KEY to it everywhere")
    else:
        say(f"the old key is in {rotation.kept}: only backups of before need it")
