"""A gateway's instructions: a text of the operator, those of the servers, or a line for each."""

from __future__ import annotations

from collections.abc import Mapping

from interlock.openapi import texts as foreign
from interlock.text.quoting import quoted, visible

SERVERS = "servers"  # the value of `instructions` that selects the servers' instructions
CATALOGUE = "catalogue"  # the value that selects a line about each server
MAX_INSTRUCTIONS = 4_096  # characters of one server's instructions
# Claude Code shows a model at most 2,048 characters of all instructions
MAX_CATALOGUE = 1_900
MAX_PURPOSE = 80  # characters about a server
_SEARCH = (
    "Most tools are not in your list. Find them with interlock__search_tools before you say that "
    "something cannot be done."
)


def joined_instructions(texts: Mapping[str, str]) -> str | None:
    """Return the servers' own instructions, each under the server's name; None if there are none.

    Each line of a longer text is marked as quoted, and hidden characters are removed: no server can
    write a part that looks like another server's or the gateway's.

    Args:
        texts: The instructions by server.
    """
    parts = []
    for name, text in texts.items():
        cut = text if len(text) <= MAX_INSTRUCTIONS else text[:MAX_INSTRUCTIONS] + " [cut]"
        lines = [foreign.visible(line) for line in cut.strip().splitlines()]
        shown = "\n".join(lines)
        parts.append(f"{name}:\n{quoted(shown) if len(lines) > 1 else shown}")
    return "\n\n".join(parts) or None


def server_catalogue(purposes: Mapping[str, str], *, searches: bool) -> str | None:
    """Return a line about each server, at most `MAX_CATALOGUE` characters; None without servers.

    If the lines are too long, only the servers' names are returned, as many as fit.

    Args:
        purposes: The purpose of each server, by its name; "" if it is unknown.
        searches: Whether the clients must search for tools.
    """
    if not purposes:
        return None
    head = [*([_SEARCH] if searches else []), "Servers:"]
    lines = [
        f"- {name}: {visible(text)[:MAX_PURPOSE]}" if text else f"- {name}"
        for name, text in purposes.items()
    ]
    whole = "\n".join([*head, *lines])
    if len(whole) <= MAX_CATALOGUE:
        return whole
    names, more = " ".join([*head, ", ".join(purposes)]), ", and others"
    if len(names) <= MAX_CATALOGUE:
        return names
    return names[: MAX_CATALOGUE - len(more)].rpartition(", ")[0] + more
