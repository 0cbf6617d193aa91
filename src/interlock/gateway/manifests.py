"""Plugins: manifests that add operations of one API as tools for the users who installed them.

    plugins/refunds/manifest.json
    {"name": "refunds", "version": "1.0", "mcp_tools": [
        {"name": "refund", "operation_id": "createRefund", "description": "Refund an order."}]}

1. A manifest is data. It sets no URL, header or credential, and may only raise the risk of an
   operation's method.
2. A tool with an invalid entry or a taken name is left out, with the reason; an unreadable
   manifest disables only itself. The API's own server leaves out unknown operations.
3. Only users with an installation can see or call the tools.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock import aio
from interlock.config import Config, OpenApiConfig
from interlock.errors import ConfigError
from interlock.openapi.selection import TOOL_NAME
from interlock.store.database.changes import ChangeFeed
from interlock.store.plugins import PluginStore
from interlock.types import JsonObject

MAX_MANIFEST = 1024 * 1024  # bytes
MANIFEST = "manifest.json"
Stamps: TypeAlias = dict[Path, tuple[int, int, int]]  # time of change, size and inode
_log = logging.getLogger("interlock.gateway")


class PluginTool(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool in a manifest."""

    name: str
    operation_id: str
    description: str = ""
    risk: Literal["read", "write"] | None = None


class _Manifest(Struct, frozen=True):
    name: str
    version: str = ""
    mcp_tools: list[JsonObject] = []


class Plugin(Struct, frozen=True):
    """A manifest that was read.

    Attributes:
        name: The name of the plugin and of its folder.
        version: The version in the manifest.
        tools: The valid tools, which are offered if the API has their operations.
        problems: Why other tools are not offered, by name; "" for the whole manifest.
    """

    name: str
    version: str
    tools: tuple[PluginTool, ...]
    problems: Mapping[str, str]


def read_plugins(folder: Path, taken: frozenset[str]) -> list[Plugin]:
    """Read the manifests of a folder, sorted by name.

    Args:
        folder: The folder that has one folder for each plugin. It may be missing.
        taken: The names of tools in the configuration.
    """
    try:
        folders = sorted(each.parent for each in folder.glob(f"*/{MANIFEST}"))
    except OSError as error:
        _log.error("plugins cannot be listed: %s", error)
        return []
    used = set(taken)
    return [_read(each, used) for each in folders]


def stamps_of(folder: Path) -> Stamps:
    """Return values that change whenever a manifest in a folder does."""
    found: Stamps = {}
    with suppress(OSError):
        for path in folder.glob(f"*/{MANIFEST}"):
            with suppress(OSError):
                status = path.stat()
                found[path] = status.st_mtime_ns, status.st_size, status.st_ino
    return found


