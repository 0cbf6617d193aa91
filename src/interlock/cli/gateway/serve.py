"""`interlock serve`: serve the configured servers as one MCP endpoint."""

from __future__ import annotations

import gc
import json
import logging
import os
import stat
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click
from msgspec.structs import replace

from interlock.cli import config_option
from interlock.cli.log import open_log
from interlock.cli.terminal import complain, say, warn
from interlock.errors import ConfigError, InterlockError, SpawnError
from interlock.gateway.serving.service_manager import ServiceManager
from interlock.gateway.serving.worker import Worker
from interlock.text.urls import origin

if TYPE_CHECKING:
    import asyncio

    from interlock.config import Config
    from interlock.config.gateway import Address
    from interlock.gateway.assembly import Assembly
    from interlock.gateway.serving.http import Served
    from interlock.gateway.serving.listeners import Listeners
    from interlock.toolbox import ServerStatus, Toolbox

    ServeHttp = Callable[..., Coroutine[Any, Any, None]]

YOUNG_OBJECTS = 10_000  # new objects between two runs of the garbage collector
MANY_TOOLS = 500  # further tools whose definitions are taken from the garbage collector at once


@click.command()
@config_option.config_option
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Listen here, not at gateway.listen or 127.0.0.1:8080; port 0 picks a free port.",
)
@click.option(
    "--admin",
    metavar="HOST:PORT",
    help="Serve the admin API and the health checks here, not at gateway.admin.listen.",
)
@click.option("--stdio", is_flag=True, help="Serve the client that starts this command.")
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(1, 64),
    default=1,
    help="Serve with N processes; this needs PostgreSQL and a stored key.",
)
@click.option("--view", metavar="NAME", default="", help="Serve this view only.")
@click.option(
    "--check",
    is_flag=True,
    help="Check the file, print its problems and the changes that it would make, and exit.",
)
@click.option(
    "--start-servers",
    is_flag=True,
    help="With --check: start the servers, to check the names of tools and arguments, too.",
)
def serve(
    config: Path | None,
    http: str | None,
    admin: str | None,
    stdio: bool,
    workers: int,
    view: str,
    check: bool,
    start_servers: bool,
) -> int:
    """Serve the configured servers as one MCP endpoint that is safe to share.

    Callers need a key; see `interlock keys`. On loopback, if no key is stored, one is created for
    this run. Ends on SIGTERM or Ctrl-C after the running calls; SIGHUP reads the file again.

    \b
    Example:
      interlock serve
      interlock serve --config gateway.json --http 127.0.0.1:9000
      interlock serve --stdio --view support
    """
    not_stdio = {"--http": http is not None, "--admin": admin is not None, "--workers": workers > 1}
    if stdio and any(not_stdio.values()):
        option = next(name for name, is_given in not_stdio.items() if is_given)
        raise click.UsageError(f"{option} and --stdio exclude each other")
    if start_servers and not check:
        raise click.UsageError("--start-servers is for --check; a server starts when it is served")
    open_log()  # problems at the start are printed below
    address = None if http is None else _address("--http", http)
    load = partial(_load, config, set(), None if admin is None else _address("--admin", admin))
    loaded = load()
    _check_use(loaded, view, stdio=stdio)
    if check:
        from interlock.cli.gateway.serve_check import check_configuration

        return check_configuration(loaded, start_servers=start_servers)
    worker, manager = Worker.of_environment(), ServiceManager.of_environment()
    if workers > 1 and worker is None:
        return _supervise(loaded, address, workers, manager)
    with _reaper_of(loaded):
        if stdio:
            from interlock.transports.pipes import take_standard_streams

            source, target = take_standard_streams()
            _run(_serve_stdio(load, loaded, source, target, view))
        else:
            _run(_serve_http(load, loaded, address, view, worker, manager))
    return 0


def _check_use(config: Config, view: str, *, stdio: bool) -> None:
    if view and view not in (config.gateway.views if config.gateway is not None else {}):
        raise ConfigError(f"no view {view!r} in {config.path or 'the configuration'}")
    if not stdio and config.gateway is not None and config.gateway.audit.mode == "off":
        raise ConfigError(f'{config.path}: gateway.audit.mode is "off", which is for --stdio only')


def _supervise(
    config: Config, address: Address | None, workers: int, manager: ServiceManager
) -> int:
    """Start this command once for each worker, and hand them the connections."""
    import asyncio
    import os
    import sys

    from interlock.config import gateway_reading
    from interlock.gateway.serving.listeners import DEFAULT, address_of
    from interlock.gateway.serving.supervisor import WorkerProcesses
    from interlock.server.http.listening import bound
    from interlock.store.database.location import find

    settings = gateway_reading.resolve(config, os.environ)
    if isinstance(find(settings.database or None), Path):
        raise ConfigError(
            "--workers needs PostgreSQL, as gateway.database; a SQLite file is for one process"
        )
    command = [sys.executable, "-m", "interlock", *sys.argv[1:]]
    with bound(address or settings.listen or DEFAULT) as listener:
        supervisor = WorkerProcesses(
            listener,
            command,
            workers,
            manager=manager,
            announce=lambda: say(f"{workers} workers serve http://{address_of(listener)}"),
            complain=warn,
        )
        return asyncio.run(supervisor.run())


