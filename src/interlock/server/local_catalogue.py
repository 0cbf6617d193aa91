"""A catalogue of the tools, resources, prompts and completions added to a `Server`."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from interlock import schema
from interlock.context import Context
from interlock.errors import InvalidArguments, LocalProtocolError
from interlock.protocol.envelope import encode
from interlock.revisions import TASKS_EXTENSION
from interlock.server.catalogue import (
    Definition,
    Kind,
    ServedCompletion,
    ServedPrompt,
    ServedResource,
    ServedTool,
    input_schema,
)
from interlock.server.mounting import Mountable, Table
from interlock.server.resources import FunctionCompletion, FunctionPrompt, FunctionResource
from interlock.server.subscribers import Subscribers
from interlock.server.text_arguments import Choices
from interlock.server.tool_layers import LayeredObject, LayerStack
from interlock.server.tool_options import Visible, is_visible
from interlock.server.tools import FunctionTool
from interlock.types import (
    JsonObject,
    PromptReference,
    ResourceTemplateReference,
    ServerCapabilities,
    Tool,
)

PAGE_SIZE = 1_000

_CURSOR = re.compile(r"[1-9][0-9]{0,8}")
_T = TypeVar("_T")


class LocalCatalogue(Mountable):
    """A `Catalogue` of items that were added. Subscribers are notified of changes.

    All callers see the same items, except for tools with a predicate `visible`.

    Args:
        subscribers: The clients that are notified of changes.
        layers: The layers around calls of tools; None if there are none.
    """

    def __init__(self, subscribers: Subscribers, layers: LayerStack | None = None) -> None:
        super().__init__(subscribers)
        self._layers = layers
        self._visible: dict[str, Visible] = {}  # the predicates of tools, by name
        self._tools: dict[str, ServedTool] = self.tables["tools"]
        self._resources: dict[str, FunctionResource] = self.tables["resources"]
        self._templates: dict[str, FunctionResource] = self.tables["resourceTemplates"]
        self._prompts: dict[str, FunctionPrompt] = self.tables["prompts"]
        self._completions: dict[tuple[str, str], FunctionCompletion] = self.tables["completions"]

    # Implementation of `Catalogue`

    def capabilities(self) -> ServerCapabilities:
        """Return the capability of each kind of item that the server has."""
        changes = {"listChanged": True}
        has_resources = self._resources or self._templates
        has_tasks = any(
            isinstance(each, FunctionTool) and each.task for each in self._tools.values()
        )
        completed: list[FunctionPrompt | FunctionResource] = [
            *self._prompts.values(),
            *self._templates.values(),
        ]
        has_completions = self._completions or any(each.choices for each in completed)
        return ServerCapabilities(
            tools=changes if self._tools else None,
            resources={"subscribe": True, **changes} if has_resources else None,
            prompts=changes if self._prompts else None,
            completions={} if has_completions else None,
            logging={},
            extensions={TASKS_EXTENSION: {}} if has_tasks else None,
        )

    def view(self, context: Context) -> tuple[bool, ...] | None:
        """Return which of the tools with a predicate the caller sees; None if there are none."""
        if not self._visible:
            return None
        return tuple(is_visible(name, each, context) for name, each in self._visible.items())

    def _hides(self, name: str, context: Context) -> bool:
        return name in self._visible and not is_visible(name, self._visible[name], context)

    def page(
        self,
        kind: Kind,
        cursor: str,
        context: Context,
    ) -> tuple[Sequence[Definition], str | None]:
        """Return up to `PAGE_SIZE` definitions, in the order in which they were added."""
        hides = self._hides if kind == "tools" and self._visible else _hides_nothing
        items = [
            each.definition for name, each in self.tables[kind].items() if not hides(name, context)
        ]
        start = _start(cursor, len(items))
        end = start + PAGE_SIZE
        return items[start:end], str(end) if end < len(items) else None

    def list_meta(self, kind: Kind, context: Context) -> JsonObject:  # noqa: ARG002
        """Return no members, because these lists are always complete."""
        return {}

    @overload
    def find(self, kind: Literal["tools"], name: str, context: Context) -> ServedTool | None: ...
    @overload
    def find(
        self, kind: Literal["resources"], name: str, context: Context
    ) -> ServedResource | None: ...
    @overload
    def find(
        self, kind: Literal["prompts"], name: str, context: Context
    ) -> ServedPrompt | None: ...
    def find(self, kind: str, name: str, context: Context) -> Any:
        if kind == "tools":
            if name in self._visible and self._hides(name, context):
                return None
            return self._tools.get(name)
        if kind == "prompts":
            return self._prompts.get(name)
        exact = self._resources.get(name)
        if exact is not None:
            return exact
        return next((each for each in self._templates.values() if each.serves(name)), None)

    def find_completion(
        self,
        ref: PromptReference | ResourceTemplateReference,
        argument: str,
        context: Context,  # noqa: ARG002
    ) -> ServedCompletion | None:
        """Return the completion for an argument of a prompt or template, or None."""
        of_prompt = isinstance(ref, PromptReference)
        name = ref.name if isinstance(ref, PromptReference) else ref.uri
        known: Mapping[str, FunctionPrompt | FunctionResource] = (
            self._prompts if of_prompt else self._templates
        )
        if name not in known:
            raise InvalidArguments(f"unknown prompt or resource template {name!r}")
        choices = known[name].choices.get(argument)
        own = None if choices is None else Choices(choices)
        return self._completions.get((name, argument), own)

    # Changing

    def add_tool(self, tool: ServedTool) -> None:
        """Add a tool.

        Raises:
            LocalProtocolError: The name is already used, or the definition has no name.
            SchemaError: The definition's input schema is not usable.
            SignatureError: A server of which this one is a part cannot have the tool.
        """
        definition = tool.definition
        if isinstance(definition, Tool):
            name: object = definition.name
        else:
            name = definition.get("name")
        if not isinstance(name, str) or not name:
            raise LocalProtocolError(f"the definition of {tool!r} has no name")
        if not isinstance(tool, FunctionTool):  # a function's schema has been checked already
            if not isinstance(definition, Tool) and "inputSchema" not in definition:
                raise LocalProtocolError(f"the definition of tool {name!r} has no inputSchema")
            schema.check_tool_input(encode(input_schema(definition)))
        self.add("tools", name, tool)

    def add_resource(self, uri: str, resource: FunctionResource) -> None:
        """Add a resource, or a template if its URI has variables."""
        self.add("resourceTemplates" if resource.template.variables else "resources", uri, resource)

    def remove_resource(self, uri: str) -> None:
        table: Table = "resourceTemplates" if uri in self._templates else "resources"
        self.remove(table, uri, LocalProtocolError(f"unknown resource {uri!r}"))

    def put(self, table: Table, key: Any, item: Any) -> None:
        if table == "tools":
            if self._layers is not None:
                item = layered(item, self._layers._replace(name=key))
            if isinstance(item, FunctionTool) and item.visible is not None:
                self._visible[key] = item.visible
        super().put(table, key, item)

    def drop(self, table: Table, key: Any) -> None:
        super().drop(table, key)
        if table == "tools":
            self._visible.pop(key, None)


def layered(tool: ServedTool, stack: LayerStack) -> ServedTool:
    """Return a tool with further layers around the layers that it has."""
    if isinstance(tool, FunctionTool | LayeredObject):
        tool = copy.copy(tool)
        tool.layers = (stack, *tool.layers)
        return tool
    return LayeredObject(tool, (stack,))


def _hides_nothing(_name: str, _context: Context) -> bool:
    return False


def _start(cursor: str, count: int) -> int:
    if cursor == "":
        return 0
    start = int(cursor) if _CURSOR.fullmatch(cursor) else 1
    if start % PAGE_SIZE:
        raise InvalidArguments("the cursor is not from this server")
    if start >= count:
        raise InvalidArguments("the cursor points past the end; start again without a cursor")
    return start
