"""`interlock lock`: accept or reject the definitions of tools, prompts and servers."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from interlock.cli import completion, config_option
from interlock.cli.database_options import database_of
from interlock.cli.gateway.recorder import OPERATOR, Recorder, open_recorder
from interlock.cli.signals import run
from interlock.cli.terminal import complain, emit, emit_json, emit_table, is_terminal, say

if TYPE_CHECKING:
    from interlock.config import Config
    from interlock.gateway.definitions.decisions import Definitions, Record, Shown
    from interlock.store.database.claims import Claim
    from interlock.store.pin import Pin
    from interlock.store.pins import Change

_T = TypeVar("_T")
_SHOWN_HASH = 12  # digits of a hash that are shown
_address = click.argument("address", metavar="ADDRESS", shell_complete=completion.addresses)
_hash = click.option(
    "--hash", "hash", default="", metavar="H", help="Hash of the definition that was shown to you."
)


@click.group()
def lock() -> None:
    """Accept or reject the definitions that servers offer.

    The first list of a server is accepted. After that, a changed or additional tool waits, and is
    not offered until you accept it. ADDRESS is SERVER:TOOL, or SERVER for the launch command and
    the instructions of the server itself. A running gateway applies a decision within two seconds.

    \b
    Example:
      interlock lock status
      interlock lock diff crm:refund
      interlock lock accept crm:refund
    """


@lock.command()
@click.argument("server", required=False, shell_complete=completion.servers)
@config_option.json_option
@config_option.config_option
def status(server: str | None, as_json: bool, config: Path | None) -> None:
    """List the definitions with their states: accepted, changed, new or gone.

    \b
    Example:
      interlock lock status
      interlock lock status crm --json | jq -r '.[] | select(.state == "changed").tool'
    """
    from interlock.gateway.definitions.decisions import as_json as pin_as_json

    pins = _with_definitions(config_option.load(config), lambda each: each.list(server))
    if as_json:
        emit_json([pin_as_json(each) for each in pins])
        return
    emit_table(
        (
            each.address,
            "" if each.kind == "tool" else each.kind,
            each.state,
            _day(each.since),
            (each.seen_hash or each.hash or "-")[:_SHOWN_HASH],
            ", ".join(_remarks(each)),
        )
        for each in pins
    )
    if rewritten := sum(each.is_rewritten for each in pins):
        say(f"{_count(rewritten)} written differently: see `interlock lock accept --upgrade`")
    waiting = sum(each.waits for each in pins)
    if waiting:
        say(f"{waiting} of {len(pins)} wait: see `interlock lock diff ADDRESS`")
    if not pins:
        say("no definitions yet; they are recorded when a gateway lists the tools of its servers")


@lock.command()
@_address
@config_option.json_option
@config_option.config_option
def diff(address: str, as_json: bool, config: Path | None) -> None:
    """Show how a definition differs from the accepted one, and its hash.

    Invisible characters are shown as escapes.

    \b
    Example:
      interlock lock diff crm:refund
    """
    found = _with_definitions(config_option.load(config), lambda each: each.show(address))
    if as_json:
        emit_json([each.as_json() for each in found])
        return
    for each in found:
        _show(each.pin, each.lines)


@lock.command()
@click.argument("address", metavar="ADDRESS", default="", shell_complete=completion.addresses)
@_hash
@click.option("--risk-from-hints", is_flag=True, help="Adopt the risk that the server states.")
@click.option(
    "--upgrade",
    is_flag=True,
    help="Accept what only an upgrade of interlock has changed, at all servers.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@config_option.json_option
@config_option.config_option
def accept(
    address: str,
    hash: str,
    risk_from_hints: bool,
    upgrade: bool,
    yes: bool,
    as_json: bool,
    config: Path | None,
) -> int:
    """Accept a changed definition, or all waiting definitions of a server.

    Shows the definition first and asks. With --hash, accepts without a question, but only the
    definition with this hash; if the server offers another one by now, accepts nothing.

    After an upgrade, interlock may write the same definitions differently. They stay in use until
    --upgrade accepts them, with one summary of what has changed. A definition that has also changed
    at its server waits, and is not accepted by --upgrade.

    \b
    Example:
      interlock lock accept crm:refund
      interlock lock accept --upgrade
      interlock lock accept crm:refund --hash 3f2a… --risk-from-hints
      interlock lock accept crm --yes
    """
    if upgrade == bool(address) or (upgrade and hash):
        raise click.UsageError("name an ADDRESS, or give --upgrade alone")
    found = config_option.load(config)

    async def read(definitions: Definitions) -> list[Shown]:
        named = definitions.rewritten() if upgrade else _named(definitions, address, hash)
        return [definitions.shown(each) for each in await named]

    shown = _with_definitions(found, read)
    if not shown:
        none = "no definition is" if upgrade else f"no definitions of {address} are"
        say(f"{none} {'written differently' if upgrade else 'waiting'}")
        return 0
    if not hash and not _agreed(shown, yes, in_summary=upgrade):
        return 1

    async def work(definitions: Definitions) -> list[Pin]:
        return [
            await definitions.accept(each.pin, hash or each.hash, risk_from_hints=risk_from_hints)
            for each in shown
        ]

    _say_accepted(_change(found, work), as_json=as_json, in_summary=upgrade)
    return 0


@lock.command()
@_address
@_hash
@config_option.json_option
@config_option.config_option
def reject(address: str, hash: str, as_json: bool, config: Path | None) -> None:
    """Reject a definition, so that it is not offered; forget one that the server has removed.

    An accepted tool waits from then on, as if it were new.

    \b
    Example:
      interlock lock reject crm:refund
    """
    from interlock.gateway.definitions.decisions import as_json as pin_as_json

    async def work(definitions: Definitions) -> list[Pin | None]:
        named = await definitions.find(address)
        return [await definitions.reject(each, hash or None) for each in named]

    after = [each for each in _change(config_option.load(config), work) if each is not None]
    if as_json:
        emit_json([pin_as_json(each) for each in after])
    say(f"rejected {address}" if after else f"forgot {address}")


@lock.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@config_option.config_option
def export(file: Path, config: Path | None) -> None:
    """Write all accepted definitions to FILE, to be reviewed and used as gateway.lock.file.

    \b
    Example:
      interlock lock export lock.json
    """
    count = _with_definitions(config_option.load(config), lambda each: each.export(file))
    say(f"wrote {count} definitions to {file}")


@lock.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@config_option.config_option
def import_(file: Path, config: Path | None) -> None:
    """Accept exactly the definitions that FILE lists for its servers.

    \b
    Example:
      interlock lock import lock.json
    """
    accepted = _change(config_option.load(config), lambda each: each.import_file(file))
    say(f"accepted {len(accepted)} definitions of {file}")


# Reading and deciding


async def _named(definitions: Definitions, address: str, hash: str) -> list[Pin]:
    """Return the definitions that a command names: a tool's, or all of a server's that wait."""
    if ":" in address:
        found = await definitions.find(address)
        several = hash and len(found) > 1  # a tool and a prompt have the same name
        return [each for each in found if each.seen_hash == hash] if several else found
    waiting = await definitions.waiting(address)
    if hash:
        return [each for each in waiting if each.seen_hash == hash] or await definitions.find(
            address
        )
    if not waiting:
        await definitions.find(address)  # raises an error if it does not exist
    return waiting


def _agreed(shown: list[Shown], yes: bool, *, in_summary: bool) -> bool:
    if in_summary:
        _summarise([each.pin for each in shown])
    for each in () if in_summary else shown:
        _show(each.pin, each.lines)
    if yes:
        return True
    if not is_terminal(sys.stdin):
        ways = "--yes" if in_summary else "--hash with the hash that was shown, or --yes"
        complain(f"nothing was accepted: add {ways}")
        return False
    count = f"these {_count(len(shown))}" if len(shown) > 1 else "it"
    return click.confirm(f"accept {count}?", err=True)


def _with_definitions(config: Config, work: Callable[[Definitions], Awaitable[_T]]) -> _T:
    async def opened() -> _T:
        async with _open(config, None) as definitions:
            return await work(definitions)

    return run(opened())


def _change(config: Config, work: Callable[[Definitions], Awaitable[_T]]) -> _T:
    async def opened() -> _T:
        async with (
            open_recorder(config) as recorder,
            _open(config, _recording(recorder)) as definitions,
        ):
            return await work(definitions)

    return run(opened())


@asynccontextmanager
async def _open(config: Config, record: Record | None) -> AsyncIterator[Definitions]:
    from interlock.gateway.definitions.decisions import Definitions
    from interlock.store.database.database import open_database
    from interlock.store.pins import PinStore

    file = None
    if config.gateway is not None and config.gateway.lock.mode == "strict":
        folder = config.path.parent if config.path is not None else Path()
        file = folder / config.gateway.lock.file
    database = await open_database(database_of(config))
    try:
        yield Definitions(PinStore(database), by=OPERATOR, record=record, file=file)
    finally:
        await database.close()


def _recording(recorder: Recorder | None) -> Record | None:
    if recorder is None:
        return None
    from interlock.gateway.definitions.decisions import decision_of

    async def record(decision: str, claim: Claim | None, changes: Sequence[Change]) -> None:
        about = [decision_of(decision, each) for each in changes]
        await recorder.write_all("pin", about, claim)

    return record


# Output


def _show(pin: Pin, lines: list[str]) -> None:
    emit(f"{_what(pin)}: {pin.state} since {_day(pin.since)}")
    for line in lines:
        emit(line)
    emit(f"hash {pin.seen_hash or pin.hash}")


def _say_accepted(pins: list[Pin], *, as_json: bool, in_summary: bool) -> None:
    from interlock.gateway.definitions.decisions import as_json as pin_as_json

    if as_json:
        emit_json([pin_as_json(each) for each in pins])
    if in_summary:
        say(f"accepted {_count(len(pins))}")
    for each in () if in_summary else pins:
        say(f"accepted {_what(each)}" + (f", risk {each.risk}" if each.risk else ""))


def _summarise(pins: list[Pin]) -> None:
    from interlock.gateway.definitions.decisions import summary

    servers = len({each.server for each in pins})
    emit(
        f"{_count(len(pins))} of {servers} servers differ only because this interlock writes them"
        " differently; the servers have not changed them:"
    )
    emit_table(
        (str(len(having)), kind, f"such as {having[0].address}") for kind, having in summary(pins)
    )
    emit("see one: interlock lock diff ADDRESS")


def _count(number: int) -> str:
    return f"{number} definition{'' if number == 1 else 's'}"


def _remarks(pin: Pin) -> Iterator[str]:
    if pin.risk:
        yield f"risk {pin.risk}"
    if pin.is_rewritten:
        yield "written differently"


def _what(pin: Pin) -> str:
    names = {"tool": pin.address, "prompt": f"prompt {pin.address}"}
    return names.get(pin.kind, f"server {pin.server} (launch and instructions)")


def _day(micros: int) -> str:
    from interlock.text.timestamps import rfc3339

    return (rfc3339(micros) or "")[:10]
