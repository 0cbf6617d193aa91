"""`interlock audit`: list the calls of all users, and verify that the records are complete."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args

import click

from interlock.cli import config_option
from interlock.cli.database_options import database_of
from interlock.cli.signals import run
from interlock.cli.terminal import (
    complain,
    emit,
    emit_json,
    emit_list,
    emit_table,
    safe_line,
    warn,
    working,
)
from interlock.errors import ConfigError
from interlock.store.audit.records import Status

if TYPE_CHECKING:
    from interlock.auth.gateway_key import GatewayKey, TrailKey
    from interlock.config import Config
    from interlock.store.audit.reading import AuditReader
    from interlock.store.audit.verification import Verification
    from interlock.types import JsonObject

_T = TypeVar("_T")
MAX_PROBLEM = 300  # characters of a problem; a writer of the database chooses some of them
STATUSES: tuple[str, ...] = get_args(Status)


class Moment(click.ParamType[int]):
    """A time option; its value is in microseconds since 1970, UTC."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the time of "2026-11-22", of "2026-11-22T10:00:00Z", or of "2h" ago."""
        from interlock.config.section import parse_moment

        found = parse_moment(str(value))
        if found is None:
            self.fail(
                f"{str(value)!r} is not a time such as 2026-11-22, 2026-11-22T10:00:00Z, or 2h for"
                " two hours ago",
                param,
                ctx,
            )
        return found


_since = click.option("--since", type=Moment(), metavar="T", help="Only from this time on.")
_until = click.option("--until", type=Moment(), metavar="T", help="Only before this time.")


@click.group()
def audit() -> None:
    """List and verify the audit trail, whether a gateway is running or not.

    A time T is a date, a date with a time in UTC, or an age such as 2h or 7d.

    \b
    Example:
      interlock audit list --user user:anna --since 2h
      interlock audit verify
    """


@audit.command("list")
@click.option("--user", default="", metavar="U", help="Calls of one user, such as user:anna.")
@click.option("--key", default="", metavar="ID", help="Calls with one key.")
@click.option("--tool", default="", metavar="ADDRESS", help="Calls of one tool.")
@click.option("--status", default="", metavar="S", help=f"One of {', '.join(STATUSES)}.")
@click.option("--reason", default="", metavar="R", help="A reason, such as denied_by_rule.")
@_since
@_until
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="Longest list."
)
@config_option.json_option
@config_option.config_option
def list_(
    user: str,
    key: str,
    tool: str,
    status: str,
    reason: str,
    since: int | None,
    until: int | None,
    limit: int,
    as_json: bool,
    config: Path | None,
) -> None:
    """List calls and refusals, newest first.

    \b
    Example:
      interlock audit list --tool crm:refund --status refused
      interlock audit list --since 7d --json | jq -r '.[].user' | sort | uniq -c
    """
    if status and status not in STATUSES:
        raise click.BadParameter(f"must be one of {', '.join(STATUSES)}", param_hint="--status")

    async def work(reader: AuditReader) -> list[JsonObject]:
        from interlock.auth.principal import principal_id
        from interlock.store.audit.reading import CallFilter

        of = principal_id(user) if user else ""
        wanted = CallFilter(
            user=of, key=key, tool=tool, status=status, reason=reason, since=since, until=until
        )
        return await reader.calls(wanted, limit=limit)

    calls = _with_reader(config_option.load(config), work)
    emit_list(
        calls,
        lambda each: (
            each["at"],
            each.get("call", "-"),
            each.get("user", "-"),
            each.get("tool", "-"),
            each["status"],
            f"{each['ms']:.1f} ms" if isinstance(each.get("ms"), int | float) else "-",
            _remarks(each),
        ),
        none="no such calls",
        as_json=as_json,
    )


@audit.command()
@click.argument("call", metavar="CALL")
@config_option.json_option
@config_option.config_option
def show(call: str, as_json: bool, config: Path | None) -> int:
    """Show all records of one call, oldest first.

    \b
    Example:
      interlock audit show c_67av94jgm8vrkfkyzb
    """
    records = _with_reader(config_option.load(config), lambda reader: reader.records(call))
    if not records:
        complain(f"no call {call!r}: see `interlock audit list`")
        return 1
    if as_json:
        emit_json(records)
        return 0
    for index, record in enumerate(records):
        if index:
            emit()
        emit_table((name, _text(value)) for name, value in record.items())
    return 0


@audit.command()
@_since
@_until
@click.option(
    "--follow", is_flag=True, help="Then print each new record as it is written, until a signal."
)
@config_option.config_option
def export(since: int | None, until: int | None, follow: bool, config: Path | None) -> None:
    """Print all records, one JSON object a line.

    Prints one chain after another, each in its order. The members `writer` and `seq` identify a
    record.

    \b
    Example:
      interlock audit export --since 2026-11-01 --until 2026-12-01 > november.jsonl
      interlock audit export --since 1h --follow | vector --config siem.toml
    """
    import msgspec

    if follow and until is not None:
        raise click.UsageError("--until and --follow exclude each other")

    async def work(reader: AuditReader) -> None:
        encode = msgspec.json.Encoder().encode
        if follow:
            async for found in reader.follow(since, lambda problem: warn(f"{problem}; retrying")):
                await _write(b"".join(encode(each) + b"\n" for each in found))
        async for records in reader.export(since, until):
            sys.stdout.write("".join(f"{encode(each).decode()}\n" for each in records))

    _with_reader(config_option.load(config), work)


