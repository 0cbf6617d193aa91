"""A catalogue of the tools, resources, prompts and completions added to a `Server`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, overload

from interlock import schema
from interlock.context import Context
from interlock.errors import InvalidArguments, LocalProtocolError, UnknownTool
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
from interlock.server.resources import FunctionCompletion, FunctionPrompt, FunctionResource
from interlock.server.subscribers import Subscribers
from interlock.server.text_arguments import Choices
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


class LocalCatalogue:
    """A `Catalogue` with the same items for all callers. Subscribers are notified of changes.

    Attributes:
        version: The number of changes so far.
    """

    def __init__(self, subscribers: Subscribers) -> None:
        self.version = 0
        self._subscribers = subscribers
        self._tools: dict[str, ServedTool] = {}
        self._resources: dict[str, FunctionResource] = {}
        self._templates: dict[str, FunctionResource] = {}
        self._prompts: dict[str, FunctionPrompt] = {}
        self._completions: dict[tuple[str, str], FunctionCompletion] = {}

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

    def view(self, context: Context) -> None:
        """Return the same key for all callers, because all callers see the same items."""

    def page(
        self,
        kind: Kind,
        cursor: str,
        context: Context,  # noqa: ARG002
    ) -> tuple[Sequence[Definition], str | None]:
        """Return up to `PAGE_SIZE` definitions, in the order in which they were added."""
        tables: dict[Kind, Mapping[str, Any]] = {
            "tools": self._tools,
            "resources": self._resources,
            "resourceTemplates": self._templates,
            "prompts": self._prompts,
        }
        items = [each.definition for each in tables[kind].values()]
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
    def find(self, kind: str, name: str, context: Context) -> Any:  # noqa: ARG002
        if kind == "tools":
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
        _add(self._tools, name, tool, "tool")
        self._changed("tools")

    def remove_tool(self, name: str) -> None:
        if self._tools.pop(name, None) is None:
            raise UnknownTool(f"unknown tool {name!r}")
        self._changed("tools")

    def add_resource(self, uri: str, resource: FunctionResource) -> None:
        """Add a resource, or a template if its URI has variables."""
        table = self._templates if resource.template.variables else self._resources
        _add(table, uri, resource, "resource")
        self._changed("resources")

    def remove_resource(self, uri: str) -> None:
        if self._resources.pop(uri, None) is None and self._templates.pop(uri, None) is None:
            raise LocalProtocolError(f"unknown resource {uri!r}")
        self._changed("resources")

    def add_prompt(self, prompt: FunctionPrompt) -> None:
        _add(self._prompts, prompt.definition.name, prompt, "prompt")
        self._changed("prompts")

    def remove_prompt(self, name: str) -> None:
        if self._prompts.pop(name, None) is None:
            raise LocalProtocolError(f"unknown prompt {name!r}")
        self._changed("prompts")

    def add_completion(self, ref: str, argument: str, completion: FunctionCompletion) -> None:
        """Add a completion for an argument of the prompt or template `ref`."""
        _add(self._completions, (ref, argument), completion, "completion")
        self.version += 1

    def _changed(self, kind: Literal["tools", "resources", "prompts"]) -> None:
        self.version += 1
        self._subscribers.list_changed(kind)


def _add(table: dict[Any, _T], key: Any, item: _T, noun: str) -> None:
    if key in table:
        raise LocalProtocolError(f"the server has a {noun} {key!r} already; remove it first")
    table[key] = item


def _start(cursor: str, count: int) -> int:
    if cursor == "":
        return 0
    start = int(cursor) if _CURSOR.fullmatch(cursor) else 1
    if start % PAGE_SIZE:
        raise InvalidArguments("the cursor is not from this server")
    if start >= count:
        raise InvalidArguments("the cursor points past the end; start again without a cursor")
    return start
