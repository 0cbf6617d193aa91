"""A tool of a toolbox, as every surface sees it."""

from __future__ import annotations

from msgspec import Struct

from interlock.types import Tool


class Entry(Struct, frozen=True):
    """One tool of a toolbox.

    Attributes:
        server: Name of its server in the toolbox.
        tool: The definition, decoded.
        address: "server:name", for people, logs and events.
        wire_name: The name for models: 1 to 64 of `[A-Za-z0-9_-]`, see `toolbox.names`.
        input_schema: The tool's JSON Schema, encoded.
        definition: The whole definition, encoded, with `wire_name` as its name. Members that
            interlock does not know are kept.
        stale: The server is down, and this is from its last good list.
    """

    server: str
    tool: Tool
    address: str
    wire_name: str
    input_schema: bytes
    definition: bytes = b""
    stale: bool = False
