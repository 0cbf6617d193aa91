"""Plugins: manifests that offer operations of an HTTP API as tools to users who install them.

    plugins/refunds/manifest.json
    {"name": "refunds", "version": "1.0", "mcp_tools": [
        {"name": "refund", "operation_id": "createRefund", "description": "Refund an order."}]}

1. A manifest is only data. It cannot set a URL, header or credential. It may raise the risk that
   follows from an operation's HTTP method, but not lower it.
2. A tool with an invalid entry or a used name is omitted, with the reason. A manifest that cannot
   be read disables only its own plugin. Unknown operations are omitted when the API is loaded.
3. Only users who have installed a plugin can see or call its tools.
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

MAX_MANIFEST = 1024 * 1024  # bytes of a manifest
MANIFEST = "manifest.json"
Stamps: TypeAlias = dict[Path, tuple[int, int, int]]  # modification time, size and inode
_log = logging.getLogger("interlock.gateway")


class PluginTool(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool that a manifest declares."""

    name: str
    operation_id: str
    description: str = ""
    risk: Literal["read", "write"] | None = None


class _Manifest(Struct, frozen=True):
    name: str
    version: str = ""
    mcp_tools: list[JsonObject] = []


class Plugin(Struct, frozen=True):
    """A plugin, as read from its manifest.

    Attributes:
        name: The name of the plugin and its folder.
        version: The version in the manifest.
        tools: The valid tools. They are offered if the API has their operations.
        problems: Why a tool is not offered, by the tool's name; "" for the whole manifest.
    """

    name: str
    version: str
    tools: tuple[PluginTool, ...]
    problems: Mapping[str, str]


def read_plugins(folder: Path, taken: frozenset[str]) -> list[Plugin]:
    """Read the manifests in a folder, sorted by name.

    Args:
        folder: A folder with one folder for each plugin. It need not exist.
        taken: The tool names that the configuration already uses.
    """
    try:
        folders = sorted(each.parent for each in folder.glob(f"*/{MANIFEST}"))
    except OSError as error:
        _log.error("plugins cannot be listed: %s", error)
        return []
    used = set(taken)
    return [_read(each, used) for each in folders]


def stamps_of(folder: Path) -> Stamps:
    """Return values that change whenever a manifest in the folder changes."""
    found: Stamps = {}
    with suppress(OSError):
        for path in folder.glob(f"*/{MANIFEST}"):
            with suppress(OSError):
                status = path.stat()
                found[path] = status.st_mtime_ns, status.st_size, status.st_ino
    return found


def _read(folder: Path, used: set[str]) -> Plugin:
    """Read a manifest, and add the names of its tools to `used`."""
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
    """A configuration's plugins, and the users who installed each plugin.

    Args:
        found: The plugins, as read from their manifests.
        server: The API server that they add tools to.
        folder: The folder of the plugins; None if plugins are not configured.
        stamps: The manifests' stamps, taken before the manifests were read.

    Attributes:
        found: The plugins, as read from their manifests.
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
        self._installed: frozenset[tuple[str, str]] = frozenset()  # pairs of principal and plugin

    def plugin_of(self, server: str, tool: str) -> str:
        """Return the plugin that a tool belongs to; "" if it belongs to none."""
        return self._of_tools.get(tool, "") if server == self._server else ""

    def has(self, principal: str, plugin: str) -> bool:
        return (principal, plugin) in self._installed

    @property
    def are_configured(self) -> bool:
        return self._folder is not None

    def have_changed(self) -> bool:
        """Return whether a manifest was added, changed or removed since the manifests were read."""
        return self._folder is not None and stamps_of(self._folder) != self._stamps

    def adopt(self, before: Plugins) -> None:
        """Copy the installations from the previous configuration."""
        self._installed = before._installed

    async def load(self, store: PluginStore) -> bool:
        """Load the installations; return whether any installation has changed.

        Raises:
            StoreError: The database is unavailable.
        """
        before = self._installed
        self._installed = frozenset((each.user, each.plugin) for each in await store.list())
        return before != self._installed


def with_plugins(config: Config) -> tuple[Config, Plugins]:
    """Add the plugins' tools to the API server that the configuration names.

    Raises:
        ConfigError: The configured server is not an HTTP API.
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
    """Load the installations, and follow changes of installations and manifests.

    Args:
        feed: Reports changes in the database.
        store: The storage for installations.
        current: Returns the current configuration's plugins.
        on_change: Called after installations have changed.
        read_again: Awaited after manifests have changed, to read them again.

    Raises:
        StoreError: The database is unavailable.
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
