"""One server of a toolbox: started, watched, restarted, and unable to harm the others.

States: `starting` -> `ok` <-> `down` (it worked once; its last good list is kept), or `failed`
(it never worked), or `disabled`. A server with a URL that rejects our credentials is `needs login`,
`expired` (log in again) or `refused`. The next call starts a server that is down, and the next
`refresh` one that has never listed its tools; neither sooner than the back-off allows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Unpack

from msgspec import UNSET, Raw, ValidationError, convert
from msgspec.structs import replace

from interlock.calls import Call, Caller, Entry, Outcome
from interlock.client import Client, ClientOptions
from interlock.client.listing import TOOLS, Listing
from interlock.config import (
    CONFIGURED,
    HttpServer,
    OpenApiConfig,
    Pool,
    ServerConfig,
    StdioServer,
)
from interlock.errors import (
    AuthError,
    HttpError,
    InterlockError,
    InvalidArguments,
    LoginExpired,
    LoginRequired,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    ServerUnavailable,
    StreamEnded,
    Unreachable,
)
from interlock.protocol.envelope import encode
from interlock.redaction import Redactor, redact_error
from interlock.revisions import (
    COMPLETION_CONTEXT,
    LEGACY,
    METHOD_NOT_FOUND,
    MODERN,
    at_least,
)
from interlock.store.pin import TOOL_KINDS, Offered
from interlock.toolbox.connect import make_client
from interlock.toolbox.hints import with_hint
from interlock.toolbox.item_lists import ItemKind, ItemLists
from interlock.toolbox.launch import launch_of
from interlock.toolbox.permitted import PermittedQuestions
from interlock.toolbox.pins import (
    CheckedLists,
    PinKeeper,
    offered_server,
    offered_tool,
)
from interlock.toolbox.pool import SHARED, ConnectionPool, Key, PooledClient, owner_of
from interlock.toolbox.restarts import Restarts
from interlock.toolbox.server_status import ServerStatus, State
from interlock.toolbox.standing import StandingRequests
from interlock.toolbox.tool_list import ToolList, Unusable
from interlock.toolbox.user_access import UserAccess
from interlock.toolbox.user_credentials import Needs, UserCredentials
from interlock.toolbox.user_lists import UserLists
from interlock.transports import InProcessServer
from interlock.types import (
    ClientCapabilities,
    CompleteParams,
    JsonObject,
    LogLevel,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
)

if TYPE_CHECKING:
    from interlock.openapi.server import OpenApiServer
    from interlock.transports.http_pool import HttpPool

DEFAULT_CONCURRENCY = 16  # calls at once of a server in this program
LIST_TTL = 300.0  # seconds, when the server does not say
MAX_REFRESHES = 3  # in a row, for a server that changes its tools all the time
REFRESH_GAP = 1.0  # seconds between two lists of a server that says that its tools changed
ITEMS_TIMEOUT = 5.0  # seconds that resources and prompts may delay a server's start
REFRESH_PAUSE = 30.0  # seconds after a list that could not be refreshed
MAX_HANGS = 3  # calls in a row without a good answer; then the connection is replaced
MAX_RESTARTS = 1_000  # connections whose failed starts are remembered
API_GRACE = 5.0  # seconds after which an API's own error about its timeout is not waited for
PER_CALL: Key = ("call",)
# The word for each state that keeps tools from being called, but for "server_down".
_CODES = {
    "disabled": "server_disabled",
    "needs login": "needs_login",
    "expired": "needs_login",
}
TEST_TIMEOUT = 10.0  # seconds

_log = logging.getLogger("interlock.toolbox")


class Upstream:
    """One server. Nothing raises because of what the server does, except `send`.

    Args:
        name: Its name in the toolbox, and in addresses.
        server: How to reach it.
        environ: Where `${VAR}` in the configuration is looked up.
        pool: Returns the HTTP connections that all servers with a URL share.
        on_change: Called when `entries`, `items` or `status` have changed.
        forwards: It serves clients of a gateway: it keeps `items`, and its server may ask what its
            configuration permits.
        read_file: Returns the file that a resource's URI stands for, in a call of an API.
        credentials: Those of the users who call the server; None if the local user is the only one.
        pins: Which of its definitions are accepted; None for all.
        options: Handlers for what the server asks; see `ClientOptions`.

    Attributes:
        name: As given.
    """

    def __init__(
        self,
        name: str,
        server: ServerConfig | InProcessServer,
        *,
        environ: Mapping[str, str],
        pool: Callable[[], HttpPool],
        on_change: Callable[[], None],
        read_file: Callable[[str, Call], Awaitable[JsonObject]],
        forwards: bool = False,
        credentials: UserCredentials | None = None,
        pins: PinKeeper | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.name = name
        self._credentials = credentials
        self._users = UserAccess(name, server, environ, credentials)
        self._lists = UserLists()
        self._checked = CheckedLists(name, pins)
        self._launch: JsonObject = {}
        self._list_ttl: float | None = getattr(server, "list_ttl", None)
        self._items = ItemLists(name, self._checked, self._lists)
        self._forwards = forwards
        self._standing = StandingRequests(name)
        self._server = server
        self._environ = environ
        self._http_pool = pool
        self._on_change = on_change
        self._options = options
        self._api: OpenApiServer | None = None  # for an API, once it has been started
        self._has_files = isinstance(server, OpenApiConfig) or hasattr(server, "with_files")
        self._read_file = read_file
        self._settings = server if isinstance(server, CONFIGURED) else None
        settings = self._settings
        # A server in this program may have a filter.
        admitted = settings.tools if settings is not None else getattr(server, "tool_filter", None)
        self._tools = ToolList(name, admitted, self._checked)
        self._permitted = PermittedQuestions(settings) if forwards else None
        limits = settings.pool if settings else Pool()
        self._pool = ConnectionPool(
            name,
            self._connect,
            settings.sharing if settings else "shared",
            replace(limits, spare=0) if self.is_personal else limits,
            self._check_start,
            self._note_end,
        )
        self._slots = asyncio.Semaphore(settings.concurrency if settings else DEFAULT_CONCURRENCY)
        self._state: State = "starting"
        self._reason = ""
        self._listed_until = 0.0
        self._changes = 0  # how often the server has said that its tools changed
        self._starts = 0
        self._start_seconds = 0.0
        self._flagged: dict[str, tuple[int, str]] = {}  # wrong results of a tool, and the last one
        self._dropped: Counter[str] = Counter()  # by connections that have ended
        self._restarts: dict[Key, Restarts] = {}
        self._latest: PooledClient | None = None  # of the last start of the shared connection
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_at = -REFRESH_GAP  # when the server last said that its tools changed
        self._closed = False

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The tools that it offers."""
        return self._tools.entries

    @property
    def unusable(self) -> tuple[Unusable, ...]:
        """The tools that cannot be called."""
        return self._tools.unusable

    @property
    def items(self) -> Mapping[ItemKind, Listing[Any]]:
        """Its other lists, as last received; empty unless it `forwards`."""
        return self._items.found

    @property
    def obstacle(self) -> tuple[str, str]:
        """Why its tools cannot be called now, as a stable word and in a line; "" if they can."""
        if self._state == "ok":
            return "", ""
        return _CODES.get(self._state, "server_down"), self._reason or self._state

    @property
    def needs(self) -> Needs:
        """What it needs of each user, as far as that is known."""
        return self._users.needs

    @property
    def is_personal(self) -> bool:
        """Whether it can be connected to only with a credential of the user who calls."""
        return self._users.is_personal

    @property
    def _lister(self) -> PooledClient | None:
        """The connection that lists the tools, if one is open."""
        if not self.is_personal:
            return self._pool.shared
        return next((each for each in self._pool.connections if not each.is_dropped), None)

    @property
    def may_ask(self) -> bool:
        """Whether the server may ask by requests: it is legacy, or its revision is unknown yet."""
        shared = self._lister
        return shared is None or shared.client.revision not in MODERN

    @property
    def status(self) -> ServerStatus:
        """Its status now."""
        shared = self._lister
        client = shared.client if shared else None
        info = client.server_info if client else None
        restarts = self._restarts.get(SHARED)
        connections = self._pool.connections
        return ServerStatus(
            name=self.name,
            state=self._state,
            reason=self._reason,
            tools=len(self.entries),
            missing=self._tools.missing,
            flagged=(
                *(
                    f"tool {tool!r}: {times} wrong results, the last one: {error}"
                    for tool, (times, error) in self._flagged.items()
                ),
                *self._notes("flagged"),
            ),
            dropped=dict(
                sum((Counter(each.client.dropped) for each in connections), self._dropped)
            ),
            revision=client.revision if client else "",
            server_info=f"{info.name} {info.version}".strip() if info else "",
            start_seconds=self._start_seconds,
            connections=self._pool.size,
            starts=self._starts,
            retry_in=max(0.0, restarts.wait(monotonic())) if restarts and not client else 0.0,
        )

    @property
    def instructions(self) -> str | None:
        """The server's instructions for a model; None while it is not connected."""
        shared = self._lister
        return shared.client.instructions if shared else None

    @property
    def stderr(self) -> str:
        """The end of what its program wrote to stderr, also after it ended, without secrets."""
        latest = self._latest
        return "" if latest is None else latest.redactor.redact(latest.client.stderr)

    async def test(self) -> float:
        """Start it if need be, and return the seconds until it answers.

        Raises:
            InterlockError: It does not answer.
        """
        pooled = await self._shared()
        began = monotonic()
        try:
            await pooled.client.ping(timeout=TEST_TIMEOUT)
        except InterlockError as error:
            raise self._redacted(pooled, error) from None
        return monotonic() - began

    # Starting

    async def restart(self) -> None:
        """End its connections, and with them the calls under way; then start it again."""
        await self.close()
        self._restarts.clear()
        await self.start()

    async def start(self, turns: asyncio.Semaphore | None = None) -> None:
        """Start it and list its tools; a failure is in `status`.

        Args:
            turns: A program waits for it, so that not too many start at once.
        """
        self._closed = False
        if self._settings is not None and not self._settings.enabled:
            self._state, self._reason = "disabled", "disabled in the configuration"
            return
        is_program = isinstance(self._settings, StdioServer)
        async with turns if turns is not None and is_program else nullcontext():
            if self.is_personal:
                await self._start_for_users()
                return
            with suppress(ServerUnavailable):  # the log and the status have the reason
                await self._shared()
            if self.is_personal:  # as its answer has just shown
                await self._start_for_users()

    async def restore(self) -> bool:
        """Offer the tools of the list that was last compared with the pins, and start nothing.

        Returns:
            Whether there is such a list, or the server is disabled.
        """
        if self._settings is not None and not self._settings.enabled:
            self._state, self._reason = "disabled", "disabled in the configuration"
            return True
        try:
            return await self._restore_tools()
        except InterlockError as error:
            _log.warning("server %r: its pins cannot be read: %s", self.name, error)
            return False

    async def _start_for_users(self) -> None:
        """Offer the tools that were last pinned, else list them with the credential of a user."""
        reason = "no user has a credential for it yet"
        try:
            if await self._restore_tools():
                return
            for owner in await self._users.owners():
                await self.start_for(owner)
                if self.entries:
                    return
        except InterlockError as error:
            reason = str(error)
        if not self.entries and self._state != "failed":
            self._set_state("needs login", reason)

    async def _restore_tools(self) -> bool:
        """Offer the tools of the last list that was compared with the pins, if there are any."""
        async with self._checked.lock:
            tools = await self._checked.tools_seen_last()
            listing: Listing[Tool] = Listing()
            for each in tools:
                with suppress(ValidationError):
                    listing.append(convert(each.document, Tool))
                    listing.definitions.append(each.document)
            if not listing:
                return False
            values = dict.fromkeys(self.needs.names, "-")  # they are in no part of the launch
            launch = launch_of(self._server, self._environ, self._checked.key, values)
            instructions = (
                None if self.is_personal else await self._checked.instructions_seen_last()
            )
            await self._checked.check([offered_server(launch, instructions), *tools], TOOL_KINDS)
            self._install_tools(listing)
        self._set_state("ok", "")
        return True

    async def start_for(self, owner: str) -> None:
        """Connect with a user's credential, so that the user's tools are listed."""
        if not self.is_personal:
            return
        with suppress(InterlockError):  # the log has the reason
            await self._pool.start(("user", owner))

    @property
    def api(self) -> OpenApiServer | None:
        """The server of an API; None for another server."""
        config = self._server
        return self._api_server(config) if isinstance(config, OpenApiConfig) else None

    def sees(self, owner: str, kind: str, name: str) -> bool:
        """Return whether a user's list has an item; see `UserLists.sees`."""
        return self._lists.sees(owner, kind, name)

    def connect_url(self, owner: str) -> str:
        """Return where a user connects to the server; "" for nowhere."""
        return self._users.connect_url(owner)

    def end_user(self, owner: str) -> None:
        """Close the connections of a user whose credential has changed, after their last calls."""
        self._pool.drop_of(owner)
        if self._api is not None:
            self._api.end_user(owner)
        for key in [each for each in self._restarts if owner_of(each) == owner]:
            del self._restarts[key]
        if self._lists.remove(owner):
            self._on_change()

    async def _shared(self) -> PooledClient:
        return self._pool.shared or await self._pool.start(SHARED)

    def _check_start(self, key: Key) -> None:
        if key == SHARED and self.is_personal:
            reason = "it needs a credential of the user who calls"
            raise ServerUnavailable(self.name, reason, "needs_login")
        if self._state == "disabled" or self._closed:
            code = "server_disabled" if self._state == "disabled" else "server_down"
            raise ServerUnavailable(self.name, self._reason, code)
        restarts = self._restarts_of(key)
        wait = restarts.wait(monotonic(), limited=_restarts_key(key) != PER_CALL)
        if wait > 0:
            reason = f"{restarts.reason}; next try in {wait:.1f} s"
            raise ServerUnavailable(self.name, reason, "breaker_open", wait)
        self._starts += 1

    def _restarts_of(self, key: Key) -> Restarts:
        key = _restarts_key(key)
        found = self._restarts.pop(key, None) or Restarts()
        self._restarts[key] = found  # the last one is the one used most recently
        if len(self._restarts) > MAX_RESTARTS:
            del self._restarts[next(each for each in self._restarts if each != SHARED)]
        return found

    async def _connect(self, key: Key) -> PooledClient:
        """Open a connection; the shared one lists the tools."""
        started = monotonic()
        restarts = self._restarts_of(key)
        redactor = Redactor()
        try:
            pooled = self._make(key, await self._users.values(owner_of(key)))
            redactor = pooled.redactor
            has_listed = await self._open(pooled)
        except Exception as error:
            if isinstance(error, InterlockError):
                reason = self._why(error)
            else:  # from the program that the server is a part of
                _log.exception("starting server %r failed", self.name)
                reason = f"{type(error).__name__} while starting: {error}"
            reason = redactor.redact(reason)
            if isinstance(error, LoginRequired):
                self._users.require_login()
            if isinstance(error, LoginRequired) and owner_of(key):  # so nothing has failed
                raise redact_error(error, redactor) from None
            restarts.failed(monotonic(), reason)
            if key == SHARED or (self.is_personal and not self.entries):
                self._set_state(_state_of(error) or ("down" if self.entries else "failed"), reason)
            raise ServerUnavailable(self.name, reason) from error
        restarts.succeeded()
        if has_listed:
            self._start_seconds = monotonic() - started
            self._set_state("ok", "")
            if self.is_personal:
                self._on_change()  # what this user sees
            if self._items.unlisted:
                self._refresh_later()
        await self._standing.restore(pooled)
        return pooled

    def _make(self, key: Key, values: Mapping[str, str] | None) -> PooledClient:
        pooled: PooledClient
        options: ClientOptions = {
            **self._options,
            "on_loss": lambda error: self._on_loss(pooled, str(error)),
        }
        if self._permitted is not None:
            options = self._permitted.without_refused(options)
        if self._forwards and key != SHARED:
            options.pop("on_log", None)  # its messages are for one user only
        if key == SHARED or self.is_personal:
            options["on_list_changed"] = self._list_changed
            self._launch = launch_of(self._server, self._environ, self._checked.key, values)
        server = self._server
        if isinstance(server, OpenApiConfig):
            options["timeout"] = server.timeout + API_GRACE
            server = self._api_server(server)
        owner = owner_of(key)
        client, redactor = make_client(
            server,
            self._environ,
            self._http_pool,
            options,
            owner=owner,
            user=values,
            login=self._users.login(owner),
        )
        pooled = PooledClient(key, client, redactor)
        if key == SHARED:
            self._latest = pooled
        return pooled

    def _notes(self, kind: Literal["missing", "flagged"]) -> tuple[str, ...]:
        """Return what a server in this program says about its tools, such as an `OpenApiServer`."""
        notes: tuple[str, ...] = getattr(self._api or self._server, kind, ())
        return notes

    def _api_server(self, config: OpenApiConfig) -> OpenApiServer:
        """Return the server of an API, which all connections share."""
        if self._api is None:
            from interlock.openapi.server import OpenApiServer  # loads aiohttp

            self._api = OpenApiServer.from_config(
                config, self._environ, self._http_pool, self.name, self._credentials
            )
        return self._api

    async def _open(self, pooled: PooledClient) -> bool:
        """Open a connection; return whether its lists are those of the server."""
        client = pooled.client
        try:
            await client.open()
        except RequestTimeout as error:
            if self._settings is None:
                raise
            raise RequestTimeout(f'{error}; raise "connectTimeout" for a slow server') from None
        if not self._must_list(pooled.key):
            client.adopt_tools(self._tools.listing)
            return False
        try:
            listing = await _list_tools(client)
            client.check_open()  # it may have answered and gone away
            if self._forwards:
                self._items.note_all()
                try:
                    async with asyncio.timeout(ITEMS_TIMEOUT):
                        await self._list_items(pooled)
                except TimeoutError:
                    name = self.name
                    _log.warning("server %r: its resources and prompts are not listed yet", name)
            await self._check_and_install(self._merged(pooled, listing), pooled)
        except BaseException:
            await client.close()
            raise
        return True

    def _must_list(self, key: Key) -> bool:
        """Return whether a new connection lists the tools."""
        if not self.is_personal:
            return key == SHARED
        return not self._lists.has(owner_of(key)) or monotonic() >= self._listed_until

    def _merged(self, pooled: PooledClient, listing: Listing[Tool]) -> Listing[Tool]:
        """Return the tools of all users, with those that a user's connection has just listed."""
        if not self.is_personal:
            return listing
        offered = self._offered(listing, pooled)
        return self._lists.merge(
            TOOLS,
            owner_of(pooled.key),
            listing,
            hashes={each.name: each.hash for each in offered if self._checked.compares},
            accepted=self._checked.accepted,
        )

    # Failing

    def _on_loss(self, pooled: PooledClient, reason: str) -> None:
        """Give a connection that has ended no new calls. Those under way go on, if they can."""
        if pooled.is_dropped:
            return
        reason = pooled.redactor.redact(reason)
        is_shared = pooled is self._pool.shared
        if pooled in self._pool.connections:  # otherwise its start fails, which is counted
            self._restarts_of(pooled.key).lost(monotonic(), reason)
        self._pool.drop(pooled)
        if is_shared:
            self._set_state("down", reason)

    def _note_end(self, pooled: PooledClient) -> None:
        self._dropped.update(pooled.client.dropped)

    def _why(self, error: InterlockError) -> str:
        return with_hint(error, self.name, self._server)

    def _set_state(self, state: State, reason: str) -> None:
        if (state, reason) == (self._state, self._reason):
            return
        self._state, self._reason = state, reason
        stale = state != "ok"
        self._tools.mark(stale=stale)
        if state != "ok":
            _log.warning("server %r %s: %s", self.name, state, reason)
        self._on_change()

    # Tools

    def _list_changed(self, kind: str) -> None:
        if self._closed:
            return
        if kind == "tools":
            self._listed_until = 0.0
            self._changes += 1
        elif self._forwards:
            self._items.note_change(kind)
        else:
            return
        self._refresh_later()

    def _refresh_later(self) -> None:
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh_soon())
            self._refreshing.add_done_callback(self._refreshed)

    async def _refresh_soon(self) -> None:
        wait = self._refreshed_at + REFRESH_GAP - monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        self._refreshed_at = monotonic()
        shared = self._lister
        if shared is not None and self._items.unlisted and await self._list_items(shared):
            self._on_change()
        await self.refresh()

    def _refreshed(self, _: asyncio.Task[None]) -> None:
        self._refreshing = None
        if self._items.unlisted and self._lister is not None and not self._closed:
            self._refresh_later()

    async def _list_items(self, pooled: PooledClient) -> bool:
        return await self._items.list_changed(pooled, is_personal=self.is_personal)

    @property
    def is_due(self) -> bool:
        """Whether `refresh` has something to do."""
        if self._lister is None:
            return not self.is_personal and not self.entries and self._state != "disabled"
        return monotonic() >= self._listed_until

    async def refresh(self) -> None:
        """List the tools again if the list has expired.

        A server that has never listed its tools is started again in the background.
        """
        if self._lister is None and not self.entries:
            self._start_in_background()
        for _ in range(MAX_REFRESHES):
            shared, changes = self._lister, self._changes
            if shared is None or monotonic() < self._listed_until:
                return
            try:
                fresh = self._list_ttl is not None  # which may be shorter than the server's
                listing = await _list_tools(shared.client, fresh=fresh)
            except InterlockError as error:
                # The last good list stays.
                reason = shared.redactor.redact(str(error))
                _log.warning("server %r: tools not refreshed: %s", self.name, reason)
                self._note_failure(shared, error)
                self._listed_until = monotonic() + REFRESH_PAUSE
                return
            if shared is not self._lister:
                return
            listing = self._merged(shared, listing)
            offered = self._offered(listing, shared)
            if self._checked.is_same(offered, TOOL_KINDS) and listing.skipped == (
                self._tools.listing.skipped
            ):
                self._listed_until = monotonic() + (listing.ttl or LIST_TTL)
                self._flagged.clear()
            else:
                await self._check_and_install(listing, shared)
                self._on_change()
            if changes != self._changes:  # the tools changed while the list was on its way
                self._listed_until = 0.0

    def start_again(self) -> None:
        """Start it in the background if it is down and the back-off allows it."""
        if self._pool.shared is None and self._state in ("down", "failed"):
            self._start_in_background()

    def _start_in_background(self) -> None:
        if self._state in ("starting", "disabled") or self._closed or self.is_personal:
            return
        with suppress(ServerUnavailable):  # the back-off does not allow it yet
            self._pool.begin(SHARED)

    # Pins

    def _offered(self, listing: Listing[Tool], pooled: PooledClient) -> list[Offered]:
        """Return what is pinned of a list of tools, and of the server itself."""
        behind = getattr(self._api or self._server, "behind", None)
        tools = [
            offered_tool(each, behind(each["name"]) if behind is not None else None)
            for each in listing.definitions
        ]
        # Those of a server with a credential for each user may name the user.
        instructions = None if self.is_personal else pooled.client.instructions
        return [offered_server(self._launch, instructions), *tools]

    async def _check_and_install(self, listing: Listing[Tool], pooled: PooledClient) -> None:
        async with self._checked.lock:
            await self._checked.check(self._offered(listing, pooled), TOOL_KINDS)
            self._install_tools(listing)
            self._items.install_prompts()

    async def check_again(self) -> None:
        """Compare its lists with their pins, which may have changed."""
        async with self._checked.lock:
            if not await self._checked.check_again():
                return
            self._tools.install(self._tools.listing, self._notes("missing"))
            self._items.install_prompts()
        self._on_change()

    def _install_tools(self, listing: Listing[Tool]) -> None:
        self._tools.install(listing, self._notes("missing"))
        self._note_list(listing)

    def _note_list(self, listing: Listing[Tool]) -> None:
        ttl = listing.ttl or LIST_TTL
        if self._list_ttl is not None:
            ttl = min(listing.ttl or self._list_ttl, self._list_ttl)
        self._listed_until = monotonic() + ttl
        for pooled in self._pool.connections:
            if pooled is not self._lister:
                pooled.client.adopt_tools(listing)
        self._flagged.clear()

    # Resources and prompts

    @property
    def has_resources(self) -> bool:
        """Whether the server is connected, and says that it has resources."""
        return any(
            pooled.client.capabilities.resources is not None for pooled in self._pool.connections
        )

    async def list_resources(self) -> Listing[Resource]:
        """List its resources, from the cache while the server allows it.

        Raises:
            ServerUnavailable: It cannot be started, or not yet again.
            InterlockError: As `Client.list_resources`.
        """
        client = (await self._shared()).client
        return Listing() if client.capabilities.resources is None else await client.list_resources()

    async def list_resource_templates(self) -> Listing[ResourceTemplate]:
        """List its resource templates; as `list_resources`."""
        client = (await self._shared()).client
        if client.capabilities.resources is None:
            return Listing()
        return await client.list_resource_templates()

    async def list_prompts(self) -> Listing[Prompt]:
        """List its prompts; as `list_resources`."""
        client = (await self._shared()).client
        return Listing() if client.capabilities.prompts is None else await client.list_prompts()

    async def follow(self, uri: str) -> None:
        """Subscribe to a resource, also at later connections.

        Raises:
            CapabilityError: The server has no subscriptions.
            InterlockError: The server is down, or refuses.
        """
        pooled = await self._shared()
        try:
            await self._standing.follow(pooled, uri)
        except InterlockError as error:
            raise self._redacted(pooled, error) from None

    async def unfollow(self, uri: str) -> None:
        """End the subscription to a resource."""
        self._standing.unfollow(uri)
        shared = self._pool.shared
        if shared is not None:
            with suppress(InterlockError):
                await shared.client.unsubscribe(uri)

    async def want_log_level(self, level: LogLevel) -> None:
        """Have a legacy server log at this level, unless it logs at a lower one already."""
        await self._standing.want_log_level(level, self._pool.connections)

    # Calling

    def validate(self, call: Call) -> None:
        """Raise if a call's arguments do not fit the tool's schema.

        Raises:
            InvalidArguments: Names each argument that does not fit.
        """
        if not isinstance(call.entry, Entry):
            return
        tool = call.entry.tool.name
        errors = self._tools.errors(tool, call.arguments, echo=not self._forwards)
        if errors:
            raise InvalidArguments(f"{call.entry.address}: {'; '.join(errors)}")

    async def check_credentials(self, call: Call) -> None:
        """Check that the caller has the credentials of a user that a call needs.

        A login that has expired is refreshed.

        Raises:
            LoginRequired: The user must log in, or store a value.
            InterlockError: Whether that is so cannot be determined.
        """
        owner = call.caller.owner
        if not owner or not self.needs:
            return
        if isinstance(self._server, OpenApiConfig):
            await self._api_server(self._server).check_user(call.name, owner)
        else:
            await self._users.check(owner)

    async def send(self, call: Call) -> Outcome:
        """Send a call whose arguments have been validated; starts the server if it is down.

        Raises:
            ServerUnavailable: It cannot be started, or not yet again.
            InterlockError: As `Client.call_tool`. Secrets are redacted in the text.
        """
        await self._slots.acquire()
        release = call.hold(self._slots.release)
        try:
            pooled = await self._pool.acquire(call.caller)
            try:
                call.revision = pooled.client.revision
                if self._has_files:
                    call = await self._with_files(call)
                try:
                    outcome = await self._forward(pooled.client, call)
                except InterlockError as error:
                    self._note_failure(pooled, error)
                    clean = self._redacted(pooled, error)
                    if isinstance(error, RemoteProtocolError) and not pooled.is_dropped:
                        self._flag(call.name, clean)
                    raise clean from None
            finally:
                self._pool.release(pooled)
        finally:
            release()
        pooled.hangs = 0
        if self._state != "ok" and pooled is self._pool.shared:
            self._set_state("ok", "")
        return outcome

    async def _forward(self, client: Client, call: Call) -> Outcome:
        name, is_tool = call.name, isinstance(call.entry, Entry)
        can, permitted = call.capabilities, self._permitted
        raw = await client.forward(
            call.method,
            call.params(),
            name=name,
            timeout=call.timeout,
            progress=call.progress,
            meta=call.meta,
            idempotent=self._may_repeat(call),
            back=call.back,
            capabilities=can if can is None or permitted is None else permitted.of(can),
            log_level=call.log_level,
            returns_questions=call.returns_questions,
        )
        outcome = Outcome(raw)
        # A caller that forwards the result may never decode it; others find out here what is wrong.
        is_checked = is_tool and (call.back is None or client.has_output_schema(name))
        if is_checked and not (call.returns_questions and outcome.is_task):
            return Outcome(raw, client.check_result(name, raw))
        return outcome

    async def _with_files(self, call: Call) -> Call:
        """Return a call of an API with the contents of the resources that its files name."""
        api: Any = self._api or self._server
        arguments = await api.with_files(
            call.name, call.arguments, lambda uri: self._read_file(uri, call)
        )
        return call if arguments is call.arguments else replace(call, arguments=arguments)

    def permitted(self, can: ClientCapabilities) -> ClientCapabilities:
        """Return what the server may ask a client for, and use of it."""
        return can if self._permitted is None else self._permitted.of(can)

    async def complete(self, caller: Caller, params: CompleteParams) -> Raw:
        """Request completions on behalf of a caller, and return the result encoded.

        Raises:
            InterlockError: As `send`.
        """
        async with self._slots:
            pooled = await self._pool.acquire(caller)
            try:
                if pooled.client.capabilities.completions is None and _has_completions(pooled):
                    return _NO_COMPLETIONS
                if not at_least(pooled.client.revision, COMPLETION_CONTEXT):
                    params = replace(params, context=UNSET)
                return await pooled.client.forward("completion/complete", encode(params))
            except InterlockError as error:
                self._note_failure(pooled, error)
                raise self._redacted(pooled, error) from None
            finally:
                self._pool.release(pooled)

    async def ask_task(
        self, caller: Caller, method: str, params: bytes, task: str, can: ClientCapabilities
    ) -> Raw:
        """Send a request about a task of this server, and return the result encoded.

        Args:
            caller: Whose call became the task.
            method: `tasks/get`, `tasks/update` or `tasks/cancel`.
            params: Encoded.
            task: The server's id of the task.
            can: What the client of the caller declares.

        Raises:
            InterlockError: As `send`.
        """
        async with self._slots:
            pooled = await self._pool.acquire(caller)
            try:
                return await pooled.client.forward(
                    method, params, name=task, idempotent=True, capabilities=self.permitted(can)
                )
            except InterlockError as error:
                self._note_failure(pooled, error)
                raise self._redacted(pooled, error) from None
            finally:
                self._pool.release(pooled)

    def _flag(self, tool: str, error: InterlockError) -> None:
        times, _ = self._flagged.get(tool, (0, ""))
        self._flagged[tool] = times + 1, str(error)

    def may_repeat(self, tool: str) -> bool:
        """Whether the operator says that a tool only reads, or may be called twice."""
        tools = self._settings.tools if self._settings is not None else None
        return tools is not None and (tools.may_repeat(tool) or tools.risk.of(tool) == "read")

    def _may_repeat(self, call: Call) -> bool:
        if call.idempotent or not isinstance(call.entry, Entry):
            return True
        return self._settings is not None and self._settings.tools.may_repeat(call.name)

    def _note_failure(self, pooled: PooledClient, error: InterlockError) -> None:
        """Update the state from what a call's failure says about the server."""
        if pooled.is_dropped:
            return
        if isinstance(error, AuthError):
            if error.status == 401 and pooled is self._pool.shared:  # others are about the tool
                reason = pooled.redactor.redact(self._why(error))
                self._set_state(_state_of(error) or "refused", reason)
        elif isinstance(error, Unreachable):  # over HTTP nothing else notices
            self._on_loss(pooled, str(error))
        elif _is_no_answer(error):
            pooled.hangs += 1
            if pooled.hangs >= MAX_HANGS:
                reason = f"no answer to {MAX_HANGS} calls in a row; the last one: {error}"
                if isinstance(self._settings, HttpServer):
                    self._on_loss(pooled, reason)  # its other calls are independent requests
                else:
                    pooled.client.abort(reason)

    def _redacted(self, pooled: PooledClient, error: InterlockError) -> InterlockError:
        """Return a copy without secrets: the text goes to the model."""
        clean = redact_error(error, pooled.redactor)
        if isinstance(clean, AuthError):
            clean.args = (pooled.redactor.redact(self._why(error)),)
        return clean

    # Closing

    async def close(self) -> None:
        """Close all connections. Calls that wait for a start fail with `ServerUnavailable`."""
        self._closed = True
        if self._state != "disabled":
            self._state, self._reason = "down", "the toolbox is closed"
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})
        await self._pool.close()


