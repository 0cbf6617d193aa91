"""The tools, resources and prompts that a toolbox offers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from interlock.types import Tool


class Entry(Struct, frozen=True):
    """A tool in a toolbox.

    Attributes:
        server: The name of the tool's server in the toolbox.
        tool: The decoded definition.
        address: "server:name", for people, logs and events.
        wire_name: The name for models, 1 to 64 characters of `[A-Za-z0-9_-]`; see `toolbox.names`.
        input_schema: The encoded JSON Schema of the arguments.
        definition: The whole encoded definition, with `wire_name` as its name. Unknown members are
            kept.
        stale: Whether the server is unavailable, so that this definition is from its last valid
            list.
        pin: The hash of the definition, which changes with the definition; see `toolbox.pins`.
        risk: The risk that the operator set when accepting the definition; None if not set.
        operation: "METHOD /path" for a tool of an HTTP API; "" for other tools.
        is_always_listed: Whether the operator lists the tool even if a model searches for tools.
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
    is_always_listed: bool = False


class Item(Struct, frozen=True):
    """A resource or a prompt, or a tool whose name only is known.

    Attributes:
        kind: The kind of the item.
        server: The name of the item's server in the toolbox.
        name: The item's name at the server; for a resource, its URI.
    """

    kind: Literal["tools", "resources", "prompts"]
    server: str
    name: str

    @property
    def address(self) -> str:
        """ "server:name", for people, logs and records."""
        return f"{self.server}:{self.name}"