@contextmanager
def _reaper_of(config: Config) -> Iterator[None]:
    """Start the process that starts server programs; it starts while the gateway is imported."""
    from interlock.config import StdioServer
    from interlock.transports.reaper import reaper

    with ExitStack() as stack:
        if any(isinstance(each, StdioServer) for each in config.servers.values()):
            with suppress(SpawnError):  # each server reports that it cannot be started
                stack.enter_context(reaper.running())
        yield


def _load(path: Path | None, asked: set[str], admin: Address | None) -> Config:
    """Load the configuration, with another address of the admin API if one is given."""
    from interlock.config.gateway import GatewaySettings

    config = config_option.load(path, asked)
    if admin is None:
        return config
    settings = replace(config.gateway or GatewaySettings(), admin=admin)
    return replace(config, gateway=settings)


def _address(option: str, text: str) -> Address:
    from interlock.config.gateway import Address

    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (host and port.isascii() and port.isdecimal() and int(port) < 65536):
        raise click.UsageError(f"{option} {text!r} is not HOST:PORT, such as 127.0.0.1:8080")
    return Address(host, int(port))


def _run(work: Coroutine[Any, Any, None]) -> None:
    import asyncio

    # Imported modules and running calls are many objects, of which hardly any become garbage that
    # only the collector finds.
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        from uvloop import new_event_loop
    except ImportError:  # uvloop is optional and only makes the gateway faster
        asyncio.run(work)
        return
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(work)


async def _serve_http(
    load: Callable[[], Config],
    config: Config,
    address: Address | None,
    view: str,
    worker: Worker | None,
    manager: ServiceManager,
) -> None:
    from interlock.aio import beside, in_thread
    from interlock.gateway.assembly import Assembly
    from interlock.gateway.serving.listeners import listeners, listeners_of

    async with Assembly.open(config) as assembly:
        assembly.read = load
        callers, settings = assembly.services.callers, assembly.parts.settings
        with (
            (
                listeners(settings, callers, address)
                if worker is None
                else listeners_of(worker, settings, callers)
            ) as bound,
            _key_file(assembly, bound) as key_file,
        ):
            # The servers start while the rest of the gateway is being imported.
            importing = beside(in_thread(partial(_import_http, config)))
            running = assembly.server.running()
            async with importing as imported, running, assembly.exporting():
                serve_http = await imported
                await serve_http(
                    assembly,
                    bound,
                    view=view,
                    manager=manager,
                    announce=partial(_announce, assembly.server.toolbox, worker, key_file),
                    announce_servers=lambda: _say_servers(assembly.server.toolbox),
                    reload=_Reloading(assembly, load, manager).begin,
                )


def _import_http(config: Config) -> ServeHttp:
    """Import `serve_http`, and the pages that a configuration needs; return `serve_http`."""
    from interlock.gateway.serving.http import serve_http
    from interlock.web.board import Board
    from interlock.web.inspector.gateway_inspector import GatewayInspector

    chat = None
    if config.gateway is not None and config.gateway.chat is not None:
        from interlock.web.gateway_chat import GatewayChat

        chat = GatewayChat
    gc.collect()  # remove garbage of the imports now, while no call waits
    return partial(serve_http, board=Board, chat=chat, inspector=GatewayInspector)


async def _serve_stdio(
    load: Callable[[], Config], config: Config, source: int, target: int, view: str
) -> None:
    from interlock.gateway.assembly import Assembly
    from interlock.gateway.serving.stdio import serve_stdio

    async with Assembly.open(config) as assembly:
        reload = _Reloading(assembly, load, ServiceManager()).begin
        async with assembly.exporting():
            await serve_stdio(assembly.server, source, target, view=view, reload=reload)


class _Reloading:
    """Reloads the configuration file, never twice at the same time."""

    def __init__(
        self, assembly: Assembly, load: Callable[[], Config], manager: ServiceManager
    ) -> None:
        self._assembly = assembly
        self._load = load
        self._manager = manager
        self._task: asyncio.Task[None] | None = None
        self._is_wanted = False

    def begin(self) -> None:
        """Start a reload; if a reload is running, start the next reload once it has ended."""
        import asyncio

        self._is_wanted = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._is_wanted:
                self._is_wanted = False
                self._manager.reloading()
                await self._reload()
        finally:
            self._manager.reloaded()
            self._task = None

    async def _reload(self) -> None:
        try:
            self._assembly.is_reloaded = False
            found = self._load()
            fixed = await self._assembly.reload(found)
        except InterlockError as error:
            complain(f"not reloaded, the old configuration is served: {error}")
            if self._assembly.replicas is not None:
                await self._assembly.replicas.note(type(error).__name__)
            return
        say(f"reloaded {found.path}" if found.path else "reloaded")
        for kept in self._assembly.parts.written.warnings[len(found.warnings) :]:
            warn(kept)
        states = self._assembly.services.pins.states
        if waiting := states["changed"] + states["new"]:
            warn(f"{_count(waiting, 'definition')} wait: see `interlock lock status`")
        if fixed:
            warn(f"restart to apply changes of gateway.{', gateway.'.join(fixed)}")


