"""Many servers as one set of tools."""

from __future__ import annotations

from interlock.calls import Entry
from interlock.toolbox.toolbox import Toolbox
from interlock.toolbox.upstream import ServerStatus, Upstream

__all__ = ["Entry", "ServerStatus", "Toolbox", "Upstream"]
