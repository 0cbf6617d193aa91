"""`interlock tools --search`: show what a model would find, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.cli.terminal import emit_json, emit_table, say

if TYPE_CHECKING:
    from interlock.config import Config
    from interlock.toolbox import Toolbox

MOST_FOUND = 20  # tools
_ADVICE = "no tool matches; a query says what the tool should do: a verb, an object, the product"
Matches = dict[str, dict[str, list[str]]]


async def search_all(toolbox: Toolbox, query: str, *, as_json: bool) -> int:
    """Print what a model would find among all tools of a toolbox; return the exit code."""
    finder = toolbox.finder
    await finder.finish()
    found = finder.index.search(query, MOST_FOUND)
    rows = [(each.address, finder.index.matches(query, each.address)) for each in found]
    return _print(rows, as_json)


async def search_as_key(config: Config, query: str, key_id: str, *, as_json: bool) -> int:
    """Print what a model with a key would find; return the exit code."""
    from interlock.cli.explainers import open_explainer

    async with open_explainer(config, key_id, "", "", "") as (explainer, caller, _):
        found = await explainer.found_by(caller, query, MOST_FOUND)
    return _print([(each.tool.entry.address, each.matches) for each in found], as_json)


def _print(rows: list[tuple[str, Matches]], as_json: bool) -> int:
    if as_json:
        emit_json({"tools": [{"address": address, "matches": why} for address, why in rows]})
    elif rows:
        emit_table((address, _reason(why)) for address, why in rows)
    else:
        say(_ADVICE)
    return 0


def _reason(matches: Matches) -> str:
    """Return the matches on one line: "make (creat…): name, title; page: name"."""
    parts = []
    for word, terms in matches.items():
        is_own = any(word.startswith(term) for term in terms)
        others = "" if is_own else ", ".join(f"{term}…" for term in terms)
        fields = dict.fromkeys(field for found in terms.values() for field in found)
        parts.append(f"{word} ({others}): " if others else f"{word}: ")
        parts[-1] += ", ".join(fields)
    return "; ".join(parts)
