"""The sizes of the tool lists that clients of a gateway get."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from interlock.auth.key_ring import principal_of
from interlock.auth.principal import Principal
from interlock.calls import Caller, Entry
from interlock.config import GatewaySettings
from interlock.config.tool_search import MOST_TOKENS
from interlock.policy import Policy
from interlock.store import KeyStore
from interlock.store.database.database import open_database
from interlock.text.timestamps import now_micros

BYTES_OF_TOKEN = 4  # of a definition, on average; the estimate is rather too high
MAX_KEYS = 1_000  # keys whose lists are measured


async def principals_in(place: Path | None) -> list[Principal]:
    """Return the owners of the active keys in a database, one for each kind of rights.

    Raises:
        StoreError: The database cannot be read.
    """
    if place is None:
        return []
    database = await open_database(place)
    try:
        keys = await KeyStore(database).list()
    finally:
        await database.close()
    active = [principal_of(each) for each in keys if each.state(now_micros()) == "active"]
    unique = {(each.id, each.scopes, each.view): each for each in active}
    return [*unique.values()][-MAX_KEYS:]


def long_lists(
    settings: GatewaySettings,
    policy: Policy,
    tools: Collection[Entry],
    principals: Sequence[Principal],
) -> Iterator[str]:
    """Yield a line for each view whose list is too long for its largest key.

    Args:
        settings: The gateway's settings.
        policy: The compiled policy.
        principals: The owners of the keys. Without any, a key for all tools is assumed.
    """
    everybody = principals or [Principal("user:local", frozenset({"mcp:*"}))]
    searches = {"": settings.search, **{name: each.search for name, each in settings.views.items()}}
    for name in (name for name, search in searches.items() if not search.is_on):
        sizes = [
            (_tokens(policy, replace(each, view=name), tools), each.key_id)
            for each in everybody
            if each.view in ("", name)
        ]
        most, key = max(sizes, default=(0, ""))
        if most > MOST_TOKENS:
            where = f"view {name}" if name else "/mcp"
            member = f"views.{name}.toolSearch" if name else "gateway.toolSearch"
            whose = f" for key {key}" if key else ""
            yield (
                f"{where} lists definitions of {most:,} tokens{whose} (advised limit "
                f'{MOST_TOKENS:,}): serve fewer tools there, or set {member} to "on"'
            )


def _tokens(policy: Policy, principal: Principal, tools: Collection[Entry]) -> int:
    caller = Caller(principal)
    listed = (each for each in tools if policy.decide(caller, each).effect != "deny")
    return sum(len(each.definition) for each in listed) // BYTES_OF_TOKEN
