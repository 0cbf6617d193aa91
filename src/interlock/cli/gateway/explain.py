"""`interlock explain`: show whether a call would be allowed, and why."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interlock.cli import completion, config_option
from interlock.cli.database_options import check_view, database_of
from interlock.cli.servers.call import given_arguments, typed
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_json, emit_table, safe_line, say, warn, working

if TYPE_CHECKING:
    from interlock.auth.stored_key import StoredKey
    from interlock.calls import Caller
    from interlock.config import Config
    from interlock.gateway.explain.explainer import Explainer
    from interlock.gateway.explain.explanation import Explanation
    from interlock.gateway.parts import Parts, Servers
    from interlock.layers.limits import Limiter
    from interlock.store.database.database import Database
    from interlock.toolbox import Toolbox
    from interlock.types import JsonObject

IDLE_TIMEOUT = 5.0  # seconds; stop waiting if no server becomes ready or fails for so long


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


# Looking


@asynccontextmanager
async def open_explainer(
    config: Config, key_id: str, user: str, view: str, address: str
) -> AsyncIterator[tuple[Explainer, Caller, StoredKey | None]]:
    """Open a gateway without clients; start only servers whose tools are unknown.

    Args:
        config: The configuration.
        key_id: The id of the caller's key; "" for a user.
        user: The caller, if it has no key.
        view: The view of the call; "" for that of the key.
        address: The tool to explain; "" for all tools.
    """
    from interlock.auth.gateway_key import GatewayKey
    from interlock.gateway.definitions.pinning import make_pinning
    from interlock.gateway.explain.explainer import Explainer, credentials_of, reading_approvals
    from interlock.gateway.forwarding.server import ForwardingServer
    from interlock.gateway.logins.vault import Vault
    from interlock.gateway.parts import make_parts
    from interlock.store.credentials import CredentialStore
    from interlock.store.database.key_owner import open_owned
    from interlock.store.database.location import folder_beside
    from interlock.store.pins import PinStore
    from interlock.store.plugins import PluginStore

    own_limits: dict[str, JsonObject] = {}
    parts = make_parts(config, os.environ, own_limits=own_limits)
    location = database_of(config)
    secret = GatewayKey.load(folder_beside(location))
    database = await open_owned(location, secret)
    try:
        caller, key = await _caller(database, key_id, user, view)
        if key is not None and key.limits:
            own_limits[key.id] = key.limits
        await _load_limits(parts.limiter, database)
        await parts.plugins.load(PluginStore(database))
        vault = Vault(CredentialStore(database, secret), secret)
        credentials = await credentials_of(vault, caller, config.servers)
        servers = _concerned(parts, caller, address)
        pins = None
        if parts.settings.lock.mode != "off":
            pins = make_pinning(config, parts.settings, database, secret, None)
        gateway = ForwardingServer(servers, parts.policy, credentials=vault, pins=pins)
        try:
            with working("listing the tools"):
                await gateway.toolbox.restore(idle_timeout=IDLE_TIMEOUT)
                await _start_if_unknown(gateway.toolbox, address)
            known = await PinStore(database).list() if pins is not None else []
            approvals = reading_approvals(database, secret, parts.settings, parts.policy, gateway)
            explainer = Explainer(
                gateway, parts.policy, parts.limiter, credentials, known, approvals
            )
            yield explainer, caller, key
        finally:
            await gateway.toolbox.close()
    finally:
        await database.close()


async def _start_if_unknown(toolbox: Toolbox, address: str) -> None:
    """Start the server of a tool, unless its last list has the tool."""
    server, _, name = address.partition(":")
    upstream = toolbox.upstreams.get(server)
    if not name or upstream is None:
        return
    known = {each.tool.name for each in upstream.entries} | {
        each.name for each in upstream.unusable
    }
    if name not in known and not upstream.status.starts:
        await upstream.start()


def _concerned(parts: Parts, caller: Caller, address: str) -> Servers:
    """Return the servers whose tools the explanation needs."""
    view = parts.settings.views.get(caller.principal.view if caller.principal else "")
    if not address or (view is not None and view.names == "plain"):  # names may clash
        return parts.servers
    server = address.partition(":")[0]
    return {
        name: each
        for name, each in parts.servers.items()
        if (getattr(each, "namespace", "") or name) == server
    }


async def _caller(
    database: Database, key_id: str, user: str, view: str
) -> tuple[Caller, StoredKey | None]:
    from msgspec.structs import replace

    from interlock.auth.key_ring import principal_of
    from interlock.auth.principal import Principal, principal_id
    from interlock.calls import Caller
    from interlock.store import KeyStore

    if user:
        return Caller(Principal(principal_id(user), frozenset({"mcp:*"}), view=view)), None
    key = await KeyStore(database).get(key_id)
    principal = principal_of(key)
    return Caller(replace(principal, view=view or principal.view)), key


async def _load_limits(limiter: Limiter, database: Database) -> None:
    """Load the stored use of quotas; a gateway keeps the use of rates only in memory."""
    from interlock.layers.quotas import Quotas
    from interlock.store.quotas import QuotaStore

    await Quotas(QuotaStore(database), lambda: limiter.days).load()


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
