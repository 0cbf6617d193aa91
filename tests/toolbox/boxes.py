"""Toolboxes of scripted servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.toolbox import Toolbox
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text, tool


def served(*names: str, **answers: Any) -> ScriptedServer:
    """Return a server with these tools, each of which says its own name."""
    tools = {"tools": [tool(name) for name in names]}
    call: Callable[[Json], Json] = lambda params: text(params["name"])  # noqa: E731
    return ScriptedServer(answers={"tools/list": tools, "tools/call": call, **answers})


def box_of(**servers: Any) -> Toolbox:
    """Return a toolbox of these servers, not open yet."""
    return Toolbox(servers, environ={}, revision=LEGACY)


def addresses(toolbox: Toolbox) -> list[str]:
    """Return the addresses of the tools."""
    return [entry.address for entry in toolbox.tools]
