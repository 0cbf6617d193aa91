"""The interface of a toolbox that an agent uses."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Awaitable
from typing import Protocol

from interlock.calls import Call, Caller, Entry, Outcome
from interlock.toolbox.own_tools import OwnServer


class Tools(Protocol):
    """Tools that a model may use: a `Toolbox`, or an object that offers some of its tools."""

    @property
    def own(self) -> OwnServer:
        """Interlock's own tools, which are not in `tools` but can be found and called."""
        ...

    @property
    def loop(self) -> AbstractEventLoop | None:
        """The event loop in which calls run; None if they may run in any event loop."""
        ...

    @property
    def version(self) -> int:
        """A number that changes whenever a tool changes."""
        ...

    @property
    def tools(self) -> list[Entry]:
        """The tools that are now offered to a model."""
        ...

    async def refresh(self) -> None:
        """Refresh expired lists of tools."""
        ...

    def find(self, name: str, caller: Caller) -> Entry:
        """Find a tool by address or wire name.

        Raises:
            UnknownTool: No tool has this name.
            ServerUnavailable: The tool's server has not listed its tools.
        """
        ...

    def may_repeat(self, entry: Entry) -> bool:
        """Return whether the operator marked a tool as read-only or safe to repeat."""
        ...

    def convert_arguments(self, call: Call) -> None:
        """Convert a call's arguments as `handle` does, for code that judges the call before it."""
        ...

    def handle(self, call: Call) -> Awaitable[Outcome]: ...
