"""The tools of a toolbox, as each caller may see them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from interlock.calls import Caller, Entry
from interlock.context import Context
from interlock.errors import InvalidArguments
from interlock.gateway.forwarded_tool import ForwardedTool
from interlock.policy import Policy
from interlock.server.catalogue import Definition, Kind
from interlock.toolbox import Toolbox
from interlock.types import ServerCapabilities

PAGE_SIZE = 1_000


class ToolboxCatalogue:
    """A `Catalogue` of the tools that a policy lets each caller use.

    What is listed can be called, and what is not listed does not exist for the caller.

    Attributes:
        version: Changes whenever a server's tools or state change.
    """

    def __init__(self, toolbox: Toolbox, policy: Policy) -> None:
        self._toolbox = toolbox
        self._policy = policy
        self._tools: dict[str, ForwardedTool] = {}  # by wire name

    @property
    def version(self) -> int:
        """A number that changes when any list changes."""
        return self._toolbox.version

    def capabilities(self) -> ServerCapabilities:
        """Return what the gateway declares."""
        return ServerCapabilities(tools={"listChanged": True}, logging={})

    def view(self, context: Context) -> Hashable:
        """Return the identity of the caller: each one has lists of its own."""
        return context.principal.identity if context.principal else None

    def page(
        self, kind: Kind, cursor: str, context: Context
    ) -> tuple[Sequence[Definition], str | None]:
        """Return one page of the tools that the caller may use."""
        if kind != "tools":
            return [], None
        start = 0
        if cursor:
            if not cursor.isdecimal():
                raise InvalidArguments("the cursor is not valid: list from the start")
            start = int(cursor)
        seen = [entry for entry in self._toolbox.tools if self._is_visible(entry, context)]
        page = [self._tool(entry).definition for entry in seen[start : start + PAGE_SIZE]]
        end = start + PAGE_SIZE
        return page, str(end) if end < len(seen) else None

    def find(self, kind: str, name: str, context: Context) -> Any:
        """Return a tool that the caller may use, by its wire name; None for all else."""
        if kind != "tools":
            return None
        entry = self._toolbox.by_wire_name(name)
        if entry is None or not self._is_visible(entry, context):
            return None
        return self._tool(entry)

    def find_completion(self, ref: object, argument: str, context: Context) -> None:  # noqa: ARG002
        """Return None: the gateway offers no completions."""
        return

    def _is_visible(self, entry: Entry, context: Context) -> bool:
        return self._policy.decide(Caller(context.principal), entry).effect != "deny"

    def _tool(self, entry: Entry) -> ForwardedTool:
        tool = self._tools.get(entry.wire_name)
        if tool is None or tool.entry is not entry:
            tool = self._tools[entry.wire_name] = ForwardedTool(entry, self._toolbox.handle)
        return tool
