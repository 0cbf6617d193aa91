"""What is common to the legs over stdio: one side is ours, and its messages are held to account."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from wire import Exchange, Schema


class Line(NamedTuple):
    """One message as it was on the wire."""

    sender: str
    text: str


def judge(
    name: str, schemas: dict[str, Schema], revision: str, lines: list[Line], ours: str
) -> int:
    """Check all messages of a connection, in their order, and print what came of it.

    Args:
        name: Of the leg.
        schemas: Those of all revisions.
        revision: What the two speak.
        lines: The messages.
        ours: The side that is on trial: "client" or "server".

    Returns:
        1 for any fault, else 0.
    """
    checked = Exchange(schemas, revision, ours)
    faults = [(line, found) for line in lines if (found := checked.faults(*line))]
    problems = [f"{line.sender}: {line.text}\n    {'; '.join(found)}" for line, found in faults]
    problems += [f"no answer to {request}" for request in checked.unanswered]
    problems += [f"never sent: {method}" for method in missing(checked)]
    spoilt, passed = spoil_each(schemas, revision, lines, ours)
    problems += [f"the check lets pass: {text}" for text in passed]
    print(
        f"{name}: {len(lines) - len(faults)} messages valid, "
        f"{len(faults)} invalid, {len(checked.sent[ours])} methods, "
        f"{spoilt - len(passed)} of {spoilt} spoilt messages refused"
    )
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


def missing(checked: Exchange) -> list[str]:
    """List what a client or server of this revision may send and did not."""
    return [
        f"{method} ({side})"
        for side in ("client", "server")
        for kind in (checked.schema.requests, checked.schema.notifications)
        for method in kind[side]
        if method not in checked.sent[side] and not left_out(checked, side, method)
    ]


def left_out(checked: Exchange, side: str, method: str) -> bool:
    """Tell what our sides do without.

    Tasks were an experiment of one revision; a client that reports no progress of its own and a
    server that never cancels, nor asks whether somebody is there, are complete.
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
    """Spoil each of our messages in several ways.

    Returns:
        How many spoilt messages there were, and those that passed as valid.
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
    """Yield copies of a message, each with one fault."""
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