def _read(folder: Path, used: set[str]) -> Plugin:
    """Read a manifest; add the names of its tools to `used`."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            content = file.read(MAX_MANIFEST + 1)
        if len(content) > MAX_MANIFEST:
            raise ValueError(f"{MANIFEST} is too large (limit {MAX_MANIFEST:,} bytes)")
        manifest = msgspec.json.decode(content, type=_Manifest)
        if manifest.name != folder.name:
            raise ValueError(f"its name {manifest.name!r} is not the name of its folder")
    except (OSError, ValueError, RecursionError) as error:
        return Plugin(folder.name, "", (), {"": str(error)})
    tools: list[PluginTool] = []
    problems: dict[str, str] = {}
    for number, entry in enumerate(manifest.mcp_tools, 1):
        name = str(entry.get("name") or f"number {number}")
        try:
            tool = msgspec.convert(entry, PluginTool)
            if not TOOL_NAME.fullmatch(tool.name):
                raise ValueError("its name must be 1 to 64 letters, digits, '_' and '-'")
            if tool.name in used:
                raise ValueError("another tool has this name")
        except ValueError as error:
            problems[name] = str(error)
            continue
        used.add(tool.name)
        tools.append(tool)
    return Plugin(manifest.name, manifest.version, tuple(tools), problems)


class Plugins:
    """The plugins of a configuration, and the users who installed them.

    Args:
        found: The manifests.
        server: The API that they add tools to.
        folder: The folder of the manifests; None without plugins.
        stamps: The stamps of the manifests from before they were read.

    Attributes:
        found: The manifests.
    """

    def __init__(
        self,
        found: list[Plugin] | None = None,
        server: str = "",
        folder: Path | None = None,
        stamps: Stamps | None = None,
    ) -> None:
        self.found = found or []
        self._server = server
        self._folder = folder
        self._stamps = stamps
        self._of_tools = {tool.name: each.name for each in self.found for tool in each.tools}
        self._installed: frozenset[tuple[str, str]] = frozenset()  # principal and plugin

    def plugin_of(self, server: str, tool: str) -> str:
        """Return the plugin that a tool belongs to; "" for none."""
        return self._of_tools.get(tool, "") if server == self._server else ""

    def has(self, principal: str, plugin: str) -> bool:
        return (principal, plugin) in self._installed

    @property
    def are_configured(self) -> bool:
        return self._folder is not None

    def have_changed(self) -> bool:
        """Return whether a manifest was added, changed or removed since they were read."""
        return self._folder is not None and stamps_of(self._folder) != self._stamps

    def adopt(self, before: Plugins) -> None:
        """Keep the installations of the earlier configuration."""
        self._installed = before._installed

    async def load(self, store: PluginStore) -> bool:
        """Load the installations; return whether any has changed.

        Raises:
            StoreError: The database does not answer.
        """
        before = self._installed
        self._installed = frozenset((each.user, each.plugin) for each in await store.list())
        return before != self._installed


def with_plugins(config: Config) -> tuple[Config, Plugins]:
    """Add the tools of the plugins to the API that the configuration names.

    Raises:
        ConfigError: The configured server is not an API.
    """
    settings = config.gateway.plugins if config.gateway is not None else None
    if settings is None:
        return config, Plugins()
    key, server = next(
        (key, each)
        for key, each in config.servers.items()
        if (each.namespace or key) == settings.server
    )
    if not isinstance(server, OpenApiConfig):
        raise ConfigError(f'gateway.plugins.server {settings.server!r} has no member "openapi"')
    beside = config.path.parent if config.path is not None else Path()
    folder = beside / settings.folder
    stamps = stamps_of(folder)
    found = read_plugins(folder, frozenset(server.openapi.tools))
    extended = replace(config, servers={**config.servers, key: _extended(server, found)})
    return extended, Plugins(found, settings.server, folder, stamps)


def _extended(server: OpenApiConfig, found: list[Plugin]) -> OpenApiConfig:
    tools: dict[str, Any] = {}
    for tool in (each for plugin in found for each in plugin.tools):
        tools[tool.name] = {"operation": tool.operation_id, "description": tool.description}
    raised = {
        each.name: each.risk for plugin in found for each in plugin.tools if each.risk == "write"
    }
    risk = server.tools.risk
    api = server.openapi
    return replace(
        server,
        openapi=replace(api, tools={**api.tools, **tools}, left_out=dict(_left_out(found))),
        tools=replace(server.tools, risk=replace(risk, by_tool={**raised, **risk.by_tool})),
    )


def _left_out(found: list[Plugin]) -> Iterator[tuple[str, str]]:
    for plugin in found:
        for name, problem in plugin.problems.items():
            where = f"plugin {plugin.name}"
            yield (f"{where}: {name}" if name else where), problem


@asynccontextmanager
async def following(
    feed: ChangeFeed,
    store: PluginStore,
    current: Callable[[], Plugins],
    on_change: Callable[[], None],
    read_again: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Load the installations, and follow changes of these and of the manifests.

    Args:
        feed: The changes of the database.
        store: The installations.
        current: Returns the plugins of the current configuration.
        on_change: Called after a change of installations.
        read_again: Awaited after a change of manifests; reads them again.

    Raises:
        StoreError: The database does not answer.
    """
    await current().load(store)

    async def step(has_changed: bool) -> None:
        if not current().are_configured:
            return
        if await aio.in_thread(current().have_changed):
            await read_again()
        if has_changed and await current().load(store):
            on_change()

    async with feed.follow("plugins", step, _log, "plugins"):
        yield
