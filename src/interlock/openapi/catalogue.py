"""A catalogue of the tools for one API, which is the same for every caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from interlock.context import Context
from interlock.errors import InvalidArguments
from interlock.server.catalogue import Definition, Kind, ServedTool
from interlock.server.subscribers import Subscribers
from interlock.types import (
    JsonObject,
    PromptReference,
    ResourceTemplateReference,
    ServerCapabilities,
)


class ApiCatalogue:
    """A `Catalogue` that lists the tools of an `OpenApiServer`.

    Attributes:
        version: Number of changes so far.
    """

    def __init__(self, subscribers: Subscribers) -> None:
        self.version = 0
        self._subscribers = subscribers
        self._tools: Mapping[str, ServedTool] = {}

    def install(self, tools: Mapping[str, ServedTool]) -> None:
        """Replace all tools, and notify the subscribers once."""
        self._tools = tools
        self.version += 1
        self._subscribers.list_changed("tools")

    def capabilities(self) -> ServerCapabilities:
        return ServerCapabilities(tools={"listChanged": True}, logging={})

    def view(self, context: Context) -> None:
        """Return None: all callers see the same lists."""

    def page(
        self,
        kind: Kind,
        cursor: str,
        context: Context,  # noqa: ARG002
    ) -> tuple[Sequence[Definition], str | None]:
        """Return the tools, in the order of the configuration."""
        if cursor:
            raise InvalidArguments("the cursor is not valid; list from the start")
        if kind != "tools":
            return [], None
        return [each.definition for each in self._tools.values()], None

    def list_meta(self, kind: Kind, context: Context) -> JsonObject:  # noqa: ARG002
        """Return no metadata; missing tools are reported in the server's status."""
        return {}

    def find(self, kind: str, name: str, context: Context) -> Any:  # noqa: ARG002
        return self._tools.get(name) if kind == "tools" else None

    def find_completion(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        context: Context,
    ) -> None:
        """Return None; an API offers no completions."""
