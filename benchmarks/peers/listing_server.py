"""A server on stdio with many tools like real ones: usage: listing_server.py NAME COUNT [ITEMS].

ITEMS is the number of its resources, of its templates and of its prompts. A call changes the
description of one tool, resource, template and prompt, and notifies the client of it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

NAME, COUNT, ITEMS = sys.argv[1], int(sys.argv[2]), int((*sys.argv, "0")[3])
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


def items(changes: int) -> dict[str, list[dict[str, Any]]]:
    resources, templates, prompts = [], [], []
    for number in range(ITEMS):
        word, other = WORDS[number % 10], WORDS[(number // 10) % 10]
        title = f"{word.title()} {number} of the {other}" + "!" * (changes if number == 0 else 0)
        text = f"The {word} with its {other}, as it was when the workspace was last read. " * 2
        part = {"name": f"{word}_{number}", "title": title, "description": text}
        path = f"{NAME}://workspace/{other}/{word}-{number}"
        typed = {**part, "mimeType": "text/markdown", "annotations": {"audience": ["user"]}}
        resources.append({**typed, "uri": f"{path}.md", "size": number})
        templates.append({**typed, "uriTemplate": path + "/{page}{?language}"})
        arguments = [
            {"name": each, "description": f"The {each} that is meant", "required": each == word}
            for each in (word, "language", "style")
        ]
        prompts.append({**part, "arguments": arguments})
    return {"resources": resources, "resourceTemplates": templates, "prompts": prompts}


LISTS = {
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
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
            kinds = ("tools", "resources", "prompts") if ITEMS else ("tools",)
            capabilities = {kind: {"listChanged": True} for kind in kinds}
            info = {"name": NAME, "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
            result["serverInfo"] = info
        elif request["method"] == "tools/list":
            result = {"tools": [tool(number, changes) for number in range(COUNT)]}
        elif request["method"] == "tools/call":
            result, changes = {"content": []}, changes + 1
            for kind in ("tools", "resources", "prompts") if ITEMS else ("tools",):
                send(method=f"notifications/{kind}/list_changed")
        elif request["method"] in LISTS and ITEMS:
            kind = LISTS[request["method"]]
            result = {kind: items(changes)[kind]}
        elif request["method"] != "ping":
            send(id=request["id"], error={"code": -32601, "message": "unknown method"})
            continue
        send(id=request["id"], result=result)


if __name__ == "__main__":
    main()
