"""`interlock db`: back up, restore and move the database, and replace its key."""

from __future__ import annotations

import os
from pathlib import Path

import click

from interlock.cli import config_option
from interlock.cli.database_options import database_of
from interlock.cli.signals import run
from interlock.cli.terminal import emit, say, working

_BACKGROUND = 10  # niceness: calls of a gateway on this machine come first


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
    help="Write the gateway's key to a new FILE, outside of FOLDER. Whoever has both can read "
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
    from interlock.store.backup.saving import ProgramMissing, back_up

    location = database_of(config_option.load(config))
    os.nice(_BACKGROUND)
    try:
        with working("backing up"):
            saved = run(back_up(location, folder.absolute(), key_file=key_file))
    except ProgramMissing as error:
        emit(error.line)
        raise
    emit(str(folder.absolute()))
    say(f"backed up: {saved.files} files, {saved.bytes:,} bytes")


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
    from interlock.store.database.schema_version import REVISION

    location = database_of(config_option.load(config))
    added = run(pending(location) if dry_run else upgrade(location))
    for each in added:
        emit(each)
    done = "would be upgraded" if dry_run else "was upgraded"
    say(f"{public(location)} {done if added else 'needs nothing'}: version {REVISION}")


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
