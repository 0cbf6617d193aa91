"""Shell patterns of tool addresses in a configuration, such as "crm:*" and "*:get_*"."""

from __future__ import annotations

from collections.abc import Collection

from interlock.config.gateway import BUILT_IN, OWN
from interlock.config.section import Section, nearest
from interlock.config.tool_search import MUST_BE_PATTERN, is_pattern


def read_patterns(section: Section, key: str, servers: Collection[str]) -> tuple[str, ...]:
    """Read a list of patterns, and check each pattern."""
    patterns = section.texts(key)
    for index, pattern in enumerate(patterns):
        check_pattern(section, pattern, servers, key, index)
    return patterns


def check_pattern(
    section: Section, pattern: str, servers: Collection[str], *steps: str | int
) -> None:
    """Refuse a text that is not a valid pattern; warn if it names an unknown server."""
    if not is_pattern(pattern):
        section.refuse(MUST_BE_PATTERN, *steps)
    server = pattern.partition(":")[0]
    known = server in servers or server in (BUILT_IN, OWN)
    if not any(char in server for char in "*?[") and not known:
        section.warn(f"names a server that this file lacks{nearest(server, servers)}", *steps)
