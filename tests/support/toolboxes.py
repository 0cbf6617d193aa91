"""Toolboxes of servers in memory, made from the answers of their tools."""

from __future__ import annotations

from typing import Any

from interlock.toolbox import Toolbox
from tests.support.scripted_server import LEGACY, Answer, Json, ScriptedServer, text

ANY: Json = {"type": "object", "properties": {"x": {}}}


def described(name: str, schema: Json | None = None, **members: Any) -> Json:
    """A definition of a tool."""
    return {"name": name, "inputSchema": schema or ANY, **members}


def kb(definitions: list[Json], call: Answer | None = None) -> ScriptedServer:
    """A server with these tools; by default each returns its arguments."""
    return ScriptedServer(
        answers={"tools/list": lambda _: {"tools": definitions}, "tools/call": call or echoed}
    )


def echoed(params: Json) -> Json:
    import json

    return text(json.dumps(params["arguments"]))


def box(server: ScriptedServer, **options: Any) -> Toolbox:
    """A toolbox with one server, named "kb"."""
    return Toolbox({"kb": server}, environ={}, revision=LEGACY, **options)


def expire_list(toolbox: Toolbox, server: str = "kb") -> None:
    """Let the toolbox list the tools of a server anew, as if its list had expired."""
    toolbox._upstreams[server]._lists._listed_until = 0.0
