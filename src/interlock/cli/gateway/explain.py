"""`interlock explain`: show whether a call would be allowed, and why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interlock.cli import completion, config_option
from interlock.cli.database_options import check_view
from interlock.cli.explainers import open_explainer
from interlock.cli.servers.call import given_arguments, typed
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_json, emit_table, safe_line, say, warn

if TYPE_CHECKING:
    from interlock.calls import Caller
    from interlock.gateway.explain.explanation import Explanation
    from interlock.types import JsonObject


@click.command()
@click.argument("address", metavar="[ADDRESS]", default="", shell_complete=completion.addresses)
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1, shell_complete=completion.arguments)
@click.option("--key", "key_id", default="", metavar="ID", help="The key that makes the call.")
@click.option(
    "--user",
    default="",
    metavar="U",
    help="Instead of a key: a user such as anna, or ISSUER#SUBJECT, with the scope mcp:*.",
)
@click.option(
    "--arguments",
    metavar="JSON",
    help="The arguments as one JSON object, instead of or in addition to KEY=VALUE.",
)
@click.option("--view", default="", metavar="NAME", help="The view of the call, as at /mcp/NAME.")
@config_option.json_option
@config_option.config_option
def explain(
    address: str,
    pairs: tuple[str, ...],
    key_id: str,
    user: str,
    arguments: str | None,
    view: str,
    as_json: bool,
    config: Path | None,
) -> int:
    """Show whether a call would be allowed, and why: every check with its result.

    ADDRESS is a tool, SERVER:NAME, with arguments as for `interlock call`. Without arguments,
    shows whether the tool is listed. Without ADDRESS, lists all tools, each with the first check
    that it fails. The checks are the same as for a real call, and use the stored keys and the
    configuration file. A server is started only if its tools are unknown. The exit code is 1 if
    the call would be denied.

    \b
    Example:
      interlock explain --key 7fk2m9qdx3ha
      interlock explain --user anna crm:refund amount=80
    """
    if bool(key_id) == bool(user):
        raise click.UsageError("name either --key or --user")
    if address and not address.partition(":")[2]:
        raise click.BadParameter("is not an address; write SERVER:NAME", param_hint="ADDRESS")
    if arguments is not None and not address:
        raise click.UsageError("--arguments needs the ADDRESS of a tool")
    texts, values = given_arguments(pairs, arguments)
    has_arguments = bool(pairs) or arguments is not None
    found = config_option.load(config)
    check_view(found, view)

    async def work() -> int:
        async with open_explainer(found, key_id, user, view, address) as (explainer, caller, key):
            if not address:
                tools = explainer.all_tools(caller, key=key)
                return _show_all(tools, as_json)
            given = typed(texts, explainer.schema_of(address)) | values if has_arguments else None
            explained = await explainer.explain_call(caller, address, given, key=key)
            return _show(address, caller, explained, as_json)

    return run(work())


# Output


def _show(address: str, caller: Caller, explained: Explanation, as_json: bool) -> int:
    code = int(explained.effect == "deny")
    if as_json:
        emit_json(explained.as_json())
        return code
    principal = caller.principal
    who = principal.id if principal is not None else ""
    with_key = f", key {principal.key_id}" if principal is not None and principal.key_id else ""
    emit(f"{address} for {who}{with_key}")
    for each in explained.checks:
        verdict = "-" if each.verdict == "not_reached" else each.verdict
        detail = "not reached" if each.verdict == "not_reached" else each.detail
        emit(f"  {verdict:<4}  {each.step:<10}  {safe_line(detail)}")
    rule = f", rule {explained.rule}" if explained.rule else ""
    emit(f"{explained.effect}: {explained.reason}{rule}" if explained.reason else explained.effect)
    if explained.is_uncertain:
        say("a rule depends on the arguments; give them as KEY=VALUE")
    if explained.change:
        say(f"to change that: {explained.change}")
    return code


def _show_all(tools: Iterator[tuple[str, Explanation]], as_json: bool) -> int:
    found = list(tools)
    if as_json:
        emit_json({"tools": [_row(*each) for each in found]})
        return 0
    if not found:
        warn("no server has listed any tool")
        return 0
    emit_table(
        (
            each.effect,
            address,
            each.state,
            each.reason or "-",
            each.decisive.detail if each.decisive is not None else "-",
        )
        for address, each in found
    )
    return 0


def _row(address: str, explained: Explanation) -> JsonObject:
    row = {
        "tool": address,
        "effect": explained.effect,
        "reason": explained.reason,
        "state": explained.state,
    }
    return {name: value for name, value in row.items() if value}
