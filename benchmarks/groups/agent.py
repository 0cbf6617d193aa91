"""What the agent's loop costs, with a model that needs no time."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import BARE, LANGCHAIN, US, Effort, Row, asking, clients, contest

TITLE = "Agent"
ROUNDS = 10  # of a conversation


def rows(effort: Effort) -> Iterator[Row]:
    """Ours and the bare loop call a tool of a server in memory, the peer a plain function."""
    names = [US, "langchain", BARE] if LANGCHAIN.exists() else [US, BARE]
    with clients(names, {"agent": ROUNDS}) as each:
        rates = contest(asking(each, "rate", 1, effort.seconds), effort.rounds)
    taken = {name: [1 / (rate * ROUNDS) for rate in taken] for name, taken in rates.items()}
    yield Row("a round: the model asks for a tool, the tool is called", "s", taken)