_NO_COMPLETIONS = Raw(b'{"completion":{"values":[]}}')


def _has_completions(pooled: PooledClient) -> bool:
    """Return whether servers of this revision declare that they complete arguments."""
    return pooled.client.revision != LEGACY[0]


def _restarts_key(key: Key) -> Key:
    """Return the key under which starts are counted: calls with a connection each share one."""
    return PER_CALL if key[:1] in (("call",), ("spare",)) else key


def _state_of(error: Exception) -> State | None:
    """Return the state of a server that rejects our credentials; None for other errors."""
    if isinstance(error, LoginRequired):
        return "expired" if isinstance(error, LoginExpired) else "needs login"
    return "refused" if isinstance(error, AuthError) else None


def _is_no_answer(error: InterlockError) -> bool:
    """Return whether the server gave no answer in this protocol. 429 only asks to wait."""
    if isinstance(error, HttpError):
        return error.status != 429
    return isinstance(error, RequestTimeout | StreamEnded)


async def _list_tools(client: Client, *, fresh: bool = False) -> Listing[Tool]:
    try:
        return await client.list_tools(fresh=fresh)
    except RemoteError as error:
        if error.code == METHOD_NOT_FOUND and client.capabilities.tools is None:
            return Listing()  # a server of resources or prompts only
        raise
