"""What the servers of peers offer: the same for all, in words that each makes its own types of.

JSON is as on the wire. A peer's server runs in an environment of its own, without interlock.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

from pydantic import BaseModel

NAME = "workshop"
INSTRUCTIONS = "Count twice, cut once."
LIST = "shop://list"
LOGO = b"a picture"
_LOGO = base64.b64encode(LOGO).decode()

# What the tool `show` gives: content of every kind
SHOWN: list[dict[str, Any]] = [
    {"type": "text", "text": "here"},
    {"type": "image", "data": _LOGO, "mimeType": "image/png"},
    {"type": "audio", "data": _LOGO, "mimeType": "audio/wav"},
    {
        "type": "resource",
        "resource": {"uri": LIST, "mimeType": "text/plain", "text": "saw, hammer"},
    },
    {"type": "resource_link", "uri": "shop://logo", "name": "logo"},
]


class Total(BaseModel):
    """The result of the tool `add`."""

    total: int


class Maker(BaseModel):
    """The form that the tool `ask` sends to the user."""

    name: str
    tries: int = 3


WHO = "Who makes it?"
MOTTO = [{"role": "user", "content": {"type": "text", "text": "a motto"}}]
QUESTIONS: dict[str, dict[str, Any]] = {
    "maker": {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": WHO, "requestedSchema": Maker.model_json_schema()},
    },
    "motto": {"method": "sampling/createMessage", "params": {"messages": MOTTO, "maxTokens": 20}},
    "folders": {"method": "roots/list"},
}


def told(maker: Maker, motto: Any, folders: Any) -> str:
    """Return the answers to the tool `ask`, as text."""
    uris = [str(root.uri) for root in folders.roots]
    return json.dumps({"maker": maker.model_dump(), "motto": motto.content.text, "folders": uris})


def proposals(argument: Any, context: Any) -> list[str]:
    """Complete `tone`, which depends on `name`, and names of tools."""
    before = (context and context.arguments) or {}
    tones = ["kinder"] if before.get("name") == "Ada" else ["kind", "curt"]
    known = tones if argument.name == "tone" else ["saw", "screw", "hammer"]
    return [each for each in known if each.startswith(argument.value)]


# Running: python PEER_server.py stdio|http|sse


def main(stdio: Callable[[], None], http: Callable[[], Any], sse: Callable[[], Any]) -> None:
    """Run a server: on stdio, or one of the applications that are made for HTTP.

    Over HTTP it listens at $AT_PORT or a free port, the first line of stdout is the URL, and it
    ends when its stdin does.
    """
    over = sys.argv[1]
    if over == "stdio":
        stdio()
        return
    import uvicorn

    listening = socket.create_server(("127.0.0.1", int(os.environ.get("AT_PORT", "0"))))
    app, path = (http(), "/mcp") if over == "http" else (sse(), "/sse")

    def end() -> None:
        sys.stdin.read()
        os._exit(0)

    Thread(target=end, daemon=True).start()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}{path}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listening])
