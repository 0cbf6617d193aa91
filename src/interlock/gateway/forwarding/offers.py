"""All tools, resources and prompts of a toolbox, keyed by the names that clients use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from interlock.calls import Item
from interlock.errors import ConfigError
from interlock.gateway.forwarding.forwarder import Forwarder
from interlock.gateway.forwarding.tool import ForwardedTool, UnusableTool
from interlock.gateway.forwarding.uris import Uris
from interlock.policy import CompiledView
from interlock.protocol.envelope import encode_large
from interlock.server.catalogue import EncodedDefinition
from interlock.toolbox import Toolbox
from interlock.toolbox.loose_template import LooseTemplate
from interlock.toolbox.names import plain_name, wire_name
from interlock.toolbox.upstream import Upstream
from interlock.types import JsonObject


class ListedItem(Struct):
    """A resource, resource template or prompt that a server lists."""

    item: Item
    definition: EncodedDefinition
    fingerprint: int


class ListedTemplate(ListedItem):
    """A resource template, with a matcher for its URIs."""

    pattern: LooseTemplate


class Offers:
    """The tools, resources and prompts that clients can be offered, before rights are checked.

    Args:
        toolbox: The servers.
        uris: Adds and removes the prefixes of resource URIs.
        forwarder: Sends the calls.
        plain: The view whose tools and prompts have plain names; None to use wire names.
        before: The offers before the last change, whose unchanged tools are reused; None at first.
        is_original: Whether tools keep the input schemas that their servers use.

    Attributes:
        tools: The tools that can be called while their servers are connected, by name.
        shortened: The tools that have a shorter name for some clients, by that name.
        unusable: The tools that cannot be called, by name.
        clashes: The unusable tools whose names other tools already have.
        waiting: Why prompts are not offered until an operator accepts their definitions.
        down: The servers that have never listed their tools, each with a code and a text for the
            reason.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        uris: Uris,
        forwarder: Forwarder,
        plain: CompiledView | None,
        before: Offers | None,
        *,
        is_original: bool = False,
    ) -> None:
        self.tools: dict[str, ForwardedTool] = {}
        self.shortened: dict[str, ForwardedTool] = {}
        self.unusable: dict[str, UnusableTool] = {}
        self.clashes: list[UnusableTool] = []
        self.resources: dict[str, ListedItem] = {}
        self.templates: dict[str, ListedTemplate] = {}
        self.prompts: dict[str, ListedItem] = {}
        self.waiting: dict[Item, str] = {}
        self.down: dict[str, tuple[str, str]] = {}
        self._plain = plain
        self._is_original = is_original
        upstreams = toolbox.upstreams
        self._add_tools(toolbox, forwarder, before)
        for server, upstream in upstreams.items():
            self._add_unusable(server, upstream, forwarder)
        uris.compare({server: _uris_of(each) for server, each in upstreams.items()})
        for server, upstream in upstreams.items():
            self._add_resources(server, upstream, uris)
            self._add_prompts(server, upstream)

    def all_resources(self) -> Iterator[ListedItem]:
        yield from self.resources.values()
        yield from self.templates.values()

    def problems(self) -> Iterator[UnusableTool]:
        """Yield all tools that cannot be called."""
        yield from self.unusable.values()
        yield from self.clashes

    def _add_tools(self, toolbox: Toolbox, forwarder: Forwarder, before: Offers | None) -> None:
        obstacles = {server: each.obstacle for server, each in toolbox.upstreams.items()}
        for entry in toolbox.tools:
            name = entry.wire_name
            if self._plain is not None:
                if not self._plain.admits("tools", entry.server, entry.tool.name):
                    continue
                name = plain_name(entry.server, entry.tool.name)
                if name in self.tools:
                    detail = "another tool of the view has the same name"
                    self.clashes.append(UnusableTool(name, entry, "name_clash", detail, forwarder))
                    continue
            state, _ = obstacles.get(entry.server, ("server_down", ""))
            tool = before.tools.get(name) if before is not None else None
            if tool is None or tool.entry is not entry or tool.state != state:
                original = self._is_original
                tool = ForwardedTool(entry, name, state, forwarder, is_original=original)
            self.tools[name] = tool
            if tool.short_name != name:
                self.shortened[tool.short_name] = tool

    def _add_unusable(self, server: str, upstream: Upstream, forwarder: Forwarder) -> None:
        state, reason = upstream.obstacle
        if state and not upstream.entries:
            self.down[server] = state, reason
        for each in upstream.unusable:
            if each.is_hidden:
                continue
            item = each.entry or Item("tools", server, each.name)
            name = wire_name(server, each.name)
            if self._plain is not None:
                if not self._plain.admits("tools", server, each.name):
                    continue
                name = plain_name(server, each.name)
            tool = UnusableTool(name, item, each.reason, each.detail, forwarder)
            if name in self.tools or name in self.unusable:
                self.clashes.append(tool)
            else:
                self.unusable[name] = tool

    def _add_resources(self, server: str, upstream: Upstream, uris: Uris) -> None:
        for definition in upstream.items["resources"].definitions:
            uri = definition["uri"]
            shown = uris.shown(server, uri)
            listed = _listed(Item("resources", server, uri), definition | {"uri": shown})
            self.resources.setdefault(shown, listed)
        for definition in upstream.items["resourceTemplates"].definitions:
            uri = definition["uriTemplate"]
            shown = uris.shown(server, uri)
            item = Item("resources", server, uri)
            listed = _listed(item, definition | {"uriTemplate": shown})
            template = ListedTemplate(
                item, listed.definition, listed.fingerprint, LooseTemplate(shown)
            )
            self.templates.setdefault(shown, template)

    def _add_prompts(self, server: str, upstream: Upstream) -> None:
        for name, obstacle in upstream.waiting_prompts.items():
            if self._plain is None or self._plain.admits("prompts", server, name):
                self.waiting[Item("prompts", server, name)] = obstacle
        for definition in upstream.items["prompts"].definitions:
            original = definition["name"]
            name = wire_name(server, original)
            if self._plain is not None:
                if not self._plain.admits("prompts", server, original):
                    continue
                name = plain_name(server, original)
            item = Item("prompts", server, original)
            self.prompts.setdefault(name, _listed(item, definition | {"name": name}))


def check_names(views: Mapping[str, CompiledView], upstreams: Mapping[str, Upstream]) -> None:
    """Raise an error if two tools in a view with plain names have the same name.

    Raises:
        ConfigError: Two tools have the same name; the text names the view and both tools.
    """
    for view_name, view in views.items():
        known: dict[str, str] = {}
        for server, upstream in upstreams.items():
            for entry in upstream.entries:
                if not view.admits("tools", server, entry.tool.name):
                    continue
                name = plain_name(server, entry.tool.name)
                first = known.setdefault(name, entry.address)
                if first != entry.address:
                    raise ConfigError(
                        f"view {view_name!r} has two tools with the plain name {name!r} ({first}"
                        f' and {entry.address}); deny one of them, or remove "names"'
                    )


def _listed(item: Item, definition: JsonObject) -> ListedItem:
    encoded = encode_large(definition)
    return ListedItem(item, EncodedDefinition(encoded), hash(encoded))


def _uris_of(upstream: Upstream) -> list[str]:
    resources = [each.uri for each in upstream.items["resources"]]
    return resources + [each.uri_template for each in upstream.items["resourceTemplates"]]
