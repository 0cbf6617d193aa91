"""A toolbox: the tools of many servers as one set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.calls import Entry
from interlock.lazy import loader
from interlock.toolbox.server_health import ServerStatus
from interlock.toolbox.toolbox import Toolbox
from interlock.toolbox.tools import Tools
from interlock.toolbox.upstream import Upstream

if TYPE_CHECKING:
    from interlock.toolbox.tool_index import FoundTool, IndexedTool, ToolIndex

__all__ = [
    "Entry",
    "FoundTool",
    "IndexedTool",
    "ServerStatus",
    "ToolIndex",
    "Toolbox",
    "Tools",
    "Upstream",
]

# Loaded on first use, because most programs do not search for tools.
__getattr__ = loader(
    __name__, dict.fromkeys(("FoundTool", "IndexedTool", "ToolIndex"), "toolbox.tool_index")
)
