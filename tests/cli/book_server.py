"""A server with resources and a prompt."""

from __future__ import annotations

BOOK_SERVER = '''
from interlock import Server

server = Server("library")


@server.resource("book://moby", mime_type="text/plain", title="Moby Dick")
def moby() -> str:
    return "Call me Ishmael.\\x1b[2J"


@server.resource("cover://moby", mime_type="image/png")
def cover() -> bytes:
    return b"\\x89PNG\\x00\\xff"


@server.resource("page://{number}")
def page(number: int) -> str:
    return f"page {number}"


@server.prompt
def review(book: str, tone: str = "kind") -> str:
    """Review a book."""
    return f"Review {book} in a {tone} tone."


server.run()
'''
