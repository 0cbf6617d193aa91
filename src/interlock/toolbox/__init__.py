"""A toolbox: the tools of many servers as one set."""

from __future__ import annotations

from interlock.calls import Entry
from interlock.toolbox.server_health import ServerStatus
from interlock.toolbox.toolbox import Toolbox
from interlock.toolbox.tools import Tools
from interlock.toolbox.upstream import Upstream

__all__ = ["Entry", "ServerStatus", "Toolbox", "Tools", "Upstream"]
