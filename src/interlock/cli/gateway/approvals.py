"""`interlock approvals`: list calls that wait for a person, and decide about them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from interlock.cli import config_option
from interlock.cli.database_options import database_of
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_json, emit_list, emit_table, safe_line, say
from interlock.text.quoting import visible_json

if TYPE_CHECKING:
    from interlock.config import Config
    from interlock.layers.approvals import Approvals
    from interlock.store.approvals import Approval, State
    from interlock.types import JsonObject

_T = TypeVar("_T")
_id = click.argument("id", metavar="ID")
_note = click.option("--note", default="", metavar="TEXT", help="The reason, for the record.")
OPEN: tuple[State, ...] = ("pending", "approved")


@click.group()
def approvals() -> None:
    """List, approve and deny the calls that wait for a person.

    They are in the database that `gateway.database` names in the file of servers, else in that of
    your conversations. A running gateway notices a decision within two seconds.

    \b
    Example:
      interlock approvals list
      interlock approvals approve a_5f0c2d9e8b7a6f41 --note "ticket 4711"
    """


@approvals.command("list")
@click.option("--all", "is_all", is_flag=True, help="Include used, denied and expired approvals.")
@config_option.json_option
@config_option.config_option
def list_(is_all: bool, as_json: bool, config: Path | None) -> None:
    """List the approvals that are open, newest first.

    \b
    Example:
      interlock approvals list
      interlock approvals list --all --json | jq -r '.[] | select(.state == "denied").tool'
    """

    async def work(opened: Approvals) -> list[JsonObject]:
        return [opened.shown(each) for each in await opened.list(None if is_all else OPEN)]

    found = _with_approvals(config_option.load(config), work)
    emit_list(
        found,
        lambda each: (
            each["id"],
            each["state"],
            each["user"],
            each["tool"],
            f"rule {each['rule']}",
            f"until {each['expires'][:16]}Z",
            " or ".join(each["approvers"]),
        ),
        none="no calls wait for an approval",
        as_json=as_json,
    )


@approvals.command()
@_id
@config_option.json_option
@config_option.config_option
def show(id: str, as_json: bool, config: Path | None) -> None:
    """Show one approval with all arguments of its call.

    \b
    Example:
      interlock approvals show a_5f0c2d9e8b7a6f41
    """

    async def work(opened: Approvals) -> JsonObject:
        return opened.shown(await opened.get(id))

    shown = _with_approvals(config_option.load(config), work)
    if as_json:
        emit_json(shown)
        return
    arguments = shown.pop("arguments", None)
    emit_table((member, _text(value)) for member, value in shown.items())
    emit("arguments")
    emit("unreadable: sealed with another key" if arguments is None else visible_json(arguments))


@approvals.command()
@_id
@_note
@config_option.json_option
@config_option.config_option
def approve(id: str, note: str, as_json: bool, config: Path | None) -> None:
    """Approve one call with exactly the arguments that are shown.

    The caller must make the call again, unchanged, before the approval expires. It runs once.

    \b
    Example:
      interlock approvals approve a_5f0c2d9e8b7a6f41
    """

    async def work(opened: Approvals) -> JsonObject:
        found = await _told(opened, id)
        decided = await opened.approve(id, found.hash, None, note=note, surface="cli")
        return opened.shown(decided)

    _show_decided(_with_approvals(config_option.load(config), work, decides=True), as_json)


@approvals.command()
@_id
@_note
@config_option.json_option
@config_option.config_option
def deny(id: str, note: str, as_json: bool, config: Path | None) -> None:
    """Deny one call, also one that was approved and has not run yet.

    The model that made the call reads the note.

    \b
    Example:
      interlock approvals deny a_5f0c2d9e8b7a6f41 --note "the order was refunded already"
    """

    async def work(opened: Approvals) -> JsonObject:
        found = await _told(opened, id)
        decided = await opened.deny(id, found.hash, None, note=note, surface="cli")
        return opened.shown(decided)

    _show_decided(_with_approvals(config_option.load(config), work, decides=True), as_json)


async def _told(opened: Approvals, id: str) -> Approval:
    """Print an approval's call, and return the approval."""
    found = await opened.get(id)
    say(safe_line(f"{found.tool} for {found.user}, rule {found.rule}. Its arguments:"))
    if found.arguments is None:
        say("unreadable: sealed with another key")
    else:
        say(visible_json(found.arguments))
    return found


def _show_decided(decided: JsonObject, as_json: bool) -> None:
    if as_json:
        emit_json(decided)
    say(f"{decided['state']} {decided['id']}, until {decided['expires']}")


def _text(value: object) -> str:
    return " or ".join(value) if isinstance(value, list) else str(value)


def _with_approvals(
    config: Config, work: Callable[[Approvals], Awaitable[_T]], *, decides: bool = False
) -> _T:
    async def opened() -> _T:
        from interlock.gateway.client_approvals import approvals_in

        async with approvals_in(config, database_of(config), decides=decides) as found:
            return await work(found)

    return run(opened())
