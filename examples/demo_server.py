"""A server of notes that uses every feature of a server.

Run: python examples/demo_server.py            on stdin and stdout, for a client that starts it
     python examples/demo_server.py 8000       at http://127.0.0.1:8000/mcp  (the extra serve)
"""

from __future__ import annotations

import asyncio
import logging
import struct
import sys
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from msgspec import Meta, Struct

from interlock import Context, Depends, Image, Server, ToolError
from interlock.context import elicitation, sampling
from interlock.errors import InvalidArguments, UnknownResource
from interlock.messages import Message, UserMessage
from interlock.protocol import Request
from interlock.server import Handler
from interlock.types import Content, EmbeddedResource, ResourceContents, ResourceLink, TextContent

log = logging.getLogger("notes")
notes: dict[str, str] = {}


class Note(Struct):
    """A note as a tool returns it: its fields become the tool's output schema."""

    name: str
    text: str


# The server. Its lifespan opens resources once; a middleware sees every request.


@asynccontextmanager
async def opened(_server: Server) -> AsyncGenerator[dict[str, str], None]:
    """Load the notes before the first request, and clear them after the last."""
    notes.update(
        welcome="Notes are short texts with a name.",
        shopping="apples, bread, cheese",
        travel="Zurich to Tokyo, bring the charger",
    )
    yield notes
    notes.clear()


def logged(handle: Handler) -> Handler:
    """Log each request."""

    async def logged_handle(request: Request, context: Context) -> bytes:
        log.info("%s in revision %s", request.method, context.revision)
        return await handle(request, context)

    return logged_handle


server = Server(
    "notes",
    version="1.0.0",
    title="Notes",
    instructions="Search before you write: a note of the same name is replaced.",
    lifespan=opened,
    middleware=[logged],
)


def find(name: str) -> str:
    """Return a note's text; the model reads the text of a `ToolError`."""
    if name not in notes:
        raise ToolError(f"note {name!r} does not exist; search for it")
    return notes[name]


# A parameter with this hint is not an argument: the server calls `find` with the argument `name`.
Found = Annotated[str, Depends(find)]


class Sure(Struct):
    """A form, which the client shows to the user."""

    sure: bool


# Tools. Name, description and schemas come from the function. A plain function runs in a worker
# thread, an async function in the event loop.


@server.tool(read_only=True)
def search(query: str, limit: Annotated[int, Meta(ge=1, le=50)] = 10) -> list[Note]:
    """Find the notes that contain a text.

    Args:
        query: What to look for, in any case.
        limit: Most notes to return.
    """
    found = [each for each in list(notes.items()) if query.lower() in each[1].lower()]
    return [Note(name, text) for name, text in found[:limit]]


@server.tool(destructive=False, idempotent=True)
async def write(name: str, text: str) -> str:
    """Write a note and notify the clients that subscribed to it."""
    notes[name] = text
    server.resource_updated(f"notes://{name}")
    return f"wrote {name}"


@server.tool
async def delete(name: str, text: Found, context: Context[dict[str, str]]) -> str:
    """Delete a note after the user has agreed."""
    question = f"Delete the note {name!r} of {len(text)} characters?"
    answer = await context.elicit(question, Sure, key="sure")
    if answer.action != "accept" or not answer.data.sure:
        return f"kept {name}"
    del context.lifespan[name]
    return f"deleted {name}"


@server.tool(timeout=60, concurrency=4)
async def count_words(context: Context) -> dict[str, int]:
    """Count the words of each note, with progress."""
    counts: dict[str, int] = {}
    for done, (name, text) in enumerate(list(notes.items()), start=1):
        counts[name] = len(text.split())
        context.progress(done, total=len(notes), message=name)
        context.log("info", {"note": name, "words": counts[name]}, logger="notes")
        await asyncio.sleep(0)  # real work would wait here, and could be cancelled
    return counts


@server.tool
async def summarize(name: str, context: Context) -> str:
    """Summarize a note in one line with the client's model."""
    answer = await context.sample(f"In one line: {find(name)}", max_tokens=50, key="summary")
    return answer.text


