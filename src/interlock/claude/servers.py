"""Claude Code's servers: toolboxes behind facades, and servers to which it connects itself."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Raw

from interlock import config
from interlock.calls import Call, Entry
from interlock.claude import names
from interlock.claude.facade import Facade, FacadeHost, OwnFacade, RpcError
from interlock.config import HttpServer, ServerConfig, StdioServer
from interlock.config.gateway import BUILT_IN, OWN
from interlock.errors import ConfigError
from interlock.schema.portable import portable
from interlock.toolbox import ServerStatus, Toolbox
from interlock.transports import InProcessServer
from interlock.types import JsonObject, Tool

INVALID_REQUEST = -32600

Server = ServerConfig | InProcessServer


class Servers:
    """All servers that Claude Code uses, by name.

    Args:
        host: The state that all facades share.
        direct: Configurations of the servers to which Claude Code itself connects, in the format
            of Claude Code.

    Attributes:
        problems: Why Claude Code cannot connect to a server, by Claude Code's name for it.
    """

    def __init__(self, host: FacadeHost, direct: dict[str, JsonObject]) -> None:
        self.problems: dict[str, str] = {}
        self._host = host
        self._direct = direct
        self._facades: dict[str, Facade] = {}  # by Claude Code's name

    def __contains__(self, name: str) -> bool:
        return names.server_name(name) in self._facades or name in self._direct

    def __iter__(self) -> Iterator[Facade]:
        return iter(self._facades.values())

    @property
    def program_names(self) -> list[str]:
        """Claude Code's names for the servers that run behind facades here."""
        return [*self._facades]

    @property
    def has_direct(self) -> bool:
        """Whether Claude Code itself connects to any server."""
        return bool(self._direct)

    @property
    def tool_count(self) -> int:
        return sum(len(each.entries) for each in self)

    @property
    def status(self) -> dict[str, ServerStatus]:
        """The status of every server, by name."""
        found = {each.name: each.toolbox.status[each.name] for each in self if each.name != OWN}
        for name in self._direct:
            reason = str(self.problems.get(names.server_name(name), ""))
            found[name] = ServerStatus(name, "failed" if reason else "ok", reason)
        return found

    def add(self, toolbox: Toolbox) -> None:
        """Add a toolbox's servers. All toolboxes must have the same result budget."""
        for name in toolbox.status:
            facade = Facade(name, toolbox, self._host)
            self._facades[facade.program_name] = facade
        self._facades.setdefault(OWN, OwnFacade(OWN, toolbox, self._host))

    def remove(self, name: str) -> Toolbox | None:
        """Remove a server; return its toolbox, or None for a direct server.

        Raises:
            ConfigError: No server has this name.
        """
        if name in self._direct:
            del self._direct[name]
            return None
        facade = self._facades.pop(names.server_name(name), None)
        if facade is None:
            known = ", ".join(self.status) or "none"
            raise ConfigError(f"no server {name!r}; the servers are: {known}")
        return facade.toolbox

    def configuration(self, without: Sequence[str] = ()) -> JsonObject:
        """Return the params of `mcp_set_servers`; leave out the names in `without`."""
        ours: JsonObject = {
            name: {"type": "sdk", "name": name} for name in self._facades if name not in without
        }
        return {**ours, **{names.server_name(name): each for name, each in self._direct.items()}}

    def outdated(self) -> list[str]:
        """Return Claude Code's names of servers whose tools it must list again."""
        return [name for name, each in self._facades.items() if not each.is_current]

    def forget_lists(self, program_names: Iterable[str]) -> None:
        for name in program_names:
            if name in self._facades:
                self._facades[name].forget_list()

    # Tools

    def answer(self, server: str, method: str, params: Raw) -> Coroutine[Any, Any, bytes]:
        """Answer a JSON-RPC request from Claude Code.

        Raises:
            RpcError: The request must be answered with an error.
        """
        facade = self._facades.get(server)
        if facade is None:
            raise RpcError(INVALID_REQUEST, f"no server {server!r}")
        return facade.answer(method, params)

    def address(self, tool: str) -> str:
        parts = names.split(tool)
        if parts is None:
            return f"{BUILT_IN}:{tool}"
        server, name = parts
        facade = self._facades.get(server)
        if facade is None:
            direct = {names.server_name(each): each for each in self._direct}
            return f"{direct.get(server, server)}:{name}"
        entry = facade.entries.get(name)
        return entry.address if entry is not None else f"{facade.name}:{name}"

    def arguments(self, tool: str, given: JsonObject) -> JsonObject:
        """Return a call's arguments with the server's names; `tool` is the program's name."""
        server, name = names.split(tool) or ("", "")
        facade = self._facades.get(server)
        entry = facade.entries.get(name) if facade is not None else None
        return given if entry is None else portable(entry.input_schema).to_server(given)

    def has_tool(self, address: str) -> bool:
        """Return whether a server behind a facade has the tool with this address."""
        return self._find(address) is not None

    def _find(self, address: str) -> Entry | None:
        facade = self._facade_of(address)
        entries = facade.entries.values() if facade is not None else ()
        return next((each for each in entries if each.address == address), None)

    def _facade_of(self, address: str) -> Facade | None:
        return self._facades.get(names.server_name(address.partition(":")[0]))

    def converted(self, address: str, arguments: JsonObject) -> JsonObject:
        """Return arguments as the tool with this address will get them."""
        facade, entry = self._facade_of(address), self._find(address)
        if facade is None or entry is None:
            return arguments
        call = Call(entry, arguments)
        facade.toolbox.convert_arguments(call)
        return call.arguments

    def entry(self, address: str) -> Entry:
        """Return the tool with this address; if no toolbox has it, an entry without a schema."""
        if (found := self._find(address)) is not None:
            return found
        server, _, tool = address.partition(":")
        definition = Tool(name=tool, input_schema={"type": "object"})
        return Entry(server, definition, address, tool, b'{"type":"object"}')


def direct_configuration(
    servers: Mapping[str, Server] | Toolbox | None, direct: Sequence[str]
) -> dict[str, JsonObject]:
    """Return the configurations of direct servers in Claude Code's format.

    Raises:
        ConfigError: A server is not configured, or has settings that Claude Code lacks.
    """
    found: dict[str, JsonObject] = {}
    for name in direct:
        server = None if isinstance(servers, Toolbox) or servers is None else servers.get(name)
        if isinstance(server, StdioServer):
            program = config.resolve(server, os.environ)
            if program.cwd is not None:
                raise ConfigError(
                    f"direct server {name!r} has a cwd, which Claude Code does not support"
                )
            args, env = [*program.args], {**program.env}
            found[name] = {"type": "stdio", "command": program.command, "args": args, "env": env}
        elif isinstance(server, HttpServer):
            url = config.resolve(server, os.environ)
            found[name] = {"type": url.type, "url": url.url, "headers": {**url.headers}}
        else:
            raise ConfigError(f"direct server {name!r} is not a configured server")
    return found