# Output


@contextmanager
def _key_file(assembly: Assembly, bound: Listeners) -> Iterator[str]:
    """Yield the place of the key for this run if a key must not be printed, else "".

    A pipe or a socket of stderr is the log of a container or of a service, which others read. The
    key is written to a file that is deleted at the end.
    """
    if bound.key is None or not _is_collected(sys.stderr):
        yield ""
        return
    from interlock import durable
    from interlock.store.database.location import folder_beside

    folder = folder_beside(assembly.parts.settings.database or None)
    path = folder / f"run-{bound.address.port}.key"
    try:
        durable.replace(path, f"{bound.key}\n".encode())
    except OSError as error:
        yield f"not shown ({path}: {error.strerror}); run `interlock keys create NAME`"
        return
    try:
        yield f"in {path}"
    finally:
        path.unlink(missing_ok=True)


def _is_collected(stream: TextIO | None) -> bool:
    """Return whether another program reads what is written to a stream."""
    if stream is None or stream.closed:
        return False
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def freeze_as_it_grows(toolbox: Toolbox) -> None:
    """Take all objects from the garbage collector, now and whenever there are many more tools.

    These objects stay. Looking at them again would block the event loop: for a second, if the
    servers have 20,000 tools.
    """
    frozen = -MANY_TOOLS

    def freeze() -> None:
        nonlocal frozen
        count = sum(len(each.entries) for each in toolbox.upstreams.values())
        if count >= frozen + MANY_TOOLS:
            frozen = count
            gc.freeze()

    freeze()
    toolbox.listeners.add(freeze)


def _announce(toolbox: Toolbox, worker: Worker | None, key_file: str, served: Served) -> None:
    open_log(logging.WARNING)
    freeze_as_it_grows(toolbox)
    if worker is not None and not worker.announces:
        return
    say(f"serving at {served.url}")
    if served.admin:
        say(f"admin at {served.admin}")
        say(f"board at {origin(served.admin)}/gateway")
    if served.chat:
        say(f"chat at {served.chat}")
    _say_servers(toolbox)
    for each in toolbox.status.values():
        _warn_of(each)
    if served.key is not None:
        say(f"key for this run: {key_file or served.key}")
    if served.issuers is None:
        _say_clients(served.client_url, "YOUR_KEY" if key_file else served.key or "YOUR_KEY")
    else:
        _say_clients(served.client_url)
        _say_oauth(served.client_url, served.issuers)


def _say_servers(toolbox: Toolbox) -> None:
    enabled = [each for each in toolbox.status.values() if each.state != "disabled"]
    up = sum(each.state == "ok" for each in enabled)
    tools = len(toolbox.tools)
    be = "is" if len(enabled) == 1 else "are"
    say(f"{up} of {_count(len(enabled), 'server')} {be} up, {_count(tools, 'tool')}")


def _warn_of(status: ServerStatus) -> None:
    from interlock.toolbox.tool_list import NOT_ALLOWED

    if status.state == "starting":
        warn(
            f"{status.name}: {status.reason}"
            if status.reason
            else f"{status.name} is still starting"
        )
    elif status.state not in ("ok", "disabled"):
        warn(f"{status.name} {status.state}: {status.reason}")
    for line in status.missing:
        if not line.endswith(NOT_ALLOWED):  # the operator's own choice needs no warning
            warn(f"{status.name}: {line}")


def _say_oauth(url: str, issuers: Sequence[str]) -> None:
    from interlock.gateway.logins.login_pages import CALLBACK_PATH

    say(f"OAuth clients: {url} is all they need")
    for each in issuers:
        say(f"redirect URI to register at {each}: {origin(url)}{CALLBACK_PATH}")


def _say_clients(url: str, key: str = "") -> None:
    """Print how to configure clients; without a key they log in by OAuth."""
    headers = {"headers": {"Authorization": f"Bearer {key}"}} if key else {}
    name, entry = "interlock", {"url": url, **headers}
    cursor = {"mcpServers": {name: entry}}
    code = {"name": name, "type": "http", **entry}
    header = f' --header "Authorization: Bearer {key}"' if key else ""
    say(f"Claude Code: claude mcp add --transport http {name} {url}{header}")
    say(f"Cursor, ~/.cursor/mcp.json: {json.dumps(cursor)}")
    say(f"VS Code: code --add-mcp '{json.dumps(code)}'")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
