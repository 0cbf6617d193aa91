"""One server of a toolbox: started, watched, restarted, and never able to harm the others.

States: `starting` -> `ok` <-> `down` (it worked once; its last good list is kept), or `failed`
(it never did), or `disabled`. A server with a URL that does not let us in is `needs login`,
`expired` (log in again) or `refused`. A server that is down is started again by the next call,
one that has never given a list by the next `refresh`; neither sooner than the back-off allows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from copy import copy
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Unpack

from msgspec import Struct
from msgspec.structs import replace

from interlock import schema
from interlock.client import Client, ClientOptions
from interlock.client.listing import Listing
from interlock.config import HttpServer, ServerConfig, StdioServer
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
    SchemaError,
    ServerUnavailable,
    StreamEnded,
    Unreachable,
)
from interlock.protocol import ProgressHandler
from interlock.protocol.envelope import encode
from interlock.redaction import Redactor
from interlock.revisions import METHOD_NOT_FOUND
from interlock.toolbox import names
from interlock.toolbox.connect import make_client
from interlock.toolbox.hints import with_hint
from interlock.transports import InProcessServer
from interlock.types import CallToolResult, Tool

if TYPE_CHECKING:
    from interlock.transports.http_pool import HttpPool

MAX_TOOLS = 1_000
MAX_DESCRIPTION = 8 * 1024  # characters
DEFAULT_CONCURRENCY = 16  # calls at once of a server in this program
LIST_TTL = 300.0  # seconds, when the server does not say
MAX_REFRESHES = 3  # in a row, for a server that changes its tools all the time
REFRESH_GAP = 1.0  # seconds between two lists of a server that says that it changes
REFRESH_PAUSE = 30.0  # seconds after a list that could not be renewed
MAX_HANGS = 3  # calls in a row without a good answer; then the server is started anew

# Restarts: at once, then after 0.5 s, 1 s, 2 s ... 30 s; at most 5 a minute.
FIRST_BACKOFF = 0.5
LONGEST_BACKOFF = 30.0
MAX_STARTS = 5
STARTS_WINDOW = 60.0

State = Literal["starting", "ok", "down", "failed", "disabled", "needs login", "expired", "refused"]
_log = logging.getLogger("interlock.toolbox")


class Entry(Struct, frozen=True):
    """One tool of a toolbox."""

    server: str
    tool: Tool
    address: str  # "server:name", for people, logs and events
    wire_name: str  # for models: [A-Za-z0-9_-]{1,64}, see `names`
    input_schema: bytes  # the tool's JSON Schema, encoded
    stale: bool = False  # its server is down; this is from its last good list


class ServerStatus(Struct, frozen=True):
    """How one server is, and why.

    `reason` is "" when all is well. `missing` has a line for each tool that the server has
    and the toolbox does not offer, `flagged` one for each whose results break the protocol.
    `dropped` counts its messages that were of no use, by reason, over all its starts.
    """

    name: str
    state: State
    reason: str = ""
    tools: int = 0
    missing: tuple[str, ...] = ()
    flagged: tuple[str, ...] = ()
    dropped: Mapping[str, int] = {}
    revision: str = ""
    server_info: str = ""  # its name and version, as it says
    start_seconds: float = 0.0


class Upstream:
    """One server. Nothing in here raises for what the server does, except `call`.

    Args:
        name: Its name in the toolbox, and in addresses.
        server: How to reach it.
        environ: Where `${VAR}` in the configuration is looked up.
        pool: Gives the connections that all servers with a URL share.
        on_change: Told when `entries` or `status` have changed.
        options: Handlers for what the server asks; see `ClientOptions`.
    """

    def __init__(
        self,
        name: str,
        server: ServerConfig | InProcessServer,
        *,
        environ: Mapping[str, str],
        pool: Callable[[], HttpPool],
        on_change: Callable[[], None],
        **options: Unpack[ClientOptions],
    ) -> None:
        self.name = name
        self.entries: tuple[Entry, ...] = ()
        self._server = server
        self._environ = environ
        self._pool = pool
        self._on_change = on_change
        self._options = options
        self._client: Client | None = None
        self._state: State = "starting"
        self._reason = ""
        self._secrets = Redactor()
        self._missing: tuple[str, ...] = ()
        self._listed_until = 0.0
        self._changes = 0  # how often the server has said that its tools changed
        self._start_seconds = 0.0
        self._validators: dict[str, schema.Validator] = {}
        self._flagged: dict[str, tuple[int, str]] = {}  # wrong results of a tool, and the last one
        self._dropped: Counter[str] = Counter()  # of clients that have ended
        self._starts: deque[float] = deque()
        self._failures = 0
        self._hangs = 0
        self._not_before = 0.0
        self._closed = False
        self._starting: asyncio.Task[Client] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_at = -REFRESH_GAP  # the last time that it said that its tools changed
        self._closing: set[asyncio.Task[None]] = set()
        self._calls: dict[Client, int] = {}  # that are under way
        self._settings = server if isinstance(server, StdioServer | HttpServer) else None
        at_once = self._settings.concurrency if self._settings else DEFAULT_CONCURRENCY
        self._slots = asyncio.Semaphore(at_once)

    @property
    def status(self) -> ServerStatus:
        """How it is now."""
        client = self._client
        info = client.server_info if client else None
        return ServerStatus(
            name=self.name,
            state=self._state,
            reason=self._reason,
            tools=len(self.entries),
            missing=self._missing,
            flagged=tuple(
                f"tool {tool!r}: {times} wrong results, the last one: {error}"
                for tool, (times, error) in self._flagged.items()
            ),
            dropped=dict(self._dropped + Counter(client.dropped if client else {})),
            revision=client.revision if client else "",
            server_info=f"{info.name} {info.version}".strip() if info else "",
            start_seconds=self._start_seconds,
        )

    # Starting

    async def start(self, turns: asyncio.Semaphore | None = None) -> None:
        """Start it and list its tools; what goes wrong is in `status`.

        Args:
            turns: What a program waits for, so that not too many start at once.
        """
        self._closed = False
        if self._settings is not None and not self._settings.enabled:
            self._state, self._reason = "disabled", "disabled in the configuration"
            return
        is_program = isinstance(self._settings, StdioServer)
        async with turns if turns is not None and is_program else nullcontext():
            with suppress(ServerUnavailable):  # the log and the status say so already
                await self._ready()

    async def _ready(self) -> Client:
        """Give the running client; start one if there is none. One start serves all callers."""
        if self._client is not None:
            return self._client
        if self._state == "disabled" or self._closed:
            raise ServerUnavailable(self.name, self._reason)
        starting = self._begin()
        await asyncio.wait({starting})  # who stops waiting does not stop the start
        if starting.cancelled():
            raise ServerUnavailable(self.name, self._reason)
        return starting.result()

    def _begin(self) -> asyncio.Task[Client]:
        if self._starting is None:
            self._check_backoff()
            self._starting = asyncio.create_task(self._start())
            self._starting.add_done_callback(self._started)
        return self._starting

    def _started(self, task: asyncio.Task[Client]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # told by `status`, even if nobody waits any more

    def _check_backoff(self) -> None:
        now = monotonic()
        while self._starts and self._starts[0] <= now - STARTS_WINDOW:
            self._starts.popleft()
        wait = self._not_before - now
        if len(self._starts) >= MAX_STARTS:
            wait = max(wait, self._starts[0] + STARTS_WINDOW - now)
        if wait > 0:
            raise ServerUnavailable(self.name, f"{self._reason}; next try in {wait:.1f} s")
        self._starts.append(now)

    async def _start(self) -> Client:
        started = monotonic()
        try:
            client = await self._connect()
            try:
                listing = await _list_tools(client)
                client.check_open()  # it may have answered and gone away
            except BaseException:
                await client.close()
                raise
        except Exception as error:
            if isinstance(error, InterlockError):
                reason = self._why(error)
            else:  # from the program that the server is a part of
                _log.exception("starting server %r failed", self.name)
                reason = f"{type(error).__name__} while starting: {error}"
            self._fail(reason, _state_of(error))
            raise ServerUnavailable(self.name, self._reason) from error
        self._start_seconds = monotonic() - started
        self._client = client
        self._failures = self._hangs = 0
        self._install_tools(listing)
        self._set_state("ok", "")
        return client

    async def _connect(self) -> Client:
        client: Client
        options: ClientOptions = {
            **self._options,
            "on_list_changed": self._list_changed,
            "on_loss": lambda error: self._on_loss(client, str(error)),
        }
        client, self._secrets = make_client(self._server, self._environ, self._pool, options)
        try:
            await client.open()
        except RequestTimeout as error:
            if self._settings is None:
                raise
            is_shorter = self._settings.timeout < self._settings.connect_timeout
            setting = "timeout" if is_shorter else "connectTimeout"
            raise RequestTimeout(f'{error}; "{setting}" gives a slow server longer') from None
        return client

    # Failing

    def _on_loss(self, client: Client, reason: str) -> None:
        """Note that a client is of no use any more. The calls that it has go on, if they can."""
        if client is not self._client:
            return
        self._client = None
        self._dropped.update(client.dropped)
        if client not in self._calls:
            self._close_later(client)
        self._not_before = monotonic()
        self._set_state("down", reason)

    def _close_later(self, client: Client) -> None:
        closing = asyncio.create_task(client.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _fail(self, reason: str, state: State | None) -> None:
        self._failures += 1
        backoff = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** (self._failures - 1))
        self._not_before = monotonic() + backoff
        self._set_state(state or ("down" if self.entries else "failed"), reason)

    def _why(self, error: InterlockError) -> str:
        return with_hint(error, self.name, self._server)

    def _fit_for_models(self, error: InterlockError) -> InterlockError:
        """Hide secrets in what a server said when it failed: the text goes to the model."""
        clean = copy(error)
        for name, value in vars(error).items():
            setattr(clean, name, self._hidden(value))
        clean.args = self._hidden(error.args)
        if isinstance(clean, AuthError):
            clean.args = (self._secrets.redact(self._why(error)),)
        return clean

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._secrets.redact(value)
        if isinstance(value, tuple):
            return tuple(map(self._hidden, value))
        if isinstance(value, list):
            return [*map(self._hidden, value)]
        if isinstance(value, dict):
            return {self._hidden(key): self._hidden(each) for key, each in value.items()}
        return value

    def _set_state(self, state: State, reason: str) -> None:
        reason = self._secrets.redact(reason)
        if (state, reason) == (self._state, self._reason):
            return
        self._state, self._reason = state, reason
        stale = state != "ok"
        self.entries = tuple(replace(each, stale=stale) for each in self.entries)
        if state != "ok":
            _log.warning("server %r %s: %s", self.name, state, reason)
        self._on_change()

    # Tools

    def _list_changed(self, kind: str) -> None:
        if kind == "tools":
            self._listed_until = 0.0
            self._changes += 1
            if self._refreshing is None:
                self._refreshing = asyncio.create_task(self._refresh_soon())
                self._refreshing.add_done_callback(self._refreshed)

    async def _refresh_soon(self) -> None:
        wait = self._refreshed_at + REFRESH_GAP - monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        self._refreshed_at = monotonic()
        await self.refresh()

    def _refreshed(self, _: asyncio.Task[None]) -> None:
        self._refreshing = None

    @property
    def is_due(self) -> bool:
        """Whether `refresh` has something to do."""
        if self._client is None:
            return not self.entries and self._state != "disabled"
        return monotonic() >= self._listed_until

    async def refresh(self) -> None:
        """Ask for the tools again if the list is not fresh.

        A server that has never given one is started again, which nobody waits for.
        """
        if self._client is None and not self.entries:
            self._try_again()
        for _ in range(MAX_REFRESHES):
            client, changes = self._client, self._changes
            if client is None or monotonic() < self._listed_until:
                return
            try:
                listing = await _list_tools(client)
            except InterlockError as error:
                # The last good list stays.
                reason = self._secrets.redact(str(error))
                _log.warning("server %r: tools not refreshed: %s", self.name, reason)
                self._note_failure(client, error)
                self._listed_until = monotonic() + REFRESH_PAUSE
                return
            if client is self._client:
                self._install_tools(listing)
                self._on_change()
            if changes != self._changes:  # told of a change while the list was on its way
                self._listed_until = 0.0

    def _try_again(self) -> None:
        if self._state in ("starting", "disabled") or self._closed:
            return
        with suppress(ServerUnavailable):  # not yet
            self._begin()

    def _install_tools(self, listing: Listing[Tool]) -> None:
        self._listed_until = monotonic() + (listing.ttl or LIST_TTL)
        self._validators.clear()
        self._flagged.clear()
        missing = [*listing.skipped]
        if listing.truncated:
            missing.append(listing.truncated)
        entries: list[Entry] = []
        for tool in listing:
            if len(entries) == MAX_TOOLS:
                missing.append(f"the list is cut after {MAX_TOOLS} tools of {len(listing)}")
                break
            try:
                entries.append(self._entry(tool))
            except (SchemaError, InvalidArguments) as error:
                missing.append(f"tool {tool.name!r}: {error}")
        self.entries = tuple(entries)
        self._missing = tuple(missing)

    def _entry(self, tool: Tool) -> Entry:
        if not tool.name:
            raise InvalidArguments("it has no name")
        if self._settings is not None and not self._settings.tools.admits(tool.name):
            raise InvalidArguments("not allowed by the configuration")
        encoded = encode(tool.input_schema)
        schema.check_tool_input(encoded)
        self._validators[tool.name] = schema.compile(encoded)
        if len(tool.description) > MAX_DESCRIPTION:
            tool = replace(tool, description=tool.description[:MAX_DESCRIPTION] + " [cut]")
        return Entry(
            server=self.name,
            tool=tool,
            address=names.address(self.name, tool.name),
            wire_name=names.wire_name(self.name, tool.name),
            input_schema=encoded,
        )

    # Calling

    async def call(
        self,
        entry: Entry,
        arguments: Mapping[str, Any],
        *,
        timeout: float | None = None,
        progress: ProgressHandler | None = None,
    ) -> CallToolResult:
        """Check the arguments and call the tool; starts the server if it is down.

        Raises:
            InvalidArguments: They do not fit; the tool was not called.
            ServerUnavailable: It cannot be started, or not yet again.
            InterlockError: As `Client.call_tool`.
        """
        self._check_arguments(entry, arguments)
        async with self._slots:
            client = await self._ready()
            self._calls[client] = self._calls.get(client, 0) + 1
            try:
                result = await client.call_tool(
                    entry.tool.name,
                    arguments,
                    timeout=timeout,
                    progress=progress,
                    idempotent=self._may_repeat(entry),
                )
            except InterlockError as error:
                self._note_failure(client, error)
                fit = self._fit_for_models(error)
                if isinstance(error, RemoteProtocolError) and client is self._client:
                    self._flag(entry.tool.name, fit)
                raise fit from None
            finally:
                self._call_finished(client)
        self._hangs = 0
        if self._state != "ok" and client is self._client:
            self._set_state("ok", "")
        return result

    def _call_finished(self, client: Client) -> None:
        """Count a call off; a client that was given up is closed after its last one."""
        self._calls[client] -= 1
        if not self._calls[client]:
            del self._calls[client]
            if client is not self._client and not self._closed:
                self._close_later(client)

    def _flag(self, tool: str, error: InterlockError) -> None:
        times, _ = self._flagged.get(tool, (0, ""))
        self._flagged[tool] = times + 1, str(error)

    def _may_repeat(self, entry: Entry) -> bool:
        return self._settings is not None and self._settings.tools.may_repeat(entry.tool.name)

    def _note_failure(self, client: Client, error: InterlockError) -> None:
        """Draw from a call's failure what it says about the server."""
        if client is not self._client:
            return
        if isinstance(error, AuthError):
            if error.status == 401:  # else it is about the tool
                self._set_state(_state_of(error) or "refused", self._why(error))
        elif isinstance(error, Unreachable):  # over HTTP nobody else notices
            self._on_loss(client, str(error))
        elif _is_no_answer(error):
            self._hangs += 1
            if self._hangs >= MAX_HANGS:
                reason = f"no answer to {MAX_HANGS} calls in a row; the last one: {error}"
                if isinstance(self._settings, HttpServer):
                    self._on_loss(client, reason)  # its calls have nothing to do with each other
                else:
                    client.abort(reason)

    def _check_arguments(self, entry: Entry, arguments: Mapping[str, Any]) -> None:
        validator = self._validators.get(entry.tool.name)
        errors = validator.errors(arguments) if validator else []
        if errors:
            raise InvalidArguments(f"{entry.address}: {'; '.join(errors)}")

    # Closing

    async def close(self) -> None:
        """End the server. What waits for its start is told that it is not available."""
        self._closed = True
        if self._state != "disabled":
            self._state, self._reason = "down", "the toolbox is closed"
        for task in (self._starting, self._refreshing):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        clients = set(self._calls)
        if self._client is not None:
            clients.add(self._client)
            self._dropped.update(self._client.dropped)
        self._client = None
        for client in clients:
            self._close_later(client)
        if self._closing:
            await asyncio.wait(self._closing)


def _state_of(error: Exception) -> State | None:
    """Give the state of a server that does not let us in; None for other errors."""
    if isinstance(error, LoginRequired):
        return "expired" if isinstance(error, LoginExpired) else "needs login"
    return "refused" if isinstance(error, AuthError) else None


def _is_no_answer(error: InterlockError) -> bool:
    """Whether there was none, or one that is not of this protocol. 429 only says: later."""
    if isinstance(error, HttpError):
        return error.status != 429
    return isinstance(error, RequestTimeout | StreamEnded)


async def _list_tools(client: Client) -> Listing[Tool]:
    try:
        return await client.list_tools()
    except RemoteError as error:
        if error.code == METHOD_NOT_FOUND and client.capabilities.tools is None:
            return Listing()  # a server of resources or prompts only
        raise
