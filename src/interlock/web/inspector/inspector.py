"""Opens, finds and ends the inspections of all users."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Collection
from pathlib import PurePath
from urllib.parse import urlsplit

from msgspec import Struct

from interlock import revisions
from interlock.auth import Principal
from interlock.calls import Caller
from interlock.config import CONFIGURED, HttpServer, ServerConfig, StdioServer
from interlock.errors import ConfigError
from interlock.transports import InProcessServer
from interlock.web.apps.tickets import Tickets
from interlock.web.inspector.inspection import Host, Inspection

MAX_OF_ONE = 8  # open inspections of one person
IDLE = 600.0  # seconds; an inspection without requests for so long is ended
ERAS = ("auto", "legacy", *reversed(revisions.ALL))


class Wanted(Struct, frozen=True, rename={"seen_as": "as"}, forbid_unknown_fields=True):
    """A request to inspect a server.

    Attributes:
        server: The name of a configured server.
        command: A command line that starts a server, instead of `server`; for the local user only.
        url: The URL of a server, instead of `server`; for the local user only.
        era: The requested protocol: a revision, "auto" or "legacy".
        seen_as: The id of the API key whose rights to show; "" shows the caller's rights.
    """

    server: str = ""
    command: str = ""
    url: str = ""
    era: str = "auto"
    seen_as: str = ""


class Inspector:
    """Keeps the inspections of one program.

    Attributes:
        tickets: Serves the documents of inspected apps.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.tickets = Tickets()
        self.is_closing = False
        self._open: dict[str, Inspection] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def found(self) -> list[Inspection]:
        return list(self._open.values())

    @property
    def servers(self) -> dict[str, ServerConfig | InProcessServer]:
        """The configured servers, by their names in addresses."""
        return {
            (each.namespace or key) if isinstance(each, CONFIGURED) else key: each
            for key, each in self.host.servers().items()
        }

    async def open(self, principal: Principal, wanted: Wanted) -> Inspection | None:
        """Return the person's open inspection of a server, or begin an inspection.

        Raises:
            ConfigError: The era is unknown, or a program or URL is not permitted or not valid.
            UnknownKey: No API key has this id.
        """
        if wanted.era not in ERAS:
            raise ConfigError(f"unknown era {wanted.era!r}; use one of {', '.join(ERAS)}")
        name, server = self._found(principal, wanted)
        if server is None:
            return None
        for each in self._of(principal):
            seen_as = each.seen_as[0] if each.seen_as is not None else ""
            if (each.connection.name, seen_as) == (name, wanted.seen_as):
                if each.connection.server == server:
                    self.touch(each)
                    return each
                self.end(each)
        found = None
        if wanted.seen_as and self.host.principal_of is not None:
            found = wanted.seen_as, Caller(await self.host.principal_of(wanted.seen_as))
        if len(mine := self._of(principal)) >= MAX_OF_ONE:
            self.end(mine[0])
        caller = Caller(None if self.host.is_local else principal, surface="inspector")
        inspection = Inspection(self.host, name, server, caller, found)
        self._open[inspection.id] = inspection
        inspection.connection.era = wanted.era
        inspection.connection.begin()
        self.touch(inspection)
        return inspection

    def _found(
        self, principal: Principal, wanted: Wanted
    ) -> tuple[str, ServerConfig | InProcessServer | None]:
        if not (wanted.command or wanted.url):
            # After a reload, the page names even an inspected command or URL by its generated name.
            begun = {each.connection.name: each.connection.server for each in self._of(principal)}
            return wanted.server, (begun | self.servers).get(wanted.server)
        if not self.host.is_local:
            raise ConfigError("only configured servers can be inspected here")
        if wanted.url:
            host = urlsplit(wanted.url).hostname or "url"
            return host.replace(":", "-"), HttpServer(url=wanted.url)
        try:
            command, *args = shlex.split(wanted.command)
        except ValueError as error:
            raise ConfigError(f"invalid command line: {error}") from None
        name = PurePath(args[-1] if args else command).stem.replace(":", "-") or "command"
        return name, StdioServer(command=command, args=tuple(args))

    def find(self, principal: Principal, id: str) -> Inspection | None:
        """Return the person's inspection with this id; None if it does not exist."""
        found = self._open.get(id)
        if found is None or found not in self._of(principal):
            return None
        self.touch(found)
        return found

    def _of(self, principal: Principal) -> list[Inspection]:
        def is_own(each: Inspection) -> bool:
            owner = each.caller.principal
            return owner is None or owner.identity == principal.identity

        return [each for each in self._open.values() if is_own(each)]

    def touch(self, inspection: Inspection) -> None:
        timer = self._timers.pop(inspection.id, None)
        if timer is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[inspection.id] = loop.call_later(IDLE, self.end, inspection)

    # Ending

    def end(self, inspection: Inspection) -> None:
        if self._open.pop(inspection.id, None) is None:
            return
        self._timers.pop(inspection.id).cancel()
        task = asyncio.ensure_future(inspection.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def end_credentials(self, keys: Collection[str]) -> None:
        for each in [*self._open.values()]:
            principal = each.caller.principal
            if principal is not None and principal.ends_with(keys):
                self.end(each)

    def drain(self) -> None:
        self.is_closing = True
        for each in [*self._open.values()]:
            self.end(each)

    async def close(self) -> None:
        self.drain()
        if self._closing:
            await asyncio.wait(self._closing)
