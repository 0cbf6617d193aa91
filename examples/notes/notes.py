"""Notes in a file, as tools, a resource and a prompt."""

from pathlib import Path

from interlock import Context, Server, ToolError
from interlock.errors import UnknownResource

FILE = Path("notes.txt")
server = Server("notes", version="1.0.0")


def read() -> list[str]:
    """Read all notes."""
    return FILE.read_text().splitlines() if FILE.exists() else []


def delete() -> None:
    """Delete the file."""
    FILE.unlink(missing_ok=True)


@server.tool
def add(text: str) -> str:
    """Add a note of one line."""
    if "\n" in text:
        raise ToolError("a note is one line; replace the line breaks by spaces")
    with FILE.open("a") as file:
        file.write(f"{text}\n")
    return f"note {len(read())}"


@server.tool(read_only=True)
def find(word: str) -> list[str]:
    """Find the notes that contain a word."""
    return [each for each in read() if word.lower() in each.lower()]


@server.tool
async def clear(context: Context) -> str:
    """Delete all notes, if the user agrees."""
    answer = await context.elicit(f"Delete {len(read())} notes?", None)
    if answer.action != "accept":
        return "nothing was deleted"
    delete()
    return "deleted"


@server.resource("notes://{number}", mime_type="text/plain")
def note(number: int) -> str:
    """Return one note."""
    if not 0 < number <= len(read()):
        raise UnknownResource(f"notes://{number}")
    return read()[number - 1]


@server.prompt
def tidy() -> str:
    """Ask for a tidier version of all notes."""
    return "Group these notes by subject:\n\n" + "\n".join(read())
