"""An MCP server that offers the tools, resources and prompts of a toolbox.

A call passes through these methods::

    Request -> Gateway.answer -> Methods -> ForwardedTool.call -> Toolbox.handle -> Upstream.send
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Literal, NoReturn, Unpack

from msgspec.structs import replace

from interlock import __version__
from interlock.auth.principal import Principal
from interlock.calls import Caller, Item
from interlock.client import ClientOptions
from interlock.config import ServerConfig
from interlock.context import Context
from interlock.errors import AskRefused, CallRefused, InterlockError, UnknownTool
from interlock.gateway.forwarding.catalogue import ToolboxCatalogue
from interlock.gateway.forwarding.changes import Changes
from interlock.gateway.forwarding.forwarder import Forwarder, caller_of
from interlock.gateway.forwarding.in_force import InForce
from interlock.gateway.forwarding.instructions import (
    CATALOGUE,
    SERVERS,
    joined_instructions,
    server_catalogue,
)
from interlock.gateway.forwarding.offers import check_names
from interlock.gateway.forwarding.search_tools import SearchTools
from interlock.gateway.forwarding.step_up import FullRights, StepUp
from interlock.gateway.forwarding.task_ids import TaskIds
from interlock.gateway.forwarding.tasks import ForwardedTasks
from interlock.gateway.observer import GatewayObserver
from interlock.layers import Layers
from interlock.layers.results import ResultBudget
from interlock.policy import Policy
from interlock.protocol import Request
from interlock.server.catalogue import Kind, ServedTool
from interlock.server.encoders import Encoder
from interlock.server.lifespan import Lifespan
from interlock.server.methods import Methods
from interlock.server.sealing import EncryptingSeal
from interlock.server.server_connection import ServerConnection
from interlock.server.subscribers import ListKind
from interlock.server.tasks import TASK_TTL
from interlock.toolbox import Toolbox
from interlock.toolbox.own_tools import OwnTool
from interlock.toolbox.pins import PinKeeper
from interlock.toolbox.resource_files import find_named
from interlock.toolbox.search_tool import search_tool
from interlock.toolbox.upstream import Upstream
from interlock.toolbox.user_credentials import UserCredentials
from interlock.transports import InProcessServer, Transport
from interlock.transports.memory import MemoryTransport
from interlock.types import Implementation, JsonObject

if TYPE_CHECKING:
    from interlock.server.http.app import HttpApp
    from interlock.server.http.http_options import HttpKeywords
    from interlock.toolbox.tool_finder import ToolFinder


_NO_LAYERS = Layers()
_IGNORES = GatewayObserver()
IDLE_TIMEOUT = 3.0  # seconds without a newly connected server until the others are served
START_TIMEOUT = 5.0  # seconds for which a list waits until servers start with a caller's values

_LISTS = frozenset(("tools/list", "resources/list", "resources/templates/list", "prompts/list"))
_LIMITED = frozenset(("tools/call", "resources/read", "prompts/get"))
_ENDLESS = frozenset(("subscriptions/listen",))  # requests that end with their client
LIST_TTL_MS = 60_000  # how long clients may cache lists; they are notified of changes


class ForwardingServer:
    """Answers MCP requests with a toolbox's tools, as far as the policy allows the caller.

    The first connection opens the toolbox, and the last connection closes it.

    Args:
        servers: The servers; see `Toolbox`.
        policy: Decides which tools a caller may list and call.
        environ: The values for `${VAR}`; None for `os.environ`.
        layers: The layers around every call, besides those of the server itself.
        instructions: Text for a model that uses the tools; "servers" to combine the instructions of
            the servers that the caller may use; "catalogue" for a line about each of these servers,
            which is also the default for clients that search for tools.
        sealing_key: Encrypts the state that modern clients send back with answers to questions;
            None for a random key.
        idle_timeout: Seconds without progress after which slow servers are not waited for; None to
            wait for all servers.
        credentials: Users' credentials for servers; None if no server needs them.
        results: The limit on results. By default, large results are kept in memory.
        own_tools: The tools of interlock itself, besides the tool that reads kept results.
        pins: The accepted definitions; None to accept all definitions.
        observer: Notified of refusals and of tasks.
        trusts: Returns whether the trace of a caller may continue, given the caller and its
            address.
        full_rights: Returns a caller with all rights of its person; None if its credential cannot
            get more.
        refuses_clashes: Whether opening and `replace` fail if two tools of a view have the same
            plain name. A clash that appears later only hides the second tool.

    Attributes:
        toolbox: The servers behind the gateway.
        dropped: The number of dropped messages and requests, by reason.
        subscribers: The clients that are notified of changes.
        searching: The search for tools.
        tells_of_servers: Whether the instructions are those of the servers, once they are
            connected.
    """

    def __init__(
        self,
        servers: Mapping[str, ServerConfig | InProcessServer],
        policy: Policy,
        *,
        environ: Mapping[str, str] | None = None,
        layers: Layers = _NO_LAYERS,
        instructions: str | None = None,
        sealing_key: bytes | None = None,
        idle_timeout: float | None = None,
        credentials: UserCredentials | None = None,
        results: ResultBudget | None = None,
        own_tools: Iterable[OwnTool] = (),
        pins: PinKeeper | None = None,
        observer: GatewayObserver = _IGNORES,
        trusts: Callable[[Principal | None, str], bool] = lambda *_: False,
        full_rights: FullRights = lambda _: None,
        refuses_clashes: bool = False,
    ) -> None:
        self._trusts, self._refuses_clashes = trusts, refuses_clashes
        self._observer, self._idle_timeout = observer, idle_timeout
        self._in_force = InForce(policy, layers.admit)
        self._step_up = StepUp(self._in_force, full_rights)
        self.searching = self._make_search_tools()
        self.toolbox = Toolbox(
            servers,
            environ=environ,
            around=replace(layers, policy=policy),
            forwards=True,
            handlers=self._handlers,
            credentials=credentials,
            pins=pins,
            find_resource=self._find_resource,
            **_ASKING,
            results=results,
            own_tools=(*own_tools, *self.searching.own_tools),
        )
        self.dropped = Counter[str]()
        self._forwarder = Forwarder(self.toolbox, self._in_force, TaskIds(sealing_key), observer)
        parts = self.toolbox, self._in_force, self._forwarder
        self._catalogue = ToolboxCatalogue(*parts, self._unknown_tool)
        changing = self._forwarder.parking, self._in_force
        self._changes = Changes(self.toolbox, self._catalogue, *changing)
        self.subscribers = self._changes.subscribers
        self._instructions, self.tells_of_servers = instructions, instructions == SERVERS
        self._methods = self._make_methods(EncryptingSeal(sealing_key))
        self._lifespan = Lifespan(self._open)
        self._memory_connections: set[asyncio.Task[None]] = set()

    def _make_search_tools(self) -> SearchTools:
        def finder() -> ToolFinder:
            return self.toolbox.finder

        search = search_tool(finder, lambda: self.toolbox.tools, lambda: self.toolbox.upstreams)
        return SearchTools(self._in_force, self._observer, finder, lambda: self._catalogue, search)

    def _make_methods(self, seal: EncryptingSeal) -> Methods:
        info = Implementation(name="interlock", version=__version__)
        return Methods(
            info,
            self._instructions_for,
            self._catalogue,
            self.subscribers,
            seal,
            LIST_TTL_MS,
            None,
            TASK_TTL,
            self._changes,
            self._unknown,
            ForwardedTasks(self.toolbox, self._forwarder, Encoder(info)).table,
        )

    # Methods of `Answering`

    async def answer(self, request: Request, context: Context) -> bytes:
        """Answer an MCP request.

        Raises:
            InterlockError: The request fails.
        """
        method, began, failed = request.method, monotonic(), None
        if context.trace is not None:
            context.trusts_trace = self._trusts(context.principal, context.address)
        try:
            if method not in _LIMITED:
                if method in _LISTS and (waiting := self._waiting_for(context)):
                    await self._start(waiting, context)
                if method == "tools/list":
                    await self._catalogue.prepare(context)
                elif method in _LISTS:
                    kind: ListKind = "prompts" if method == "prompts/list" else "resources"
                    await self._catalogue.prepare_items(kind, Caller(context.principal))
                return await self._methods.answer(request, context)
            if self._in_force.admit is not None:
                try:
                    self._in_force.admit(context.principal)
                except CallRefused as error:
                    self._observer.not_admitted(context.principal, error)
                    raise
            # The table of a gateway always has these methods.
            return await self._methods.table[method](request, context)
        except BaseException as error:
            failed = error
            raise
        finally:
            if not context.is_measured and method not in _ENDLESS:
                self._observer.answered(method, context, monotonic() - began, failed)

    def trusts_trace(self, context: Context) -> bool:
        """Return whether a client's trace may continue in this gateway and at its servers."""
        return self._trusts(context.principal, context.address)

    def _waiting_for(self, context: Context) -> list[Upstream]:
        """Return the servers that list their tools only with values of this caller."""
        caller = Caller(context.principal)
        return [
            each
            for name, each in self.toolbox.upstreams.items()
            if each.waits_for(caller) and self._in_force.policy.may_use_any(caller, name)
        ]

    async def _start(self, waiting: list[Upstream], context: Context) -> None:
        caller = caller_of(context)
        with suppress(TimeoutError):  # the starts continue, and clients are notified of the lists
            async with asyncio.timeout(START_TIMEOUT):
                await asyncio.gather(*(each.start_for_caller(caller) for each in waiting))

    @property
    def catalogue(self) -> ToolboxCatalogue:
        """The tools, resources and prompts that each caller may see."""
        return self._catalogue

    @property
    def parked(self) -> int:
        """The number of calls that wait for an answer from their client."""
        return len(self._forwarder.parking)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Hold the toolbox open; the first holder opens the toolbox, and the last one closes it."""
        return self._lifespan.hold()

    @property
    def find(self) -> Callable[[Literal["tools"], str, Context], ServedTool | None]:
        """A function that returns a tool by its name if the caller may use it."""
        return self._catalogue.find

    def has_prompt(self, name: str, context: Context) -> bool:
        """Return whether the caller has a prompt with this name."""
        return self._catalogue.find("prompts", name, context) is not None

    async def _find_resource(self, uri: str, caller: Caller) -> Item | None:
        found = self._catalogue.find_resource(uri, caller)
        named = find_named(self.toolbox.upstreams, uri)
        if named is None or (found is not None and found.server == named.server):
            return found
        # A resource that is named by its server, to which a tool's result may link.
        return named if self._catalogue.may_use(caller, named) else found

    def _unknown(self, kind: Kind, name: str, context: Context) -> None:
        caller = caller_of(context)
        hidden = self._catalogue.find_hidden(kind, name, caller)
        self._observer.unknown(caller, kind, name, hidden)
        self._step_up.check(caller, hidden)

    def _unknown_tool(self, name: str, caller: Caller) -> UnknownTool:
        error = self.searching.unknown(name, caller)
        self._step_up.check(caller, self._catalogue.find_hidden("tools", name, caller))
        return error

    def _instructions_for(self, context: Context) -> str | None:
        caller, policy = Caller(context.principal), self._in_force.policy
        searches = policy.view_of(caller).search.is_on
        given = self._instructions or (CATALOGUE if searches else None)
        if given not in (SERVERS, CATALOGUE):
            return given
        usable = {
            name: each
            for name, each in self.toolbox.upstreams.items()
            if policy.may_use_any(caller, name)
        }
        if given == CATALOGUE:
            purposes = {name: each.purpose for name, each in usable.items()}
            return server_catalogue(purposes, searches=searches)
        return joined_instructions(
            {name: text for name, each in usable.items() if (text := each.instructions)}
        )

    async def tools_of(self, caller: Caller) -> tuple[list[JsonObject], list[JsonObject]]:
        """Return the tools listed for a caller, and the missing tools with reasons."""
        return await self._catalogue.tools_of(caller)

    async def test(self, server: str) -> tuple[float, str]:
        """Send a request to a server; return its duration in seconds, and the error or ""."""
        began = monotonic()
        try:
            return await self.toolbox.upstream(server).test(), ""
        except InterlockError as error:
            return monotonic() - began, str(error)

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[None, None]:
        self.toolbox.listeners.add(self._changes.toolbox_changed)
        try:
            await self.toolbox.open(idle_timeout=self._idle_timeout)
            self._check_names(self._in_force.policy, self.toolbox.upstreams)
            refreshing = asyncio.create_task(self._changes.refresh())
            try:
                yield
            finally:
                refreshing.cancel()
        finally:
            self.toolbox.listeners.discard(self._changes.toolbox_changed)
            await self._changes.close()
            await self._forwarder.parking.close()
            await self._methods.tasks.close()
            await self.toolbox.close()

    async def replace(
        self,
        servers: Mapping[str, ServerConfig | InProcessServer],
        policy: Policy,
        *,
        layers: Layers = _NO_LAYERS,
    ) -> None:
        """Replace servers, policy and layers in one step: see `Toolbox.replace`.

        Raises:
            ConfigError: The servers cannot be used; nothing was replaced.
        """

        def swap() -> None:
            self._in_force.policy, self._in_force.admit = policy, layers.admit

        await self.toolbox.replace(
            servers,
            around=replace(layers, policy=policy),
            idle_timeout=self._idle_timeout,
            check=lambda upstreams: self._check_names(policy, upstreams),
            swap=swap,
        )

    def rights_changed(self) -> None:
        """Recompute what each caller sees, and notify the callers whose lists have changed."""
        self._catalogue.rights_changed()
        self._changes.toolbox_changed()

    def _check_names(self, policy: Policy, upstreams: Mapping[str, Upstream]) -> None:
        if self._refuses_clashes:
            check_names(policy.plain_views, upstreams)

    def _handlers(self, server: str) -> ClientOptions:
        """Return the handlers for a server's notifications."""
        return {
            "on_log": lambda message: self._changes.logged(server, message),
            "on_resource_updated": lambda uri: self._changes.resource_updated(server, uri),
            "on_answer": partial(self._observer.requested, server),
        }

    def end_credentials(self, keys: Collection[str]) -> None:
        """End the parked calls of API keys that are no longer valid, given the keys' ids."""
        self._forwarder.parking.end(
            lambda principal: principal is not None and principal.ends_with(keys)
        )

    # Serving

    def connect(self) -> Transport:
        """Return the client's end of a connection within this process: see `Client.memory`."""
        ours, theirs = MemoryTransport.pair()
        task = asyncio.get_running_loop().create_task(ServerConnection(self, ours).serve())
        self._memory_connections.add(task)
        task.add_done_callback(self._memory_connections.discard)
        theirs.serving = task
        return theirs

    def asgi(self, **options: Unpack[HttpKeywords]) -> HttpApp:
        """Return an ASGI application, by default at the path `/mcp`; see `HttpOptions`."""
        from interlock.server.http.app import HttpApp
        from interlock.server.http.http_options import HttpOptions

        return HttpApp(self, HttpOptions.read(options))


async def _refuse(_: object) -> NoReturn:
    raise AskRefused(
        "the server sent a request outside of a call, so no client can answer it", "cannot_ask"
    )


# Declares to servers which requests they may send. Only a client that is calling can answer them,
# so outside of a call they are refused.
_ASKING: ClientOptions = {"elicitation": _refuse, "sampling": _refuse, "roots": []}
