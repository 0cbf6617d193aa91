"""What every peer does with the demo server, and what it must see: once for all peers.

A peer is another client library. Its script adapts it to `Peer`; all values are as on the wire.
It runs in an environment of its own, without interlock, and prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

LIMIT = 20.0  # seconds for a notification to come

# How the person, the model and the client itself answer.
ROOTS = ["file:///work"]
SAMPLED = {
    "role": "assistant",
    "content": {"type": "text", "text": "Short is good"},
    "model": "scripted",
}
FORM = {"sure": True, "author": "Ada"}

Progress = Callable[[float, float | None, str | None], None]


class Peer(Protocol):
    """A client that is connected to the demo server."""

    heard: Heard

    async def about(self) -> dict[str, Any]: ...  # revision, name, instructions
    async def tools(self) -> list[dict[str, Any]]: ...
    async def call(
        self, name: str, arguments: dict[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]: ...
    async def resources(self) -> list[dict[str, Any]]: ...
    async def templates(self) -> list[dict[str, Any]]: ...
    async def read(self, uri: str) -> dict[str, Any]: ...
    async def prompts(self) -> list[dict[str, Any]]: ...
    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]: ...
    async def complete(
        self, ref: dict[str, str], argument: str, typed: str, before: dict[str, str]
    ) -> dict[str, Any]: ...
    def watching(self, uri: str) -> AbstractAsyncContextManager[None]: ...


class Heard:
    """The notifications that the server has sent."""

    def __init__(self) -> None:
        self.logs: list[Any] = []
        self._changes: set[str] = set()
        self._more = asyncio.Event()

    def add(self, change: str) -> None:
        """Record a change: "tools", "prompts", "resources", or the URI of a resource."""
        self._changes.add(change)
        self._more.set()

    def add_notification(self, method: str, uri: object) -> None:
        """Record a change from its notification."""
        if method == "notifications/resources/updated":
            self.add(str(uri))
        elif method.endswith("/list_changed"):
            self.add(method.split("/")[1])

    async def wait(self, wanted: set[str]) -> list[str]:
        """Wait for changes; return all that were received."""
        async with asyncio.timeout(LIMIT):
            while not wanted <= self._changes:
                self._more.clear()
                await self._more.wait()
        return sorted(self._changes)


async def tell(peer: Peer) -> dict[str, Any]:
    """Use every feature of the demo server; return the results."""
    seen = await peer.about()
    seen["tools"] = [tool["name"] for tool in await peer.tools()]
    seen |= await use_tools(peer)
    seen |= await be_asked(peer)
    seen |= await use_the_rest(peer)
    async with peer.watching("notes://shopping"):
        await peer.call("write", {"name": "shopping", "text": "apples"})
        await peer.call("pin", {"name": "welcome"})
        seen["heard"] = await peer.heard.wait({"tools", "prompts", "resources", "notes://shopping"})
    new = {tool["name"] for tool in await peer.tools()} - set(seen["tools"])
    seen["new_tools"] = sorted(new)
    seen["pinned"] = text_of(await peer.call("read_welcome", {}))
    return seen


async def use_tools(peer: Peer) -> dict[str, Any]:
    """Call tools: results of all kinds, progress, logs and errors."""
    found = await peer.call("search", {"query": "APPLES", "limit": 2})
    steps: list[list[Any]] = []
    counted = await peer.call("count_words", {}, lambda *step: steps.append(list(step)))
    attached = await peer.call("attach", {"name": "travel"})
    painted = await peer.call("swatch", {"color": "red"})
    wrong = await peer.call("search", {"query": "a", "limit": 0})
    missing = await peer.call("delete", {"name": "nothing"})
    tidied = await peer.call("tidy", {})
    return {
        "found": found["structuredContent"],
        "found_text": json.loads(text_of(found)),
        "counted": counted["structuredContent"],
        "steps": steps,
        "logs": peer.heard.logs,
        "attached": [block["type"] for block in attached["content"]],
        "painted": [block["mimeType"] for block in painted["content"]],
        "wrong": [wrong["isError"], text_of(wrong)],
        "missing": [missing["isError"], text_of(missing)],
        "tidied": text_of(tidied),
        "unknown": await code_of(peer.call("nothing", {})),
    }


async def be_asked(peer: Peer) -> dict[str, Any]:
    """Call tools that ask the user, the model, the client, and two of them at once."""
    return {
        "deleted": text_of(await peer.call("delete", {"name": "travel"})),
        "summary": text_of(await peer.call("summarize", {"name": "welcome"})),
        "folders": text_of(await peer.call("folders", {})),
        "signed": text_of(await peer.call("sign", {"name": "shopping"})),
    }


async def use_the_rest(peer: Peer) -> dict[str, Any]:
    """Use resources, prompts and completion."""
    note = await peer.read("notes://welcome")
    logo = await peer.read("notes://logo")
    review = await peer.prompt("review", {"name": "welcome", "tone": "curt"})
    of_note = {"type": "ref/resource", "uri": "notes://{name}"}
    of_review = {"type": "ref/prompt", "name": "review"}
    return {
        "resources": [each["uri"] for each in await peer.resources()],
        "templates": [each["uriTemplate"] for each in await peer.templates()],
        "note": note["contents"][0]["text"],
        "logo": [logo["contents"][0]["mimeType"], logo["contents"][0]["blob"][:8]],
        "no_resource": await code_of(peer.read("nothing://here")),
        "no_note": await code_of(peer.read("notes://nothing")),
        "prompts": [each["name"] for each in await peer.prompts()],
        "review": [each["content"]["text"] for each in review["messages"]],
        "names": await proposals(peer, of_note, "name", "w", {}),
        "tones": await proposals(peer, of_review, "tone", "c", {"name": "welcome"}),
        "no_prompt": await code_of(peer.prompt("nothing", {})),
    }


async def proposals(
    peer: Peer, ref: dict[str, str], argument: str, typed: str, before: dict[str, str]
) -> list[str]:
    """Request completions; return the values."""
    completed = await peer.complete(ref, argument, typed, before)
    values: list[str] = completed["completion"]["values"]
    return values


def text_of(result: dict[str, Any]) -> str:
    """Join the text blocks of a result."""
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


async def code_of(request: Any) -> int | str:
    """Return the code of the error that a request raises."""
    try:
        return f"no error: {await request}"
    except Exception as error:
        told = getattr(error, "error", error)  # some have it all in one
        if not hasattr(told, "code"):
            raise
        return int(told.code)


def wire(model: Any) -> Any:
    """Convert a model of the peer's SDK to JSON as on the wire."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def main(connect: Callable[[str, list[str]], AbstractAsyncContextManager[Peer]]) -> None:
    """Use the demo server once for each line of stdin, a JSON list: era, and URL or command.

    Loading a peer takes seconds, so one process does it all. What was seen is a line of stdout.
    """

    async def run() -> None:
        for line in sys.stdin:
            era, *target = json.loads(line)
            async with connect(era, target) as peer:
                print(json.dumps(await tell(peer)), flush=True)

    asyncio.run(run())
