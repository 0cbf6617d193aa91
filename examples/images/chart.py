"""A tool that draws a chart, and returns it as an image."""

import struct
import zlib
from typing import Annotated

from msgspec import Meta

from interlock import Image, Server

server = Server("chart", version="1.0.0")
HEIGHT, BAR = 100, 20  # pixels
Value = Annotated[int, Meta(ge=0, le=HEIGHT)]


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(values: list[int]) -> bytes:
    """Return bars in black on white, as a PNG file."""
    width = BAR * len(values)
    rows = [
        b"\0" + b"".join((b"\0" if HEIGHT - y <= each else b"\xff") * BAR for each in values)
        for y in range(HEIGHT)
    ]
    head = struct.pack(">IIBBBBB", width, HEIGHT, 8, 0, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in parts)


@server.tool(read_only=True)
def draw(values: Annotated[list[Value], Meta(min_length=1, max_length=50)]) -> list[str | Image]:
    """Draw numbers from 0 to 100 as bars."""
    return [f"{len(values)} bars:", Image(data=png(values), format="png")]
