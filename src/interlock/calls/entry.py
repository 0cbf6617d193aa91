"""The tools, resources and prompts that a toolbox offers to every surface."""

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
        definition: The whole definition, encoded, with `wire_name` as its name. Unknown
            members are kept.
        stale: The server is down, and this definition is from its last valid list.
        pin: The hash of the definition, which changes whenever that does; see `toolbox.pins`.
        risk: The risk that the operator stated when accepting the definition; None for none.
        operation: "METHOD /path" of a tool of an HTTP API; "" for other tools.
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
    """A resource or a prompt, or a tool of which only the name is known.

    Attributes:
        kind: The kind of the item.
        server: Name of its server in the toolbox.
        name: The name that its server uses; for a resource, the URI.
    """

    kind: Literal["tools", "resources", "prompts"]
    server: str
    name: str

    @property
    def address(self) -> str:
        """ "server:name", for people, logs and records."""
        return f"{self.server}:{self.name}"
