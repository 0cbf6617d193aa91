"""What a toolbox offers, as every surface sees it: tools, resources and prompts."""

from __future__ import annotations

from typing import Literal

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
        pin: The hash of the definition, which changes whenever that does; see `toolbox.pins`.
        risk: As the operator stated it when accepting the definition; None if not.
        operation: Of an HTTP API, "METHOD /path"; "" for other tools.
    """

    server: str
    tool: Tool
    address: str
    wire_name: str
    input_schema: bytes
    definition: bytes = b""
    stale: bool = False
    pin: str = ""
    risk: Literal["read", "write"] | None = None
    operation: str = ""


class Item(Struct, frozen=True):
    """A resource or a prompt; also a tool of which no more than the name is known.

    Attributes:
        kind: Which of them.
        server: Name of its server in the toolbox.
        name: As its server names it; of a resource, the URI.
    """

    kind: Literal["tools", "resources", "prompts"]
    server: str
    name: str

    @property
    def address(self) -> str:
        """ "server:name", for people, logs and records."""
        return f"{self.server}:{self.name}"
