"""The fault matrix as data: every row once, for the tests and for docs/reference/faults.md.

A row is a fault, what is promised when it happens, within which time, on which transports, and
the scenario that makes it happen. The files `rows_*.py` fill the list when they are imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from tests.faults.ground import Ground

STDIO, MEMORY = "stdio", "in-process"
JSON, SSE, SESSION, OLDEST = "HTTP JSON", "HTTP SSE", "legacy session", "HTTP+SSE"
HTTP = (JSON, SSE, SESSION, OLDEST)
STREAMS = (SSE, SESSION, OLDEST)  # where an answer is one event of many
MESSAGES = (STDIO, MEMORY, *STREAMS)  # where a peer may say what it likes at any time
ALL = (STDIO, MEMORY, *HTTP)
# Other parts of the program:
GATEWAY, SQLITE, POSTGRES = "gateway", "SQLite", "PostgreSQL"

Scenario = Callable[["Ground"], Awaitable[None]]


class Row(Struct, frozen=True):
    """One fault on some transports.

    Attributes:
        fault: As in the matrix, after a colon what makes it this one of several.
        promise: What the caller sees.
        within: Seconds that it may take.
        transports: Where it can happen; other parts of the program have their own names here.
        scenario: Makes it happen, and checks what comes of it.
    """

    fault: str
    promise: str
    within: float
    transports: tuple[str, ...]
    scenario: Scenario


class Case(Struct, frozen=True):
    """A row on one transport."""

    row: Row
    transport: str

    @property
    def name(self) -> str:
        """For people, and as the id of a test."""
        return f"{self.row.fault} [{self.transport}]"


_rows: list[Row] = []


def row(
    fault: str, promise: str, *transports: str, within: float
) -> Callable[[Scenario], Scenario]:
    """Add a row whose scenario is the function below. Several may share a function."""

    def add(scenario: Scenario) -> Scenario:
        _rows.append(Row(fault, promise, within, transports, scenario))
        return scenario

    return add


def cases() -> list[Case]:
    """Give every row on each of its transports, in the order of the matrix."""
    for file in sorted(Path(__file__).parent.glob("rows_*.py")):
        importlib.import_module(f".{file.stem}", __package__)
    return [Case(row, each) for row in sorted(_rows, key=_place) for each in row.transports]


def _place(row: Row) -> tuple[int, bool]:
    """Put rows in the order of the matrix, and each before its variants."""
    fault, colon, _ = row.fault.partition(":")
    return FAULTS.index(fault), bool(colon)


FAULTS = (
    "Server exits mid-call",
    "Server hangs",
    "Server floods progress",
    "Garbage / invalid UTF-8 line",
    "100 MB line / endless line",
    "Closes stdout, stays alive",
    "Closes stdin early",
    "Ignores EOF and SIGTERM",
    "Grandchildren",
    "stderr flood",
    "Slow drip",
    "Duplicate reply",
    "Unknown id / wrong id type",
    "Wrong types in result",
    "Depth bomb / huge ints / NaN",
    "Schema bomb / ReDoS / remote `$ref`",
    "Endless pagination",
    "Tool changed after approval",
    "Same tool name on two servers",
    "Missing binary / bad path / not executable",
    "Stdout pollution by our own tool",
    "HTTP 401",
    "HTTP 403 insufficient scope",
    "HTTP 404",
    "HTTP 429/503",
    "HTTP 500 / HTML / empty body",
    "Redirect",
    "Cut mid-SSE / clean EOF without answer",
    "Gzip bomb",
    "DNS failure / connect refused / TLS error",
    "Client disconnects mid-call",
    "Client never reads / half-sends",
    "Cancel races with result",
    "10k idle legacy sessions",
    "Sync or CPU-bound tool",
    "Postgres down / slow / failover",
    "SQLite locked / corrupt",
    "Disk full",
    "Disk full, audit",
    "fsync error",
    "kill -9 of us mid-write",
    "SIGTERM",
    "Clock jump ±1 h / suspend",
    "fd / memory / pid limit reached",
    "Event loop blocked > 1 s",
    "Bad config reload",
    "Model provider down / cut / nonsense",
    "Approval raced",
    "Server floods list changes",
    "Server floods questions",
    "Greedy caller",
)

# Rows of the matrix, or parts of them, whose part of the program does not exist yet.
NOT_BUILT = {
    "Redis down / slow / flushed": "nothing uses Redis",
    "Postgres down / slow / failover: stale reads": "what is kept there is not cached: it cannot "
    "be read until the server is back",
    "kill -9 of one worker": "a server is one process",
    "Event loop blocked > 1 s, readiness": "`/readyz` is answered by the loop itself, so a blocked "
    "one does not answer",
    "Obedient-to-injection model": "policy and approvals hold for what a model calls, but no "
    "scripted model of the tests obeys a tool's result",
}
