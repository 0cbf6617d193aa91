"""How many tools a new key can call, and why not the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from interlock.store.database.database import open_database
from interlock.store.database.location import find
from interlock.store.pin import TOOL_KINDS
from interlock.store.pins import PinStore
from interlock.toolbox.pins import offered_server, offered_tool
from tests.support.rows import each_row

# No gateway starts these programs, and so must no command.
PROGRAM = {"command": "no-such-program-7d2f"}
SCHEMA = {"type": "object"}
READS = PROGRAM | {"tools": {"risk": {"read": ["get_*"]}}}


@pytest.fixture
def reach(interlock: Any, servers: Callable[..., Any]) -> Callable[..., list[str]]:
    """Create a key beside the stored lists of two servers; return the lines about its tools."""
    personal = PROGRAM | {"sharing": "per_user", "env": {"TOKEN": "${user:TOKEN}"}}
    servers(
        e={**PROGRAM, "disabled": True}, crm=READS, notes=personal, new=PROGRAM, off={**PROGRAM}
    )

    async def store() -> None:
        database = await open_database(find(None))
        for server, names in (("crm", ["get_x", "set_x", "set_y"]), ("notes", ["get_note"])):
            offered = [offered_tool({"name": name, "inputSchema": SCHEMA}, None) for name in names]
            launch = offered_server(PROGRAM, None)
            await PinStore(database).check(server, [launch, *offered], TOOL_KINDS)
        await database.close()

    asyncio.run(store())

    def create(*scopes: str) -> list[str]:
        given = [part for scope in scopes for part in ("--scope", scope)]
        ran = interlock("keys", "create", "anna", *given)
        assert ran.code == 0
        return ran.err.splitlines()[1:]

    return create


UNLISTED = (
    "the tools of 'new', 'off' are not counted: no gateway has listed them yet; "
    "the first `interlock serve` does"
)


@each_row(
    ("scopes", "lines"),
    [
        (
            ["mcp:read"],
            [
                "the key can call 1 of 4 tools now; 3 are risk write: add --scope mcp:*,"
                " or mark what only reads in tools.risk",
                UNLISTED,
            ],
        ),
        (["mcp:*"], ["the key can call 4 of 4 tools now", UNLISTED]),
        (
            ["mcp:crm:get_*"],
            ["the key can call 1 of 4 tools now; 3 are not covered by mcp:crm:get_*", UNLISTED],
        ),
        (
            ["mcp:crn:*"],
            [
                "the key can call 0 of 4 tools now; 4 are not covered by mcp:crn:*",
                "no server is named 'crn' (did you mean 'crm'?): see --scope",
                UNLISTED,
            ],
        ),
        (["admin:read"], ["the key opens the admin listener, and no tools"]),
        (
            ["admin:approve"],
            [
                "the key opens the admin listener, and no tools; "
                "the board also needs --scope admin:read"
            ],
        ),
    ],
)
def test_create_counts_the_stored_tools_that_the_key_can_call_and_starts_nothing(
    reach, scopes: list[str], lines: list[str]
):
    assert reach(*scopes) == lines


def test_create_without_stored_lists_counts_nothing(interlock: Any, servers: Callable[..., Any]):
    servers(e=PROGRAM)

    ran = interlock("keys", "create", "anna")

    assert ran.err.splitlines()[1:] == [
        "the tools of 'e' are not counted: no gateway has listed them yet; "
        "the first `interlock serve` does"
    ]
