"""One server in a toolbox: it is started, watched and restarted, and its failures stay its own.

A server that is down is started by the next call. A server that has never listed its tools is also
started by the next `refresh`. The back-off limits both. `ServerHealth` describes the states.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from interlock.calls import Call, Caller, Entry
from interlock.client import ClientOptions
from interlock.client.listing import Listing
from interlock.config import CONFIGURED, Pool, ServerConfig, StdioServer
from interlock.errors import (
    CallRefused,
    InterlockError,
    LoginRequired,
    RequestTimeout,
    ServerUnavailable,
)
from interlock.revisions import MODERN
from interlock.text.redaction import Redactor, redact_error
from interlock.toolbox.client_factory import ClientFactory
from interlock.toolbox.failures import Failures
from interlock.toolbox.item_lists import ItemKind
from interlock.toolbox.permitted import PermittedQuestions
from interlock.toolbox.pins import CheckedLists, PinKeeper
from interlock.toolbox.pool import (
    SHARED,
    ConnectionPool,
    Key,
    PooledClient,
    caller_values_of,
    owner_of,
)
from interlock.toolbox.restarts import RestartsByKey
from interlock.toolbox.server_calls import ServerCalls
from interlock.toolbox.server_health import ServerHealth, ServerStatus, state_of
from interlock.toolbox.server_lists import ServerLists
from interlock.toolbox.standing_requests import StandingRequests
from interlock.toolbox.tool_list import Unusable
from interlock.toolbox.user_access import UserAccess
from interlock.toolbox.user_credentials import Needs, UserCredentials
from interlock.transports import InProcessServer
from interlock.types import JsonObject, LogLevel, Prompt, Resource, ResourceTemplate

if TYPE_CHECKING:
    from interlock.openapi.server import OpenApiServer
    from interlock.transports.http_pool import HttpPool

TEST_TIMEOUT = 10.0  # seconds

_log = logging.getLogger("interlock.toolbox")


class Upstream:
    """One server in a toolbox. Only calls through `calls` raise its failures.

    Args:
        name: The server's name in the toolbox, and in addresses.
        server: The server's configuration, or the server itself.
        environ: The environment that `${VAR}` in the configuration refers to.
        pool: Returns the HTTP connections that all servers with a URL share.
        on_change: Called when `entries`, `items` or `status` have changed.
        forwards: Whether the server serves a gateway's clients. Then `items` is filled, and the
            server may ask clients the questions that its configuration permits.
        read_file: Returns the file argument for a resource's URI, for a call to an API.
        credentials: The callers' credentials; None if the local user is the only caller.
        pins: The accepted definitions; None to accept every definition.
        options: Handlers for the server's questions; see `ClientOptions`.

    Attributes:
        name: The server's name.
        calls: Sends calls to the server.
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
        self._on_change = on_change
        self._settings = server if isinstance(server, CONFIGURED) else None
        permitted = PermittedQuestions(self._settings) if forwards else None
        self._users = UserAccess(name, server, environ, credentials)
        self._standing = StandingRequests(name)
        self._health = ServerHealth(name, self._state_changed)
        self._restarts = RestartsByKey(name)
        self._pool = self._make_pool()
        self._failures = Failures(name, server, self._pool, self._restarts, self._health)
        self._clients = ClientFactory(
            name,
            server,
            environ,
            pool,
            users=self._users,
            credentials=credentials,
            permitted=permitted,
            forwards=forwards,
            options=options,
        )
        self._lists = self._make_lists(server, CheckedLists(name, pins), forwards=forwards)
        self.calls = self._make_calls(server, permitted, read_file, echo=not forwards)
        self._start_seconds = 0.0
        self._start_ended = asyncio.Event()  # cleared while `start` runs
        self._start_ended.set()
        self._purpose = ""  # see `purpose`
        self._dropped: Counter[str] = Counter()  # messages dropped on connections that have ended

    def _make_pool(self) -> ConnectionPool:
        settings = self._settings
        limits = settings.pool if settings else Pool()
        return ConnectionPool(
            self.name,
            self._connect,
            settings.sharing if settings else "shared",
            replace(limits, spare=0) if self.is_personal else limits,
            self._check_start,
            self._note_end,
            self._users.caller_values if self._users.references else None,
        )

    def _make_lists(
        self, server: ServerConfig | InProcessServer, lists: CheckedLists, *, forwards: bool
    ) -> ServerLists:
        return ServerLists(
            self.name,
            lists,
            self._settings.tools if self._settings is not None else None,
            access=self._users,
            clients=self._clients,
            pool=self._pool,
            health=self._health,
            failures=self._failures,
            ttl=getattr(server, "list_ttl", None),
            forwards=forwards,
            on_change=self._on_change,
        )

    def _make_calls(
        self,
        server: ServerConfig | InProcessServer,
        permitted: PermittedQuestions | None,
        read_file: Callable[[str, Call], Awaitable[JsonObject]],
        *,
        echo: bool,
    ) -> ServerCalls:
        return ServerCalls(
            server,
            self._lists.tools,
            access=self._users,
            clients=self._clients,
            pool=self._pool,
            health=self._health,
            failures=self._failures,
            permitted=permitted,
            read_file=read_file,
            echo=echo,
        )

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self._lists.tools.entries

    @property
    def unusable(self) -> tuple[Unusable, ...]:
        return self._lists.tools.unusable

    @property
    def items(self) -> Mapping[ItemKind, Listing[Any]]:
        """The server's resources and prompts, as last received; empty unless `forwards`."""
        return self._lists.items

    @property
    def waiting_prompts(self) -> Mapping[str, str]:
        """Why prompts wait until their definitions are accepted, keyed by the prompt's name."""
        return self._lists.waiting_prompts

    @property
    def obstacle(self) -> tuple[str, str]:
        """Why the server's tools cannot be called now; see `ServerHealth.obstacle`."""
        return self._health.obstacle

    @property
    def next_try(self) -> float | None:
        """Seconds until `refresh` may start the server; None if `refresh` will not start it."""
        has_failed = self._health.state in ("down", "failed", "refused")
        if not has_failed or self.entries or self.is_personal:
            return None
        return self._restarts.retry_in

    @property
    def restarts(self) -> int:
        """The number of starts that followed a failed start or a lost connection."""
        return self._restarts.again

    @property
    def needs(self) -> Needs:
        """The credentials that the server is known to need from each user."""
        return self._users.needs

    @property
    def is_personal(self) -> bool:
        """Whether a connection requires a credential of the calling user."""
        return self._users.is_personal

    @property
    def may_ask(self) -> bool:
        """Whether the server may send requests: it is legacy, or its revision is unknown."""
        shared = self._lists.connection
        return shared is None or shared.client.revision not in MODERN

    @property
    def status(self) -> ServerStatus:
        shared = self._lists.connection
        client = shared.client if shared else None
        info = client.server_info if client else None
        connections = self._pool.connections
        return ServerStatus(
            name=self.name,
            state=self._health.state,
            reason=self._health.reason,
            tools=len(self.entries),
            missing=self._lists.tools.missing,
            flagged=(*self._lists.tools.flagged, *self._clients.notes("flagged")),
            dropped=dict(
                sum((Counter(each.client.dropped) for each in connections), self._dropped)
            ),
            revision=client.revision if client else "",
            server_info=f"{info.name} {info.version}".strip() if info else "",
            start_seconds=self._start_seconds,
            connections=self._pool.size,
            starts=self._restarts.count,
            retry_in=0.0 if client else self._restarts.retry_in,
        )

    @property
    def instructions(self) -> str | None:
        """The server's instructions for a model; None while it is not connected."""
        shared = self._lists.connection
        return shared.client.instructions if shared else None

    @property
    def purpose(self) -> str:
        """The server's title, or the first sentence of its instructions, on one line.

        The text of the last connection is kept. "" if the server has stated neither.
        """
        shared = self._lists.connection
        if shared is not None:
            title = shared.client.server_info.title or ""
            # Instructions for a single user are not compared with the pins.
            text = "" if self.is_personal else (shared.client.instructions or "")
            self._purpose = (
                title.strip() or re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0]
            )
        return " ".join(self._purpose.split())

    @property
    def stderr(self) -> str:
        """The program's last stderr output with secrets redacted, even after its exit."""
        latest = self._clients.latest
        return "" if latest is None else latest.redactor.redact(latest.client.stderr)

    async def test(self) -> float:
        """Measure the seconds until the server answers a ping; start it if necessary.

        Raises:
            InterlockError: The server does not answer.
        """
        pooled = await self._shared()
        began = monotonic()
        try:
            await pooled.client.ping(timeout=TEST_TIMEOUT)
        except InterlockError as error:
            raise self._failures.redacted(pooled, error) from None
        return monotonic() - began

    # Starting

    async def restart(self) -> None:
        """End the server's connections and running calls, then start it again."""
        await self.close()
        self._restarts.clear()
        await self.start()

    async def start(self, turns: asyncio.Semaphore | None = None) -> None:
        """Start the server and list its tools; a failure is reported in `status`.

        Args:
            turns: A semaphore that limits how many programs start at the same time.
        """
        self._health.is_closed = False
        if self._settings is not None and not self._settings.enabled:
            self._health.disable()
            return
        is_program = isinstance(self._settings, StdioServer)
        self._start_ended.clear()
        try:
            async with turns if turns is not None and is_program else nullcontext():
                if self.is_personal:
                    await self._start_for_users()
                    return
                with suppress(ServerUnavailable):  # the log and the status report the reason
                    await self._shared()
                if self.is_personal:  # the server may have demanded a login in its answer
                    await self._start_for_users()
        finally:
            self._start_ended.set()

    @property
    def is_starting(self) -> bool:
        """Whether the server is being started and has not listed its tools yet."""
        return not self._start_ended.is_set() and not self.entries

    async def wait_for_start(self, timeout: float | None = None) -> None:
        """Wait until a start that is under way has ended, whatever its outcome.

        Args:
            timeout: The most seconds to wait; None for the timeout of the server's requests.
        """
        if timeout is None and self._settings is not None:
            timeout = self._settings.timeout
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._start_ended.wait()

    async def restore(self) -> bool:
        """Offer the tools that were last compared with the pins, without starting the server.

        Returns:
            Whether nothing remains to be done: tools were found, or the server is disabled.
        """
        if self._settings is not None and not self._settings.enabled:
            self._health.disable()
            return True
        try:
            return await self._restore_tools()
        except InterlockError as error:
            _log.warning("server %r: its pins cannot be read: %s", self.name, error)
            return False

    async def _start_for_users(self) -> None:
        """Offer the tools last compared with the pins, or list them with a user's credential."""
        reason = "no user has a credential for it yet"
        try:
            if await self._restore_tools():
                return
            if self._users.references:
                self._health.set("starting", "no user has listed its tools yet")
                return
            for owner in await self._users.owners():
                await self.start_for(owner)
                if self.entries:
                    return
        except InterlockError as error:
            reason = str(error)
        if not self.entries and self._health.state != "failed":
            self._health.set("needs login", reason)

    async def _restore_tools(self) -> bool:
        """Offer the tools last compared with the pins; return whether tools were found."""
        has_tools = await self._lists.restore()
        if has_tools:
            self._health.set("ok")
        return has_tools

    async def start_for(self, owner: str) -> None:
        """Connect with a user's credential, so that the user's tools are listed."""
        if not self.is_personal or self._users.references:  # no caller is known here
            return
        with suppress(InterlockError):  # the log reports the reason
            await self._pool.start(("user", owner))

    @property
    def caller_references(self) -> tuple[str, ...]:
        """The references to the caller in the configuration, such as "${caller.user}"."""
        return self._users.references

    def waits_for(self, caller: Caller) -> bool:
        """Return whether the tools are unknown because no caller has started the server yet."""
        return bool(self._users.references and caller.owner) and not self.entries

    async def start_for_caller(self, caller: Caller) -> None:
        """Connect with a caller's values, so that the user's tools are listed."""
        with suppress(InterlockError):  # the log reports the reason
            values = self._users.caller_values(caller)
            await self._pool.start(("user", caller.owner, *values))

    def caller_problem(self, caller: Caller) -> str:
        """Return why this caller cannot use the server, in one line; "" if it can."""
        try:
            self.calls.check_caller(caller)
        except CallRefused as error:
            return str(error)
        return ""

    @property
    def api(self) -> OpenApiServer | None:
        return self._clients.api

    def sees(self, owner: str, kind: str, name: str) -> bool:
        """Return whether a user's list has an item; see `UserLists.sees`."""
        return self._lists.sees(owner, kind, name)

    def connect_url(self, owner: str) -> str:
        return self._users.connect_url(owner)

    def end_user(self, owner: str) -> None:
        """Close a user's connections after their last calls, because the credential has changed."""
        self._pool.drop_of(owner)
        self._clients.end_user(owner)
        self._restarts.forget(owner)
        if self._lists.end_user(owner):
            self._on_change()

    async def _shared(self) -> PooledClient:
        return self._pool.shared or await self._pool.start(SHARED)

    def _check_start(self, key: Key) -> None:
        if key == SHARED and self.is_personal:
            reason = "it needs a credential of the user who calls"
            raise ServerUnavailable(self.name, reason, "needs_login")
        self._health.check_start()
        self._restarts.begin(key)

    async def _connect(self, key: Key) -> PooledClient:
        """Open a connection; if it is the shared connection, list the tools over it."""
        started = monotonic()
        restarts = self._restarts.of(key)
        redactor = Redactor()
        try:
            of_caller = caller_values_of(key, len(self._users.references))
            pooled = self._make(key, await self._users.values(owner_of(key), of_caller))
            redactor = pooled.redactor
            has_listed = await self._open(pooled)
        except Exception as error:
            if isinstance(error, InterlockError):
                reason = self._failures.why(error)
            else:  # a server in this process may raise any exception
                _log.exception("starting server %r failed", self.name)
                reason = f"{type(error).__name__} while starting: {error}"
            reason = redactor.redact(reason)
            if isinstance(error, LoginRequired):
                self._users.require_login()
            if isinstance(error, LoginRequired) and owner_of(key):  # not the server's failure
                raise redact_error(error, redactor) from None
            restarts.failed(monotonic(), reason)
            if key == SHARED or (self.is_personal and not self.entries):
                state = state_of(error) or ("down" if self.entries else "failed")
                self._health.set(state, reason)
            wait = self._restarts.wait(key) or None
            raise ServerUnavailable(self.name, reason, retry_after=wait) from error
        restarts.succeeded()
        if has_listed:
            self._start_seconds = monotonic() - started
            self._health.set("ok")
            if self.is_personal:
                self._on_change()  # the tools that this user sees have changed
            self._lists.list_rest()
        await self._standing.restore(pooled)
        return pooled

    def _make(self, key: Key, values: Mapping[str, str] | None) -> PooledClient:
        if key == SHARED or self.is_personal:
            self._lists.note_launch()
        return self._clients.make(key, values, self._failures.lost, self._lists.note_change)

    async def _open(self, pooled: PooledClient) -> bool:
        """Open a connection; return whether the server's items were listed over it."""
        client = pooled.client
        try:
            await client.open()
        except RequestTimeout as error:
            if self._settings is None:
                raise
            raise RequestTimeout(f'{error}; raise "connectTimeout" for a slow server') from None
        if not self._lists.must_list(pooled.key):
            client.adopt_tools(self._lists.tools.listing)
            return False
        try:
            await self._lists.list_all(pooled)
        except BaseException:
            await client.close()
            raise
        return True

    def _note_end(self, pooled: PooledClient) -> None:
        self._dropped.update(pooled.client.dropped)

    def _state_changed(self) -> None:
        self._lists.tools.mark(stale=self._health.state != "ok")
        self._on_change()

    def start_again(self) -> None:
        """Start the server in the background if it is down and the back-off allows a start."""
        if self._pool.shared is None and self._health.state in ("down", "failed"):
            self._start_in_background()

    def _start_in_background(self) -> None:
        health = self._health
        if health.state in ("starting", "disabled") or health.is_closed or self.is_personal:
            return
        with suppress(ServerUnavailable):  # the back-off has not passed
            self._pool.begin(SHARED)

    # Lists

    @property
    def is_due(self) -> bool:
        """Whether the list of tools has expired, or the server may be started again."""
        if self._lists.connection is None:
            return not self.is_personal and not self.entries and self._health.state != "disabled"
        return self._lists.has_expired

    async def refresh(self) -> None:
        """Refresh the list of tools if it has expired.

        A server that has never listed its tools is started again in the background.
        """
        if self._lists.connection is None and not self.entries:
            self._start_in_background()
        await self._lists.refresh()

    async def check_again(self) -> None:
        """Compare the server's lists with the pins again after the pins have changed."""
        await self._lists.check_again()

    @property
    def has_resources(self) -> bool:
        """Whether the server is connected and declares resources."""
        return any(
            pooled.client.capabilities.resources is not None for pooled in self._pool.connections
        )

    async def list_resources(self) -> Listing[Resource]:
        """List the server's resources, from the cache while the server allows caching them.

        Raises:
            ServerUnavailable: The server cannot be started, or its back-off has not passed.
            InterlockError: See `Client.list_resources`.
        """
        client = (await self._shared()).client
        return Listing() if client.capabilities.resources is None else await client.list_resources()

    async def list_resource_templates(self) -> Listing[ResourceTemplate]:
        client = (await self._shared()).client
        if client.capabilities.resources is None:
            return Listing()
        return await client.list_resource_templates()

    async def list_prompts(self) -> Listing[Prompt]:
        client = (await self._shared()).client
        return Listing() if client.capabilities.prompts is None else await client.list_prompts()

    async def follow(self, uri: str) -> None:
        """Subscribe to a resource now, and again over each new connection.

        Raises:
            CapabilityError: The server does not support subscriptions.
            InterlockError: The server is down, or refuses the subscription.
        """
        pooled = await self._shared()
        try:
            await self._standing.follow(pooled, uri)
        except InterlockError as error:
            raise self._failures.redacted(pooled, error) from None

    async def unfollow(self, uri: str) -> None:
        self._standing.unfollow(uri)
        shared = self._pool.shared
        if shared is not None:
            with suppress(InterlockError):
                await shared.client.unsubscribe(uri)

    async def want_log_level(self, level: LogLevel) -> None:
        """Set a legacy server's log level, unless it already logs at a lower one."""
        await self._standing.want_log_level(level, self._pool.connections)

    # Closing

    async def close(self) -> None:
        """Close all connections; calls that wait for a start fail with `ServerUnavailable`."""
        self._health.close()
        await self._lists.close()
        await self._pool.close()
