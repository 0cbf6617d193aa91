"""An index of all servers' tools, keyed by the names that callers use."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from interlock.calls import Caller, Entry
from interlock.errors import ServerUnavailable, UnknownTool
from interlock.toolbox.names import may_be_of
from interlock.toolbox.own_tools import OwnServer
from interlock.toolbox.upstream import Upstream

CLOSEST = 0.75  # the least similarity of a suggested address, from 0 to 1
_CALL_TOOL = "interlock__call_read_tool"  # of a gateway that lists a search instead of its tools
_FOR_PEOPLE = ("library", "cli")  # surfaces whose errors a person reads

_log = logging.getLogger("interlock.toolbox")


class ToolDirectory:
    """Finds tools by address or wire name. Its index is built on the first use after a change.

    Args:
        upstreams: Returns the servers by name.
        own: Interlock's own tools, which are found but not listed.

    Attributes:
        by_name: Tools keyed by address and by wire name; empty until the index is built.
    """

    def __init__(self, upstreams: Callable[[], Mapping[str, Upstream]], own: OwnServer) -> None:
        self.by_name: dict[str, Entry] = {}
        self._upstreams = upstreams
        self._own = own
        self._tools: list[Entry] | None = None
        self._same: set[str] = set()  # repeated tool names that were logged

    @property
    def tools(self) -> list[Entry]:
        """Every tool that can be called, in the order of the servers in the configuration."""
        return self._build() if self._tools is None else self._tools

    def forget(self) -> None:
        """Discard the index, because a server's tools have changed."""
        self.by_name = {}
        self._tools = None

    def find(self, name: str) -> Entry | None:
        if self._tools is None:
            self._build()
        return self.by_name.get(name)

    def _build(self) -> list[Entry]:
        tools: list[Entry] = []
        servers: dict[str, list[str]] = {}  # tool name -> servers
        for upstream in self._upstreams().values():
            for entry in upstream.entries:
                if entry.wire_name in self.by_name:
                    _log.error("tool %s has the wire name of another one", entry.address)
                    continue
                tools.append(entry)
                self.by_name[entry.wire_name] = self.by_name[entry.address] = entry
                servers.setdefault(entry.tool.name, []).append(upstream.name)
        for entry in self._own.entries:
            self.by_name.setdefault(entry.wire_name, entry)
            self.by_name[entry.address] = entry
        same = {name for name, offering in servers.items() if len(offering) > 1}
        for name in sorted(same - self._same):
            _log.warning("several servers offer tool %r: %s", name, ", ".join(servers[name]))
        self._same = same
        self._tools = tools
        return tools

    def starting(self, name: str) -> Upstream | None:
        """Return the server of a tool that is missing because its server is still starting."""
        known = self._upstreams().values()
        return next(
            (each for each in known if each.is_starting and may_be_of(name, each.name)), None
        )

    def why_missing(self, name: str, caller: Caller) -> UnknownTool | ServerUnavailable:
        """Return the error for a missing tool; it suggests similar names if there are any."""
        server, colon, tool = name.partition(":")
        upstream = self._upstreams().get(server) if colon else self.starting(name)
        if upstream is not None:
            status = upstream.status
            if status.state != "ok" and not upstream.entries:
                reason = status.reason or status.state
                if upstream.is_starting:
                    reason = "it is still starting; try again later, or with a longer timeout"
                return ServerUnavailable(upstream.name, reason, retry_after=upstream.next_try)
            for line in status.missing:
                if repr(tool) in line:
                    return UnknownTool(f"{name} is not offered: {line}")
            if colon and any(each.tool.name == _CALL_TOOL for each in upstream.entries):
                return UnknownTool(
                    f"no tool {name!r} in the server's list, which has a search instead; call "
                    f"{server}:{_CALL_TOOL} with name={tool} and arguments={{…}}"
                )
        if caller.surface not in _FOR_PEOPLE:
            return unknown_to_model(name, self.tools)
        same = [each.address for each in self.tools if each.tool.name == name]
        return _unknown(name, same[:3] or _close(name, [each.address for each in self.tools]))


def unknown_to_model(name: str, tools: Iterable[Entry]) -> UnknownTool:
    """Return the error for a tool that a model lacks; it suggests similar wire names.

    A model may call a suggested tool at once, so only read-only tools are suggested.
    """
    return _unknown(name, _close(name, [each.wire_name for each in tools if is_read_only(each)]))


def _close(name: str, known: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(name, known, 3, CLOSEST)


def _unknown(name: str, near: Sequence[str]) -> UnknownTool:
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return UnknownTool(f"no tool {name!r}{hint}")


def is_read_only(entry: Entry) -> bool:
    """Return whether a tool's annotations mark it as read-only."""
    annotations = entry.tool.annotations
    return annotations is not None and annotations.read_only_hint is True
