"""The catalogue of a toolbox's tools, resources and prompts, filtered by each caller's rights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any

from interlock import aio
from interlock.auth.principal import Principal
from interlock.calls import Caller, Entry, Item
from interlock.config.gateway import OWN, Risk
from interlock.context import Context
from interlock.errors import InvalidArguments, UnknownTool
from interlock.gateway.forwarding.executors import AnyTool, Executor
from interlock.gateway.forwarding.forwarder import Forwarder, caller_of
from interlock.gateway.forwarding.in_force import InForce
from interlock.gateway.forwarding.items import (
    ForwardedCompletion,
    ForwardedPrompt,
    ForwardedResource,
)
from interlock.gateway.forwarding.offers import ListedItem, Offers
from interlock.gateway.forwarding.refusals import REASON_KEY
from interlock.gateway.forwarding.tool import (
    CLAUDE_CODE,
    ForwardedTool,
    LoadingTool,
    StartingTool,
    UnusableTool,
)
from interlock.layers.kept_results import URI
from interlock.protocol.envelope import encode
from interlock.revisions import TASKS_EXTENSION
from interlock.server.catalogue import Definition, EncodedDefinition, Kind
from interlock.server.subscribers import ListKind
from interlock.toolbox import Toolbox
from interlock.types import (
    JsonObject,
    PromptReference,
    ResourceTemplateReference,
    ServerCapabilities,
)

MISSING_KEY = "interlock/missing"
MAX_FOUND = 100_000  # cached pairs of caller and tool
MAX_CALLABLE = 400_000  # cached pairs of caller and tool that the caller may call
MAX_CALLERS = 4_096  # callers whose tools are cached
BUILDS = 5  # attempts to build the offers in steps while the lists change
RIGHTS_AT_ONCE = 200  # tools whose rights are decided before other tasks run
RISKS: tuple[Risk, ...] = ("read", "write")
_OURS = f"{OWN}__"  # the start of the names of interlock's own tools
# Claude Code's own search would otherwise hide these tools, and with them all others
_ALWAYS_LOAD: JsonObject = {"anthropic/alwaysLoad": True}


class ToolboxCatalogue:
    """A `Catalogue` that lists the items which the policy allows the caller.

    Callers can use each item that is listed for them; any other item does not exist for them.

    Args:
        toolbox: The tools of all servers.
        in_force: The current policy.
        forwarder: Forwards requests to the servers.
        unknown: Records that a caller named an unknown tool; returns the error for it.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        in_force: InForce,
        forwarder: Forwarder,
        unknown: Callable[[str, Caller], UnknownTool],
    ) -> None:
        self._toolbox = toolbox
        self._in_force = in_force
        self._forwarder = forwarder
        self._uris = forwarder.uris
        self._own = {
            each.wire_name: ForwardedTool(each, each.wire_name, "", forwarder)
            for each in toolbox.own.entries
        }
        self._unknown = unknown
        self._executors = [Executor(risk, self._find_tool, unknown, forwarder) for risk in RISKS]
        self._callable: dict[Hashable, dict[str, ForwardedTool]] = {}  # see `callable_tools`
        self._pairs = 0  # of caller and tool in `_callable`
        self._risks: dict[Hashable, frozenset[Risk]] = {}  # see `_risks_for`
        self._callers_in = -1  # the version in which `_callable` and `_risks` were filled
        # By the view that has plain names, or "", and by whether schemas are the servers' own
        self._offers: dict[tuple[str, bool], Offers] = {}
        self._before: dict[tuple[str, bool], Offers] = {}  # the offers before the last change
        self._found: dict[tuple[int, str], tuple[Principal, ForwardedTool]] = {}  # see `find`
        self._found_in = -1  # the version in which `_found` was filled
        self._rights_changes = 0
        self._version = -1  # the toolbox's version in which `_offers` were made

    @property
    def version(self) -> int:
        """A number that changes whenever a list changes."""
        return self._toolbox.version + self._rights_changes

    def capabilities(self) -> ServerCapabilities:
        """Return the capabilities, which are the same whether or not servers are connected."""
        changes = {"listChanged": True}
        return ServerCapabilities(
            tools=changes,
            resources={"subscribe": True, **changes},
            prompts=changes,
            completions={},
            logging={},
            extensions={TASKS_EXTENSION: {}},
        )

    def view(self, context: Context) -> Hashable:
        """Return a key that identifies the caller's rights and the kind of its client.

        See `basis_of_rights`.
        """
        return basis_of_rights(context.principal), _is_claude_code(context)

    # Lists

    def page(
        self, kind: Kind, cursor: str, context: Context
    ) -> tuple[Sequence[Definition], str | None]:
        """Return all definitions that the caller may use, as a single page."""
        if cursor:
            raise InvalidArguments("the cursor is not from this server")
        return list(self._visible(kind, context)), None

    def _visible(self, kind: Kind, context: Context) -> Iterator[EncodedDefinition]:
        caller = Caller(context.principal)
        if kind == "tools":
            tools = self.callable_tools(caller)
            if tools and self._in_force.policy.view_of(caller).search.is_on:
                yield from self._listed_beside_search(context)
            elif tools:
                is_short = _is_claude_code(context)
                for tool in tools.values():
                    yield tool.listed_shortly if is_short else tool.listed
                yield from (each.listed for each in self._own_tools(context))
            return
        offers = self._offers_to(caller)
        listed: Mapping[Kind, Mapping[str, ListedItem]] = {
            "resources": offers.resources,
            "resourceTemplates": offers.templates,
            "prompts": offers.prompts,
        }
        for each in listed[kind].values():
            if self.offers(caller, each.item):
                yield each.definition

    def _listed_beside_search(self, context: Context) -> Iterator[EncodedDefinition]:
        """Yield what clients that search list: interlock's own tools, and tools always listed."""
        for own in self._own_tools(context):
            meta = own.definition.get("_meta", {}) | _ALWAYS_LOAD
            yield EncodedDefinition(encode(own.definition | {"_meta": meta}))
        is_short = _is_claude_code(context)
        for tool in self._always_listed(Caller(context.principal)):
            yield tool.listed_shortly if is_short else tool.listed

    def _always_listed(self, caller: Caller) -> Iterator[ForwardedTool]:
        for tool in self.callable_tools(caller).values():
            if self._in_force.policy.lists(caller, tool.entry):
                yield tool

    def callable_tools(self, caller: Caller) -> Mapping[str, ForwardedTool]:
        """Return the tools that a caller may call, by address."""
        self._forget_callers()
        key = basis_of_rights(caller.principal)
        found = self._callable.get(key)
        if found is None:
            tools = self._offers_to(caller).tools.values()
            found = {each.entry.address: each for each in tools if self.offers(caller, each.entry)}
            self._keep_callable(key, found)
        return found

    def _keep_callable(self, key: Hashable, tools: dict[str, ForwardedTool]) -> None:
        self._callable[key] = tools
        self._pairs += len(tools)

    def _is_loaded(self, caller: Caller) -> bool:
        """Return whether `callable_tools` is quick."""
        key = basis_of_rights(caller.principal)
        if self._callers_in == self.version and key in self._callable:
            return True
        return len(self._offers_to(caller).tools) <= RIGHTS_AT_ONCE

    async def load_callable(self, caller: Caller) -> Mapping[str, ForwardedTool]:
        """Return `callable_tools`; other tasks run while the rights of many tools are decided."""
        await self._load_offers(caller)
        if self._is_loaded(caller):
            return self.callable_tools(caller)
        version, offers = self.version, self._offers_to(caller)
        found: dict[str, ForwardedTool] = {}
        for count, tool in enumerate([*offers.tools.values()], 1):
            if self.offers(caller, tool.entry):
                found[tool.entry.address] = tool
            if count % RIGHTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        for count, problem in enumerate([*offers.problems()], 1):
            self.may_use(caller, problem.item)  # the policy remembers its decision
            if count % RIGHTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        if version == self.version:
            self._forget_callers()
            self._keep_callable(basis_of_rights(caller.principal), found)
        return self.callable_tools(caller)  # after a change, most decisions are still remembered

    async def prepare(self, context: Context) -> None:
        """Do the long work for a client's list of tools, so that `page` is quick.

        Other tasks run while the definitions of many tools are encoded.
        """
        caller, is_short = Caller(context.principal), _is_claude_code(context)
        tools = await self.load_callable(caller)
        while not self._in_force.policy.view_of(caller).search.is_on:
            rest = [each for each in tools.values() if not each.is_encoded(is_short=is_short)]
            if not rest:
                break
            for count, each in enumerate(rest, 1):
                _ = each.listed_shortly if is_short else each.listed  # cached
                if count % aio.SLICE == 0:
                    await asyncio.sleep(0)
            tools = await self.load_callable(caller)  # the tools may have changed meanwhile

    async def prepare_items(self, kind: ListKind, caller: Caller) -> None:
        """Encode the resources and templates, or the prompts, that a caller is offered.

        Other tasks run while many definitions are encoded.
        """
        await self._load_offers(caller)
        offers = self._offers_to(caller)
        listed = offers.prompts.values() if kind == "prompts" else offers.all_resources()
        for count, each in enumerate([*listed], 1):
            if each.encoded is None and self.offers(caller, each.item):
                _ = each.definition  # cached
            if count % RIGHTS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def waiting_tools(self, caller: Caller) -> Iterator[str]:
        """Yield the addresses of tools that the caller may call after an operator accepts them."""
        for tool in self._offers_to(caller).problems():
            if tool.reason == "tool_quarantined" and self.may_use(caller, tool.item):
                yield tool.item.address

    def _own_tools(self, context: Context) -> Iterator[ForwardedTool | Executor]:
        """Yield the tools of interlock itself that the client may use."""
        caller = caller_of(context)
        for entry in self._toolbox.own.entries_for(caller):
            if self.may_use(caller, entry):
                yield self._own[entry.wire_name]
        yield from self._executors_for(caller)

    def _executors_for(self, caller: Caller) -> Iterator[Executor]:
        """Yield an executor for each risk of which the caller may call a tool."""
        search = self._in_force.policy.view_of(caller).search
        if search.is_on:
            risks = self._risks_for(caller)
            for executor in self._executors:
                if executor.risk in search.calls and executor.risk in risks:
                    yield executor

    def _risks_for(self, caller: Caller) -> Set[Risk]:
        """Return the risks of the tools that a caller may call."""
        self._forget_callers()
        key = basis_of_rights(caller.principal)
        risks = self._risks.get(key)
        if risks is None:
            found: set[Risk] = set()
            for tool in self.callable_tools(caller).values():
                found.add(self._in_force.policy.risk(tool.entry))
                if len(found) == len(RISKS):
                    break
            risks = self._risks[key] = frozenset(found)
        return risks

    def _forget_callers(self) -> None:
        """Clear what is cached for each caller, after a change or if it is too much."""
        is_full = len(self._callable) >= MAX_CALLERS or self._pairs >= MAX_CALLABLE
        if self._callers_in != self.version or is_full:
            self._callable.clear()
            self._risks.clear()
            self._pairs, self._callers_in = 0, self.version

    def list_meta(self, kind: Kind, context: Context) -> JsonObject:
        """Return metadata: items missing from the caller's list, and why a tool list is empty."""
        caller = Caller(context.principal)
        if kind == "prompts":
            missing = self._missing_prompts(self._offers_to(caller), caller)
            return {MISSING_KEY: missing} if missing else {}
        if kind != "tools":
            return {}
        if self._in_force.policy.view_of(caller).search.is_on:
            return {} if self.callable_tools(caller) else {REASON_KEY: "nothing_granted"}
        missing = self._missing_of(self._offers_to(caller), caller)
        if missing:
            asking = caller_of(context)
            return {MISSING_KEY: [self._for_caller(each, asking) for each in missing]}
        return {} if self.callable_tools(caller) else {REASON_KEY: "nothing_granted"}

    async def tools_of(self, caller: Caller) -> tuple[list[JsonObject], list[JsonObject]]:
        """Return the tools listed for a caller, and the missing tools with reasons."""
        offers, seen = self._offers_to(caller), []
        for count, (name, tool) in enumerate([*offers.tools.items()], 1):
            if count % RIGHTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            decision = self._in_force.policy.decide(caller, tool.entry)
            if decision.effect == "deny":
                continue
            definition = tool.entry.tool
            found = {
                "address": tool.entry.address,
                "name": name,
                "title": definition.title,
                "description": definition.description or None,
                "risk": self._in_force.policy.risk(tool.entry),
                "effect": decision.effect,
                "state": tool.state or "ok",
            }
            seen.append({key: value for key, value in found.items() if value is not None})
        return seen, self._missing_of(offers, caller)

    def _missing_of(self, offers: Offers, caller: Caller) -> list[JsonObject]:
        missing = [
            _missing(server, reason, detail, self._connect_url(caller, server, reason))
            for server, (reason, detail) in offers.down.items()
            if self._in_force.policy.may_use_any(caller, server)
        ]
        missing += [
            _missing(tool.item.address, tool.reason, tool.detail)
            for tool in offers.problems()
            if self.may_use(caller, tool.item)
        ]
        return missing

    def _for_caller(self, missing: JsonObject, caller: Caller) -> JsonObject:
        """Return a missing server with the reason for this caller, if there is one."""
        upstream = self._toolbox.upstreams.get(missing["address"])
        problem = "" if upstream is None else upstream.caller_problem(caller)
        if not problem:
            return missing
        return missing | {"reason": "caller_value_missing", "detail": problem}

    def _missing_prompts(self, offers: Offers, caller: Caller) -> list[JsonObject]:
        return [
            _missing(item.address, "prompt_quarantined", detail)
            for item, detail in offers.waiting.items()
            if self.may_use(caller, item)
        ]

    async def fingerprint(self, kind: ListKind, principal: Principal | None) -> int:
        """Return a number that changes when a principal's list of this kind changes.

        Other tasks run while a list is long.
        """
        caller = Caller(principal)
        await self.load_callable(caller)
        offers = self._offers_to(caller)
        if kind == "tools" and self._in_force.policy.view_of(caller).search.is_on:
            executors = (each.name for each in self._executors_for(caller))
            return hash((*executors, *(each.fingerprint for each in self._always_listed(caller))))
        if kind == "tools":
            seen = [each.fingerprint for each in self.callable_tools(caller).values()]
            missing = [each["address"] for each in self._missing_of(offers, caller)]
            return hash((*seen, *missing))
        listed = offers.prompts.values() if kind == "prompts" else offers.all_resources()
        prints = []
        for count, each in enumerate([*listed], 1):
            if self.offers(caller, each.item):
                prints.append(each.fingerprint)
            if count % RIGHTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        if kind == "prompts":
            found = self._missing_prompts(offers, caller)
            prints.append(hash(tuple(each["address"] for each in found)))
        return hash(tuple(prints))

    # Look-ups

    def find(self, kind: str, name: str, context: Context) -> Any:
        """Return the item with this name if the caller may use it, else None."""
        principal = context.principal
        if kind == "tools" and principal is not None:
            version = self._toolbox.version + self._rights_changes
            if version != self._found_in or len(self._found) > MAX_FOUND:
                self._found.clear()
                self._found_in = version
            found = self._found.get((id(principal), name))
            if found is not None and found[0] is principal:
                return found[1]
        caller = Caller(principal)
        offers = self._offers_to(caller)
        if kind == "tools":
            tool = offers.tools.get(name) or offers.shortened.get(name)
            if tool is None:
                own = self._find_own(name, context)
                return own or self._find_unusable(offers, name, context)
            if not self.offers(caller, tool.entry):
                return None
            if principal is not None:
                self._found[id(principal), name] = principal, tool
            return tool
        if kind == "prompts":
            prompt = offers.prompts.get(name)
            if prompt is None or not self.offers(caller, prompt.item):
                return None
            return ForwardedPrompt(prompt.item, self._forwarder)
        item = self.find_resource(name, caller)
        return None if item is None else ForwardedResource(item, self._uris, self._forwarder)

    def _find_tool(self, name: str, context: Context) -> AnyTool | None:
        tool: AnyTool | None = self.find("tools", name, context)
        return tool

    def _find_own(self, name: str, context: Context) -> AnyTool | None:
        if not name.startswith(_OURS):
            return None
        caller = Caller(context.principal)
        if not self._is_loaded(caller):
            return LoadingTool(name, partial(self._loaded, name, context))
        if not self.callable_tools(caller):
            return None
        return next((each for each in self._own_tools(context) if each.name == name), None)

    async def _loaded(self, name: str, context: Context) -> AnyTool:
        """Return one of interlock's own tools, after the rights of its caller are decided.

        Raises:
            UnknownTool: The caller has no such tool.
        """
        await self.load_callable(Caller(context.principal))
        found = self._find_own(name, context)
        if found is None:
            raise self._unknown(name, caller_of(context))
        return found

    def _find_unusable(
        self, offers: Offers, name: str, context: Context
    ) -> UnusableTool | StartingTool | None:
        caller = caller_of(context)
        tool = offers.unusable.get(name)
        if tool is not None:
            return tool if self.may_use(caller, tool.item) else None
        server, _, original = name.partition("__")
        state = offers.down.get(server)
        if state is None or not original or not self._in_force.policy.may_use_any(caller, server):
            return None
        upstream = self._toolbox.upstream(server)
        if problem := upstream.caller_problem(caller):
            state = "caller_value_missing", problem
        url = self._connect_url(caller, server, state[0])
        next_try, item = upstream.next_try, Item("tools", server, original)
        refused = UnusableTool(
            name, item, *state, self._forwarder, url=url, next_try=next_try, is_known=False
        )
        if not upstream.is_starting:
            return refused
        return StartingTool(refused, upstream, partial(self.find, "tools", name))

    def _connect_url(self, caller: Caller, server: str, reason: str) -> str:
        """Return the URL where the caller logs in to a server; "" if no login is needed."""
        upstream = self._toolbox.upstreams.get(server)
        if reason != "needs_login" or upstream is None or caller.principal is None:
            return ""
        return upstream.connect_url(caller.owner)

    def find_resource(self, uri: str, caller: Caller) -> Item | None:
        """Return a resource if it is a kept result, listed, linked, or may match a template."""
        if uri.startswith(URI):
            item = Item("resources", OWN, uri)
            return item if self.may_use(caller, item) else None
        offers = self._offers_to(caller)
        listed = offers.resources.get(uri)
        if listed is not None:
            return listed.item if self.offers(caller, listed.item) else None
        linked = self._uris.linked(uri)
        if linked is not None:
            item = Item("resources", *linked)
            return item if self.may_use(caller, item) else None
        for template in offers.templates.values():
            if template.pattern.may_match(uri) and self._sees(caller, template.item):
                _, original = self._uris.split(uri) or ("", uri)
                item = Item("resources", template.item.server, original)
                if self.may_use(caller, item):
                    return item
        return None

    def find_hidden(self, kind: Kind, name: str, caller: Caller) -> Entry | Item | None:
        """Return the item with this name, even if the caller may not use it."""
        if kind == "tools":
            return self._toolbox.by_wire_name(name)
        offers = self._offers_to(caller)
        if kind == "prompts":
            listed = offers.prompts.get(name)
        elif kind == "resources":
            listed = offers.resources.get(name)
        else:
            listed = offers.templates.get(name)
        return None if listed is None else listed.item

    def find_completion(
        self, ref: PromptReference | ResourceTemplateReference, argument: str, context: Context
    ) -> ForwardedCompletion:
        """Return the completion for an argument; the server decides whether it offers completions.

        Raises:
            InvalidArguments: The caller may not use this prompt or template.
        """
        caller = Caller(context.principal)
        offers = self._offers_to(caller)
        if isinstance(ref, PromptReference):
            name, listed = ref.name, offers.prompts.get(ref.name)
        else:
            name, listed = ref.uri, offers.templates.get(ref.uri)
        if listed is None or not self.offers(caller, listed.item):
            raise InvalidArguments(f"unknown prompt or resource template {name!r}")
        upstream = self._toolbox.upstream(listed.item.server)
        return ForwardedCompletion(listed.item, argument, upstream)

    def problem_of(self, caller: Caller, address: str) -> UnusableTool | None:
        """Return why a tool cannot be called, even for callers that may not see the tool."""
        problems = self._offers_to(caller).problems()
        return next((each for each in problems if each.item.address == address), None)

    def offers(self, caller: Caller, entry: Entry | Item) -> bool:
        """Return whether a caller may use an item and the server lists it for that caller."""
        return self.may_use(caller, entry) and self._sees(caller, entry)

    def _sees(self, caller: Caller, entry: Entry | Item) -> bool:
        upstream = self._toolbox.upstreams.get(entry.server)
        if upstream is None or not upstream.is_personal or caller.principal is None:
            return True
        if isinstance(entry, Entry):
            return upstream.sees(caller.owner, "tools", entry.tool.name)
        return upstream.sees(caller.owner, entry.kind, entry.name)

    def rights_changed(self) -> None:
        """Recompute the rights of all callers."""
        self._in_force.policy.forget_rights()
        self._rights_changes += 1

    def may_use(self, caller: Caller, entry: Entry | Item) -> bool:
        """Return whether a caller may use an item, possibly with certain arguments only."""
        return self._in_force.policy.decide(caller, entry).effect != "deny"

    def _offers_to(self, caller: Caller) -> Offers:
        """Return the offers, keyed by the names that the caller's view uses."""
        key = self._view_key(caller)
        offers = self._offers.get(key)
        if offers is None:
            offers = self._new_offers(caller)
            for _ in offers.build(self._before.get(key)):
                pass
            self._offers[key] = offers
        return offers

    async def _load_offers(self, caller: Caller) -> None:
        """Do the work of the first `_offers_to` after a change, while other tasks run."""
        for _ in range(BUILDS):
            key, version = self._view_key(caller), self.version
            if key in self._offers:
                return
            offers = self._new_offers(caller)
            for _ in offers.build(self._before.get(key)):
                await asyncio.sleep(0)
                if self.version != version:
                    break
            else:
                self._offers.setdefault(key, offers)

    def _new_offers(self, caller: Caller) -> Offers:
        view = self._in_force.policy.view_of(caller)
        name, is_original = self._view_key(caller)
        plain = view if name else None
        return Offers(self._toolbox, self._uris, self._forwarder, plain, is_original=is_original)

    def _view_key(self, caller: Caller) -> tuple[str, bool]:
        """Return the key of a caller's offers, and drop all offers after a change."""
        if self._version != self._toolbox.version:
            self._version = self._toolbox.version
            self._before, self._offers = self._offers, {}
        view = self._in_force.policy.view_of(caller)
        principal = caller.principal
        return principal.view if principal is not None and view.is_plain else "", view.is_original


def _is_claude_code(context: Context) -> bool:
    return context.client_info is not None and context.client_info.name == CLAUDE_CODE


def basis_of_rights(principal: Principal | None) -> Hashable:
    """Return a key that two principals share only if they have the same rights.

    The user's id is not enough: two tokens of one user may have different scopes.
    """
    if principal is None:
        return None
    claims = encode(principal.claims) if principal.claims else b""
    return principal.identity, principal.scopes, principal.groups, claims


def _missing(address: str, reason: str, detail: str, url: str = "") -> JsonObject:
    shown = {"address": address, "reason": reason, "detail": detail}
    return shown | {"url": url} if url else shown
