"""What a server offers: tools, resources, prompts and completions, by name."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from interlock.context import Context
from interlock.errors import LocalProtocolError, UnknownTool
from interlock.revisions import TASKS_EXTENSION
from interlock.server.resources import ServedCompletion, ServedPrompt, ServedResource
from interlock.server.subscribers import Subscribers
from interlock.server.tools import ServedTool
from interlock.types import ServerCapabilities

_T = TypeVar("_T")


class Catalogue:
    """The tables of a server. Subscribers are told of every change.

    Attributes:
        version: Counts the changes, so that what was made from the tables can be renewed.
    """

    def __init__(self, subscribers: Subscribers) -> None:
        self.tools: dict[str, ServedTool] = {}
        self.resources: dict[str, ServedResource] = {}
        self.templates: dict[str, ServedResource] = {}
        self.prompts: dict[str, ServedPrompt] = {}
        self.completions: dict[tuple[str, str], ServedCompletion] = {}
        self.version = 0
        self._listeners = subscribers

    @property
    def has_tasks(self) -> bool:
        """Whether a call may become a task."""
        return any(each.task for each in self.tools.values())

    def capabilities(self) -> ServerCapabilities:
        """What there is: only that is declared, and only that is answered."""
        changes = {"listChanged": True}
        has_resources = self.resources or self.templates
        return ServerCapabilities(
            tools=changes if self.tools else None,
            resources={"subscribe": True, **changes} if has_resources else None,
            prompts=changes if self.prompts else None,
            completions={} if self.completions else None,
            logging={},
            extensions={TASKS_EXTENSION: {}} if self.has_tasks else None,
        )

    def add_tool(self, tool: ServedTool) -> None:
        """Add a tool; a second one of its name is refused."""
        _add(self.tools, tool.definition.name, tool, "tool")
        self._changed("tools")

    def remove_tool(self, name: str) -> None:
        """Take a tool away."""
        if self.tools.pop(name, None) is None:
            raise UnknownTool(f"no tool {name!r}")
        self._changed("tools")

    def add_resource(self, uri: str, resource: ServedResource) -> None:
        """Add a resource, or a template if its URI has variables."""
        table = self.templates if resource.template.variables else self.resources
        _add(table, uri, resource, "resource")
        self._changed("resources")

    def remove_resource(self, uri: str) -> None:
        """Take a resource or template away."""
        if self.resources.pop(uri, None) is None and self.templates.pop(uri, None) is None:
            raise LocalProtocolError(f"no resource {uri!r}")
        self._changed("resources")

    def add_prompt(self, prompt: ServedPrompt) -> None:
        """Add a prompt; a second one of its name is refused."""
        _add(self.prompts, prompt.definition.name, prompt, "prompt")
        self._changed("prompts")

    def remove_prompt(self, name: str) -> None:
        """Take a prompt away."""
        if self.prompts.pop(name, None) is None:
            raise LocalProtocolError(f"no prompt {name!r}")
        self._changed("prompts")

    def add_completion(self, ref: str, argument: str, completion: ServedCompletion) -> None:
        """Add proposals for an argument of the prompt or template `ref`."""
        _add(self.completions, (ref, argument), completion, "completion")

    def find(
        self,
        kind: Literal["tools"],  # noqa: ARG002
        name: str,
        context: Context,  # noqa: ARG002
    ) -> ServedTool | None:
        """Return the tool of this name that the caller may use."""
        return self.tools.get(name)

    def find_resource(self, uri: str) -> tuple[ServedResource, dict[str, str]] | None:
        """Find what serves a URI, with the values of its variables."""
        exact = self.resources.get(uri)
        if exact is not None:
            return exact, {}
        for served in self.templates.values():
            values = served.template.match(uri)
            if values is not None:
                return served, values
        return None

    def _changed(self, kind: str) -> None:
        self.version += 1
        self._listeners.list_changed(kind)


def _add(table: dict[Any, _T], key: Any, item: _T, noun: str) -> None:
    if key in table:
        raise LocalProtocolError(f"the server has a {noun} {key!r} already; remove it first")
    table[key] = item
