"""A server on stdio with many tools like real ones: usage: listing_server.py NAME COUNT.

A call changes the description of one tool, and notifies the client of it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

NAME, COUNT = sys.argv[1], int(sys.argv[2])
VERBS = ("list", "get", "create", "update", "delete", "search")
WORDS = ("issue", "branch", "invoice", "page", "record", "user", "message", "file", "event", "task")


def tool(number: int, changes: int) -> dict[str, Any]:
    verb, words = VERBS[number % 6], [WORDS[(number + place) % 10] for place in range(4)]
    properties = {
        f"{word}_{number}": {
            "type": "string",
            "description": f"The {word} to {verb}, as an id or as its whole name in the workspace",
        }
        for word in words
    }
    schema = {"type": "object", "properties": properties, "required": []}
    text = (
        f"{verb.title()} the {words[0]} of a {words[1]}. Needs the {words[2]} and its {words[3]}."
    )
    if number == 0 and changes:
        text += f" Changed {changes} times."
    return {
        "name": f"{verb}_{words[0]}_{NAME}_{number}",
        "description": text,
        "inputSchema": schema,
    }


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def main() -> None:
    changes = 0
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result: dict[str, Any] = {}
        if request["method"] == "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": NAME, "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
            result["serverInfo"] = info
        elif request["method"] == "tools/list":
            result = {"tools": [tool(number, changes) for number in range(COUNT)]}
        elif request["method"] == "tools/call":
            result, changes = {"content": []}, changes + 1
            send(method="notifications/tools/list_changed")
        elif request["method"] != "ping":
            send(id=request["id"], error={"code": -32601, "message": "unknown method"})
            continue
        send(id=request["id"], result=result)


if __name__ == "__main__":
    main()
