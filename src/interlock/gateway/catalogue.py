"""What a toolbox offers, as each caller may see it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from interlock.calls import Caller, Entry, Item
from interlock.context import Context
from interlock.errors import InvalidArguments
from interlock.gateway.forwarded_items import (
    ForwardedCompletion,
    ForwardedPrompt,
    ForwardedResource,
)
from interlock.gateway.forwarded_tool import ForwardedTool
from interlock.gateway.forwarding import Forwarder
from interlock.gateway.uris import LooseTemplate, Uris
from interlock.policy import Policy
from interlock.server.catalogue import Definition, Kind
from interlock.toolbox import Toolbox
from interlock.toolbox.names import wire_name
from interlock.types import (
    JsonObject,
    PromptReference,
    ResourceTemplateReference,
    ServerCapabilities,
)


class _Listed(Struct):
    """A resource, template or prompt that a server has listed."""

    item: Item
    definition: JsonObject


class _Template(_Listed):
    pattern: LooseTemplate


class _Index(Struct):
    """Everything that the toolbox offers, by the names that clients use."""

    tools: dict[str, ForwardedTool] = {}
    resources: dict[str, _Listed] = {}
    templates: dict[str, _Template] = {}
    prompts: dict[str, _Listed] = {}


class ToolboxCatalogue:
    """A `Catalogue` of what a policy lets each caller use.

    What is listed can be called, and what is not listed does not exist for the caller.

    Attributes:
        policy: As given; may be replaced.
    """

    def __init__(self, toolbox: Toolbox, policy: Policy, forwarder: Forwarder) -> None:
        self._toolbox = toolbox
        self.policy = policy
        self._forwarder = forwarder
        self._uris = Uris()
        self._index = _Index()
        self._indexed = -1  # the version of the toolbox that `_index` is of

    @property
    def version(self) -> int:
        """A number that changes when any list changes."""
        return self._toolbox.version

    def capabilities(self) -> ServerCapabilities:
        """Return what the gateway declares, whatever servers are up now."""
        changes = {"listChanged": True}
        return ServerCapabilities(
            tools=changes,
            resources={"subscribe": True, **changes},
            prompts=changes,
            completions={},
            logging={},
        )

    def view(self, context: Context) -> Hashable:
        """Return the identity of the caller: each one has lists of its own."""
        return context.principal.identity if context.principal else None

    # Lists

    def page(
        self, kind: Kind, cursor: str, context: Context
    ) -> tuple[Sequence[Definition], str | None]:
        """Return all definitions that the caller may use; there is only one page."""
        if cursor:
            raise InvalidArguments("the cursor is not from this server")
        return list(self._visible(kind, context)), None

    def _visible(self, kind: Kind, context: Context) -> Iterator[JsonObject]:
        index, caller = self._current(), Caller(context.principal)
        if kind == "tools":
            for tool in index.tools.values():
                if self._may_use(caller, tool.entry):
                    yield tool.definition
            return
        listed: Mapping[Kind, Mapping[str, _Listed]] = {
            "resources": index.resources,
            "resourceTemplates": index.templates,
            "prompts": index.prompts,
        }
        for each in listed[kind].values():
            if self._may_use(caller, each.item):
                yield each.definition

    def list_meta(self, kind: Kind, context: Context) -> JsonObject:  # noqa: ARG002
        """Return what is missing in a list."""
        return {}

    # Look-ups

    def find(self, kind: str, name: str, context: Context) -> Any:
        """Return what the caller may use under this name; None for all else."""
        index, caller = self._current(), Caller(context.principal)
        if kind == "tools":
            tool = index.tools.get(name)
            return tool if tool is not None and self._may_use(caller, tool.entry) else None
        if kind == "prompts":
            prompt = index.prompts.get(name)
            if prompt is None or not self._may_use(caller, prompt.item):
                return None
            return ForwardedPrompt(prompt.item, self._forwarder)
        item = self._find_resource(name, caller)
        return None if item is None else ForwardedResource(item, self._uris, self._forwarder)

    def _find_resource(self, uri: str, caller: Caller) -> Item | None:
        """Return a resource that is listed, or that a template may match."""
        index = self._current()
        listed = index.resources.get(uri)
        if listed is not None:
            return listed.item if self._may_use(caller, listed.item) else None
        for template in index.templates.values():
            if template.pattern.may_match(uri):
                _, original = self._uris.split(uri) or ("", uri)
                item = Item("resources", template.item.server, original)
                if self._may_use(caller, item):
                    return item
        return None

    def find_completion(
        self, ref: PromptReference | ResourceTemplateReference, argument: str, context: Context
    ) -> ForwardedCompletion:
        """Return the completion for an argument; its server decides whether it has one.

        Raises:
            InvalidArguments: The caller may not use such a prompt or template.
        """
        index = self._current()
        if isinstance(ref, PromptReference):
            name, listed = ref.name, index.prompts.get(ref.name)
        else:
            name, listed = ref.uri, index.templates.get(ref.uri)
        if listed is None or not self._may_use(Caller(context.principal), listed.item):
            raise InvalidArguments(f"unknown prompt or resource template {name!r}")
        upstream = self._toolbox.upstream(listed.item.server)
        return ForwardedCompletion(listed.item, argument, upstream)

    def _may_use(self, caller: Caller, entry: Entry | Item) -> bool:
        return self.policy.decide(caller, entry).effect != "deny"

    # Indexing

    def _current(self) -> _Index:
        if self._indexed != self._toolbox.version:
            self._indexed = self._toolbox.version
            self._index = self._make_index()
        return self._index

    def _make_index(self) -> _Index:
        index, before = _Index(), self._index.tools
        for entry in self._toolbox.tools:
            tool = before.get(entry.wire_name)
            if tool is None or tool.entry is not entry:
                tool = ForwardedTool(entry, entry.wire_name, self._forwarder)
            index.tools[entry.wire_name] = tool
        upstreams = self._toolbox.upstreams.items()
        self._uris.compare(
            {
                server: (
                    *(each.uri for each in upstream.items["resources"]),
                    *(each.uri_template for each in upstream.items["resourceTemplates"]),
                )
                for server, upstream in upstreams
            }
        )
        for server, upstream in upstreams:
            for definition in upstream.items["resources"].definitions:
                listed = self._listed("resources", server, "uri", definition)
                index.resources.setdefault(listed.definition["uri"], listed)
            for definition in upstream.items["resourceTemplates"].definitions:
                listed = self._listed("resources", server, "uriTemplate", definition)
                shown = listed.definition["uriTemplate"]
                template = _Template(listed.item, listed.definition, LooseTemplate(shown))
                index.templates.setdefault(shown, template)
            for definition in upstream.items["prompts"].definitions:
                name = wire_name(server, definition["name"])
                item = Item("prompts", server, definition["name"])
                index.prompts.setdefault(name, _Listed(item, definition | {"name": name}))
        return index

    def _listed(self, kind: Any, server: str, member: str, definition: JsonObject) -> _Listed:
        uri = definition[member]
        shown = self._uris.shown(server, uri)
        if shown != uri:
            definition = definition | {member: shown}
        return _Listed(Item(kind, server, uri), definition)
