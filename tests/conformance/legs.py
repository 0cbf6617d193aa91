"""The common part of the legs over stdio: check the messages of our side."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from wire import Exchange, Schema


class Line(NamedTuple):
    """One message on the wire."""

    sender: str
    text: str


def judge(
    name: str, schemas: dict[str, Schema], revision: str, lines: list[Line], ours: str
) -> int:
    """Check all messages of a connection in order, and print the result.

    Args:
        name: Of the leg.
        schemas: Those of all revisions.
        revision: Of the connection.
        lines: The messages.
        ours: The side under test: "client" or "server".

    Returns:
        1 for any fault, else 0.
    """
    checked = Exchange(schemas, revision, ours)
    faults = [(line, found) for line in lines if (found := checked.faults(*line))]
    problems = [f"{line.sender}: {line.text}\n    {'; '.join(found)}" for line, found in faults]
    problems += [f"no answer to {request}" for request in checked.unanswered]
    problems += [f"never sent: {method}" for method in missing(checked)]
    spoilt, passed = spoil_each(schemas, revision, lines, ours)
    problems += [f"the check accepts: {text}" for text in passed]
    print(
        f"{name}: {len(lines) - len(faults)} messages valid, "
        f"{len(faults)} invalid, {len(checked.sent[ours])} methods, "
        f"{spoilt - len(passed)} of {spoilt} invalid variants refused"
    )
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


def missing(checked: Exchange) -> list[str]:
    """List what a client or server of this revision may send but did not."""
    return [
        f"{method} ({side})"
        for side in ("client", "server")
        for kind in (checked.schema.requests, checked.schema.notifications)
        for method in kind[side]
        if method not in checked.sent[side] and not left_out(checked, side, method)
    ]


def left_out(checked: Exchange, side: str, method: str) -> bool:
    """Return whether our sides never send a method, which is allowed.

    Tasks were an experiment of one revision. A client need not report progress, and a server need
    neither cancel nor ping.
    """
    return (
        "tasks/" in method
        or (side, method)
        in {
            ("client", "notifications/progress"),
            ("server", "notifications/cancelled"),
            ("server", "notifications/elicitation/complete"),
        }
        or (checked.ours == "server" and (side, method) == ("server", "ping"))
    )


def spoil_each(
    schemas: dict[str, Schema], revision: str, lines: list[Line], ours: str
) -> tuple[int, list[str]]:
    """Make several invalid variants of each of our messages, and check them.

    Returns:
        The number of invalid messages, and those that passed as valid.
    """
    passed = []
    count = 0
    for index, line in enumerate(lines):
        if line.sender == ours:
            for text in spoil(line.text):
                checked = Exchange(schemas, revision, ours)
                for before in lines[:index]:
                    checked.faults(*before)
                count += 1
                if not checked.faults(ours, text):
                    passed.append(text)
    return count, passed


def spoil(text: str) -> Iterator[str]:
    """Yield invalid copies of a message, each with one fault."""
    yield text[:-1]
    message = json.loads(text)
    yield json.dumps({**message, "jsonrpc": "1.0"})
    if "id" in message:
        yield json.dumps({**message, "id": None})
    if "method" in message:
        yield json.dumps({**message, "method": "tools/fetch"})
    if message.get("result"):
        yield json.dumps({**message, "result": {**message["result"], "hint": 1}})
    if message.get("params"):  # those of `ping` and the like are anything, up to 2025-06-18
        yield json.dumps({**message, "params": {**message["params"], "hint": 1}})