@server.tool
async def sign(name: str, text: Found, context: Context) -> str:
    """Add a name and a motto to a note: two questions, asked together."""
    schema = {"type": "object", "properties": {"author": {"type": "string"}}}
    answers = await context.ask(
        {
            "author": elicitation("Who signs?", schema),
            "motto": sampling("Invent a motto of three words", max_tokens=20),
        }
    )
    author = (answers["author"].content or {}).get("author", "anonymous")
    notes[name] = f"{text} ({author}: {answers['motto'].text})"
    return notes[name]


@server.tool
async def folders(context: Context) -> list[str]:
    """List the folders that the client works in."""
    return [root.uri for root in await context.roots(key="folders")]


@server.tool(task=True)
async def tidy(context: Context) -> str:
    """Sort the notes by name. It takes long, so it runs as a task if the client supports tasks."""
    for done, name in enumerate(sorted(notes), start=1):
        notes[name] = notes.pop(name)
        context.progress(done, total=len(notes), message=f"sorted {name}")
        await asyncio.sleep(0.01)
    return f"sorted {len(notes)} notes"


@server.tool
async def attach(name: str) -> list[Content]:
    """Return a note in every form: as text, as a resource, and as a link."""
    uri = f"notes://{name}"
    return [
        TextContent(text=find(name)),
        EmbeddedResource(resource=ResourceContents(uri=uri, text=find(name))),
        ResourceLink(uri=uri, name=name, mime_type="text/plain"),
    ]


@server.tool
def swatch(color: Literal["red", "green", "blue"]) -> Image:
    """Paint a square in a color."""
    pixel = {"red": b"\xff\0\0", "green": b"\0\xff\0", "blue": b"\0\0\xff"}[color]
    return Image(data=square(pixel))


@server.tool
async def pin(name: str) -> str:
    """Offer a note as its own resource, prompt and tool, and notify clients."""
    find(name)

    async def pinned() -> str:
        """Return a pinned note."""
        return find(name)

    server.resource(f"pinned://{name}", name=name, mime_type="text/plain")(pinned)
    server.prompt(name=f"pinned_{name}")(pinned)
    server.tool(name=f"read_{name}")(pinned)
    return f"pinned {name}"


# Resources, at a fixed URI or at a URI template.


@server.resource("notes://all", mime_type="application/json")
async def all_notes() -> dict[str, str]:
    """All notes, as JSON."""
    return notes


@server.resource("notes://logo", mime_type="image/png")
async def logo() -> bytes:
    """A picture."""
    return square(b"\0\xff\0")


@server.resource("notes://{name}", mime_type="text/plain")
async def note(name: str) -> str:
    """One note."""
    if name not in notes:
        raise UnknownResource(f"notes://{name}")
    return notes[name]


@server.completion("notes://{name}", "name")
def complete_note(typed: str) -> list[str]:
    """Suggest names of notes."""
    return [name for name in notes if name.startswith(typed)]


# Prompts, which a user can choose.


@server.prompt
def review(name: str, tone: str = "kind") -> list[Message]:
    """Ask for a review of a note.

    Args:
        name: The note.
        tone: The tone of the review.
    """
    if name not in notes:
        raise InvalidArguments(f"note {name!r} does not exist")
    return [UserMessage(f"Review this note in a {tone} tone."), UserMessage(notes[name])]


@server.completion("review", "tone")
async def complete_tone(typed: str, arguments: dict[str, str]) -> list[str]:
    """Suggest tones, depending on the other arguments."""
    tones = ["kind", "critical"] if arguments.get("name") == "welcome" else ["kind", "curt"]
    return [tone for tone in tones if tone.startswith(typed)]


def square(color: bytes) -> bytes:
    """Return a PNG of one pixel, with a byte each for red, green and blue."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(b"\0" + color))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


if __name__ == "__main__":
    if sys.argv[1:]:
        server.run_http(port=int(sys.argv[1]), sse=True)  # clients of 2024-11-05 use /sse
    else:
        server.run()
