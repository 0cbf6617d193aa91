"""Many servers as one set of tools."""

from __future__ import annotations

from interlock.toolbox.toolbox import Toolbox
from interlock.toolbox.upstream import Entry, ServerStatus

__all__ = ["Entry", "ServerStatus", "Toolbox"]