@audit.command()
@click.option(
    "--head",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    metavar="PATH",
    help="A copy of the trail (gateway.audit.copy): its folder or a file, to detect that the "
    "trail is older or cut. Several gateways have several copies.",
)
@config_option.json_option
@config_option.config_option
def verify(head: tuple[Path, ...], as_json: bool, config: Path | None) -> int:
    """Check that no record was changed, removed, moved or added.

    Exits with 1 if something is wrong, and names the writer and the record.

    \b
    Example:
      interlock audit verify
      interlock audit verify --head /mnt/other/audit-copy
    """
    found = config_option.load(config)

    async def work(reader: AuditReader) -> Verification:
        from interlock.auth.gateway_key import FILE_NAME
        from interlock.store.database.location import folder_beside

        key = _key(found)
        if key is None:
            raise ConfigError(
                "the audit trail is verified with the key that wrote it: put that key into "
                f"{folder_beside(database_of(found)) / FILE_NAME}, or set INTERLOCK_KEY"
            )
        await reader.complete(key)
        from interlock.config.gateway_reading import resolve
        from interlock.store.audit.copies import copy_folder
        from interlock.store.audit.copy_reading import read_copy

        if head:
            return await reader.verify(key, read_copy(head, key))
        folder = copy_folder(resolve(found, os.environ).audit, database_of(found))
        if not folder.is_dir():
            return await reader.verify(key)
        hosts = frozenset((socket.gethostname(),))  # gateways on other hosts have their own copies
        return await reader.verify(key, read_copy([folder], key, hosts=hosts))

    with working("verifying the audit trail"):
        result = _with_reader(found, work)
    if as_json:
        emit_json(result.as_json())
    else:
        emit(_summary(result))
        for problem in result.problems:
            emit(safe_line(str(problem), MAX_PROBLEM))
        if result.total > len(result.problems):
            emit(f"and {result.total - len(result.problems):,} more")
    return int(bool(result.total))


@audit.command("hash")
@click.argument("arguments", metavar="JSON")
@config_option.config_option
def hash_(arguments: str, config: Path | None) -> None:
    """Print the hash of a call's arguments as the trail records it.

    The order of members and the whitespace do not matter. If the gateway's key was replaced, the
    hashes of before follow, one a line.

    \b
    Example:
      interlock audit export | grep -e "$(interlock audit hash '{"amount": 80}')"
    """
    import msgspec

    from interlock.layers.audit import ARGUMENTS_KEY, arguments_hash, canonical
    from interlock.store.database.key_loading import load_key

    try:
        decoded = msgspec.json.decode(arguments)
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="JSON") from None
    if not isinstance(decoded, dict):
        raise click.BadParameter("arguments must be a JSON object", param_hint="JSON")
    loaded = config_option.load(config)
    key = run(load_key(database_of(loaded)))
    _with_reader(loaded, lambda reader: reader.complete(key))
    keys: list[TrailKey] = [key, *reversed(key.retired)]
    for each in keys:
        emit(arguments_hash(each.derive(ARGUMENTS_KEY), canonical(decoded)))


async def _write(lines: bytes) -> None:
    """Write to stdout in a thread, so that a signal ends the command though its reader is slow."""
    from interlock import aio

    def write() -> None:
        rest = memoryview(lines)
        while rest:  # not through `sys.stdout`, whose lock would delay the end of the process
            rest = rest[os.write(sys.stdout.fileno(), rest) :]

    await aio.in_thread(write)


# Reading


def _with_reader(config: Config, work: Callable[[AuditReader], Awaitable[_T]]) -> _T:
    async def opened() -> _T:
        from interlock.store import AuditReader

        async with AuditReader.open(database_of(config)) as reader:
            return await work(reader)

    return run(opened())


def _key(config: Config) -> GatewayKey | None:
    from interlock.auth.gateway_key import GatewayKey
    from interlock.store.database.location import folder_beside

    folder = folder_beside(database_of(config))
    return GatewayKey.load(folder) if GatewayKey.exists(folder) else None


# Output


def _summary(result: Verification) -> str:
    from interlock.text.timestamps import rfc3339

    days = [str(rfc3339(at))[:10] for at in (result.first, result.last) if at is not None]
    when = f", {days[0]} to {days[1]}" if days else ""
    writers = f"{result.writers} writer{'s' * (result.writers != 1)}"
    problems = f"{result.total:,} problem{'s' * (result.total != 1)}"
    verdict = problems if result.total else "whole"
    records = f"{result.records:,} record{'s' * (result.records != 1)}"
    return f"{records} of {writers}{when}: {verdict}"


def _remarks(call: JsonObject) -> str:
    damaged = f"damaged: {', '.join(call['damaged'])}" if "damaged" in call else ""
    return " ".join(filter(None, (call.get("reason", ""), damaged)))


def _text(value: object) -> str:
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
