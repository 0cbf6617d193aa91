"""A small server of notes: the one that docs/author/ builds.

Run: interlock run examples/notes_server.py      (or python examples/notes_server.py)
"""

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from interlock import Context, Server, ToolError
from interlock.errors import UnknownResource


@asynccontextmanager
async def opened(_server: Server):
    notes["welcome"] = "Notes are short texts with a name."
    yield
    notes.clear()


notes: dict[str, str] = {}
server = Server("notes", version="1.0.0", lifespan=opened)


@dataclass
class Hit:
    """A note that was found."""

    name: str
    text: str


@server.tool
def search(query: str, limit: Annotated[int, Meta(ge=1, le=50)] = 10) -> list[Hit]:
    """Find the notes that contain a text.

    Args:
        query: What to look for.
        limit: How many notes to give at most.
    """
    return [Hit(*each) for each in notes.items() if query in each[1]][:limit]


@server.tool
async def write(name: str, text: str, context: Context) -> str:
    """Write a note; replace an existing one only if the user agrees."""
    if name in notes:
        answer = await context.elicit(f"Replace {name}?", {"type": "object", "properties": {}})
        if answer.action != "accept":
            raise ToolError(f"the user wants to keep {name}; choose another name")
    notes[name] = text
    server.resource_updated(f"notes://{name}")
    return f"wrote {name}"


@server.tool(timeout=60, concurrency=2)
async def count_words(context: Context) -> dict[str, int]:
    """Count the words of each note."""
    counts = {}
    for done, (name, text) in enumerate(notes.items(), start=1):
        counts[name] = len(text.split())
        context.progress(done, total=len(notes), message=name)
    return counts


@server.resource("notes://{name}", mime_type="text/plain")
def note(name: str) -> str:
    """One note."""
    if name not in notes:
        raise UnknownResource(f"notes://{name}")
    return notes[name]


@server.prompt
def review(name: str, tone: str = "kind") -> str:
    """Ask for a review of a note."""
    return f"Review this note in a {tone} tone:\n\n{notes[name]}"


@server.completion("review", "tone")
def tones(typed: str) -> list[str]:
    return [tone for tone in ("kind", "curt") if tone.startswith(typed)]


if __name__ == "__main__":
    server.run()
