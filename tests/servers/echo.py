"""A well-behaved server on stdio, of both eras. Standard library only, quick to start.

    python -I -S echo.py [revision=2025-11-25] [name=NAME] [extra=TOOL]

Tools: `echo` gives its arguments back as JSON, `say` its text, `fail` an error with its text,
`picture` an image, `wait` tells its progress once and never answers, `exit` ends the process.
`extra` is one more tool, of any name.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

Json = dict[str, Any]
MODERN = "2026-07-28"

told = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
revision = told.get("revision", MODERN)


def tool(name: str, description: str, **properties: Any) -> Json:
    schema = {"type": "object", "properties": properties}
    return {"name": name, "description": description, "inputSchema": schema}


TEXT = {"type": "string"}
TOOLS = [
    tool(
        "echo",
        "Give the arguments back.\nMore about it.",
        text=TEXT,
        count={"type": "integer"},
        ratio={"type": "number"},
        sure={"type": "boolean"},
        words={"type": "array", "items": TEXT},
        place={"type": "object"},
        maybe={"anyOf": [{"type": "integer"}, {"type": "null"}]},
        either={"type": ["string", "integer"]},
        colour={"$ref": "#/$defs/colour"},
        anything={},
    ),
    tool("say", "Say a text.", text=TEXT),
    tool("fail", "Report an error.", text=TEXT),
    tool("picture", "Draw."),
    tool("wait", "Wait for ever."),
    tool("exit", "End the process."),
    *([tool(told["extra"], "One more.")] if "extra" in told else []),
]
TOOLS[0]["inputSchema"]["$defs"] = {"colour": {"enum": ["red", "green"]}}


def call(name: str, arguments: Json) -> Json:
    text = {"type": "text", "text": arguments.get("text", "")}
    match name:
        case "echo":
            return {"content": [{"type": "text", "text": json.dumps(arguments)}]}
        case "fail":
            return {"content": [text], "isError": True}
        case "picture":
            return {"content": [text, {"type": "image", "mimeType": "image/png", "data": "AAAA"}]}
        case "exit":
            os._exit(3)
    return {"content": [text]}


def answer(method: str, params: Json) -> Json | None:
    """Return the result of a request, or None for a method we do not have."""
    info = {"name": told.get("name", "echo"), "version": "1.0"}
    kept = {"ttlMs": 60_000, "cacheScope": "private"}
    match method:
        case "server/discover" if revision == MODERN:
            about = {"supportedVersions": [MODERN], "capabilities": {"tools": {}}}
            return {**about, **kept, "_meta": {"io.modelcontextprotocol/serverInfo": info}}
        case "initialize" if revision != MODERN:
            about = {"protocolVersion": revision, "capabilities": {"tools": {}}}
            return {**about, "serverInfo": info}
        case "tools/list":
            return {"tools": TOOLS, **(kept if revision == MODERN else {})}
        case "tools/call":
            return call(params["name"], params.get("arguments", {}))
        case "ping":
            return {}
    return None


def main() -> None:
    """Answer until the end of input."""
    for line in sys.stdin.buffer:
        message = json.loads(line)
        params = message.get("params", {})
        if "id" not in message:
            continue
        if params.get("name") == "wait":
            tell_progress(params.get("_meta", {}))
            continue
        result = answer(message["method"], params)
        reply: Json = {"id": message["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": f"no method {message['method']}"}
        else:
            complete = {"resultType": "complete"} if revision == MODERN else {}
            reply["result"] = {**complete, **result}
        send(reply)


def tell_progress(meta: Json) -> None:
    """Report half of the progress, if it was requested."""
    if "progressToken" in meta:
        how = {"progress": 1, "total": 2, "message": "half-way"}
        params = {"progressToken": meta["progressToken"], **how}
        send({"method": "notifications/progress", "params": params})


def send(message: Json) -> None:
    """Write one message."""
    line = json.dumps({"jsonrpc": "2.0", **message})
    sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
