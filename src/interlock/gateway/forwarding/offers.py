"""All tools, resources and prompts of a toolbox, keyed by the names that clients use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from interlock.calls import Item
from interlock.client.listing import Listing
from interlock.errors import ConfigError
from interlock.gateway.forwarding.forwarder import Forwarder
from interlock.gateway.forwarding.tool import ForwardedTool, UnusableTool
from interlock.gateway.forwarding.uris import Uris
from interlock.policy import CompiledView
from interlock.protocol.envelope import encode_large
from interlock.server.catalogue import EncodedDefinition
from interlock.toolbox import Toolbox
from interlock.toolbox.item_lists import ItemKind
from interlock.toolbox.loose_template import LooseTemplate
from interlock.toolbox.names import plain_name, wire_name
from interlock.toolbox.upstream import Upstream
from interlock.types import JsonObject

STEP = 2_000  # tools or items that are read between two yields of `build`
_Place = tuple[str, ItemKind]  # a server, and a kind of its items


class ListedItem(Struct):
    """A resource, resource template or prompt that a server lists.

    Attributes:
        item: The item itself, for the policy.
        source: The definition that the server has sent.
        member: The member of the definition that clients name the item by, such as "uri".
        shown: The value of this member for clients.
        encoded: The definition for clients; None until it is first used.
        hash: The hash of `encoded`.
    """

    item: Item
    source: JsonObject
    member: str
    shown: str
    encoded: EncodedDefinition | None = None
    hash: int = 0

    @property
    def definition(self) -> EncodedDefinition:
        """The definition that clients see."""
        if self.encoded is None:
            encoded = encode_large(self.source | {self.member: self.shown})
            self.encoded, self.hash = EncodedDefinition(encoded), hash(encoded)
        return self.encoded

    @property
    def fingerprint(self) -> int:
        """A number that changes when the definition that clients see changes."""
        _ = self.definition
        return self.hash


class ListedTemplate(ListedItem, kw_only=True):
    """A resource template, with a matcher for its URIs."""

    pattern: LooseTemplate


class _Part(Struct):
    """A server's items of one kind, which are reused as long as the server's list is the same.

    Attributes:
        listing: The server's list.
        naming: The view, or whether URIs have prefixes, because the names for clients depend on it.
        items: The items by their names for clients.
    """

    listing: Listing[Any]
    naming: object
    items: dict[str, Any]


class Offers:
    """The tools, resources and prompts that clients can be offered, before rights are checked.

    There are none before `build`.

    Args:
        toolbox: The servers.
        uris: Adds and removes the prefixes of resource URIs.
        forwarder: Sends the calls.
        plain: The view whose tools and prompts have plain names; None to use wire names.
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
        self._parts: dict[_Place, _Part] = {}
        self._toolbox = toolbox
        self._uris = uris
        self._forwarder = forwarder

    def build(self, before: Offers | None) -> Iterator[None]:
        """Read the toolbox's lists in steps of a few milliseconds, and yield between them.

        Args:
            before: The offers before the last change, whose unchanged parts are reused; None at
                first.
        """
        upstreams = self._toolbox.upstreams
        known: Mapping[_Place, _Part] = {} if before is None else before._parts
        yield from self._add_tools({} if before is None else before.tools)
        for server, upstream in upstreams.items():
            self._add_unusable(server, upstream, self._forwarder)
        self._uris.compare_lists(
            [
                (server, each.items["resources"], each.items["resourceTemplates"])
                for server, each in upstreams.items()
            ]
        )
        for server, upstream in [*upstreams.items()]:
            yield from self._add_resources(server, upstream, known)
            yield from self._add_prompts(server, upstream, known)

    def all_resources(self) -> Iterator[ListedItem]:
        yield from self.resources.values()
        yield from self.templates.values()

    def problems(self) -> Iterator[UnusableTool]:
        """Yield all tools that cannot be called."""
        yield from self.unusable.values()
        yield from self.clashes

    def _add_tools(self, before: Mapping[str, ForwardedTool]) -> Iterator[None]:
        forwarder = self._forwarder
        obstacles = {server: each.obstacle for server, each in self._toolbox.upstreams.items()}
        for count, entry in enumerate(self._toolbox.tools, 1):
            if count % STEP == 0:
                yield
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
            tool = before.get(name)
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

    def _add_resources(
        self, server: str, upstream: Upstream, known: Mapping[_Place, _Part]
    ) -> Iterator[None]:
        uris = self._uris

        def resource(definition: JsonObject) -> ListedItem:
            uri = definition["uri"]
            item = Item("resources", server, uri)
            return ListedItem(item, definition, "uri", uris.shown(server, uri))

        def template(definition: JsonObject) -> ListedItem:
            uri = definition["uriTemplate"]
            item, shown = Item("resources", server, uri), uris.shown(server, uri)
            pattern = LooseTemplate(shown)
            return ListedTemplate(item, definition, "uriTemplate", shown, pattern=pattern)

        naming = uris.is_prefixed(server)
        place: _Place = (server, "resources")
        yield from self._add(self.resources, place, upstream, naming, known, resource)
        place = (server, "resourceTemplates")
        yield from self._add(self.templates, place, upstream, naming, known, template)

    def _add_prompts(
        self, server: str, upstream: Upstream, known: Mapping[_Place, _Part]
    ) -> Iterator[None]:
        def prompt(definition: JsonObject) -> ListedItem | None:
            original, name = definition["name"], ""
            if self._plain is None:
                name = wire_name(server, original)
            elif self._plain.admits("prompts", server, original):
                name = plain_name(server, original)
            item = Item("prompts", server, original)
            return ListedItem(item, definition, "name", name) if name else None

        for name, obstacle in upstream.waiting_prompts.items():
            if self._plain is None or self._plain.admits("prompts", server, name):
                self.waiting[Item("prompts", server, name)] = obstacle
        place: _Place = (server, "prompts")
        yield from self._add(self.prompts, place, upstream, self._plain, known, prompt)

    def _add(
        self,
        found: dict[str, Any],
        place: _Place,
        upstream: Upstream,
        naming: object,
        known: Mapping[_Place, _Part],
        make: Callable[[JsonObject], ListedItem | None],
    ) -> Iterator[None]:
        """Add a server's items of one kind to `found`, unless another server's have their names."""
        listing, part = upstream.items[place[1]], known.get(place)
        if part is None or part.listing is not listing or part.naming != naming:
            part = _Part(listing, naming, {})
            for count, definition in enumerate(listing.definitions, 1):
                listed = make(definition)
                if listed is not None:
                    part.items.setdefault(listed.shown, listed)
                if count % STEP == 0:
                    yield
        self._parts[place] = part
        for name, listed in part.items.items():
            found.setdefault(name, listed)


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
