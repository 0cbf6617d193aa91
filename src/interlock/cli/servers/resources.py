"""`interlock resources` and `interlock read`: list and print resources of servers."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from interlock.cli import completion, config_option
from interlock.cli.server_status import started, warn_of_broken
from interlock.cli.servers import inputs, server_option
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_json, emit_lines, is_terminal, say, warn, working
from interlock.cli.utf8_command import Utf8Command
from interlock.errors import InterlockError

if TYPE_CHECKING:
    from interlock.config import Config, ServerConfig
    from interlock.toolbox import Toolbox
    from interlock.toolbox.upstream import Upstream
    from interlock.types import ReadResourceResult, Resource, ResourceContents, ResourceTemplate

_T = TypeVar("_T")


@click.command()
@click.argument("server", required=False, shell_complete=completion.servers)
@config_option.config_option
@config_option.json_option
def resources(server: str | None, config: Path | None, as_json: bool) -> int:
    """List the resources of all servers, or of one: address, type and name.

    The address of a template has variables: fill them in and read the result.

    \b
    Example:
      interlock resources
      interlock resources files --json
    """
    return run(_resources(chosen(config_option.load(config), server), as_json))


async def _resources(servers: Mapping[str, ServerConfig], as_json: bool) -> int:
    async with started(servers) as toolbox:
        found = await of_every_server(toolbox, _listed)
        rows = [(name, each) for name, listed in found.items() for each in listed]
        if as_json:
            emit_json([{"server": name, **_fields(each)} for name, each in rows])
        else:
            emit_lines(
                (f"{name}:{_uri(each)}", each.mime_type or "-", each.title or each.name)
                for name, each in rows
            )
            if not rows:
                say("no resources")
        warn_of_broken(toolbox.status.values())
        return 0


@click.command(cls=Utf8Command)
@click.argument("address", metavar="[SERVER:]URI")
@server_option.server_option
@config_option.config_option
@config_option.root_option
@config_option.json_option
def read(
    address: str, given: str | None, config: Path | None, roots: tuple[Path, ...], as_json: bool
) -> int:
    """Print a resource: its text, or its bytes if stdout is a file or a pipe.

    A URI alone is enough if exactly one server lists it.

    \b
    Example:
      interlock read notes:note://today
      interlock read files:file:///srv/logo.png > logo.png
      interlock read --server notes.py note://today
    """
    if given is not None:
        name, only = server_option.only(given, config, roots=roots)
        return run(_read(only, f"{name}:{address}", as_json))
    loaded = config_option.load(config, roots=roots)
    key = server_of(loaded, address)
    return run(_read(inputs.answered(loaded, None if key is None else [key]), address, as_json))


async def _read(config: Config, address: str, as_json: bool) -> int:
    from interlock.cli.servers.local_toolbox import command_caller, open_toolbox

    with working(address) as spinner:
        async with open_toolbox(config, server_of(config, address), spinner) as toolbox:
            server, uri = await locate(toolbox, config, address)
            result = await toolbox.read_resource(server, uri, caller=command_caller())
    if as_json:
        emit_json(result.contents)
    else:
        _print(result)
    return 0


def _print(result: ReadResourceResult) -> None:
    only = result.contents[0] if len(result.contents) == 1 else None
    if only is not None and only.text is None and not is_terminal(sys.stdout):
        sys.stdout.buffer.write(_bytes_of(only))
        sys.stdout.buffer.flush()
        return
    for each in result.contents:
        emit(format_contents(each))


def _bytes_of(contents: ResourceContents) -> bytes:
    try:
        return base64.b64decode(contents.blob or "", validate=True)
    except binascii.Error:
        raise InterlockError(f"{contents.uri} is not valid Base64; see it with --json") from None


def format_contents(contents: ResourceContents) -> str:
    """Return the contents of a resource as text, with a note for bytes."""
    if contents.text is not None:
        return contents.text
    size = len(contents.blob or "") * 3 // 4
    return f"[{contents.mime_type or 'bytes'}, {size} bytes; write them to a file with > FILE]"


# Finding


def chosen(config: Config, server: str | None) -> Mapping[str, ServerConfig]:
    """Return one server by its name, or all servers, with the user's answers to their inputs.

    Raises:
        ConfigError: No server has this name.
    """
    if server is None:
        return inputs.answered(config).servers
    key, _ = config_option.find(config, server)
    return {key: inputs.answered(config, [key]).servers[key]}


def server_of(config: Config, address: str) -> str | None:
    """Return the key of the server that an address starts with; None if it starts with none."""
    name = address.partition(":")[0]
    for key, server in config.servers.items():
        if name == (server.namespace or key):
            return key
    return None


async def locate(toolbox: Toolbox, config: Config, address: str) -> tuple[str, str]:
    """Return the server and the URI of a resource.

    Raises:
        InterlockError: No server lists the URI, or several do.
    """
    if server_of(config, address) is not None:
        server, _, uri = address.partition(":")
        return server, uri
    found = await of_every_server(toolbox, _listed)
    owners = [
        name for name, listed in found.items() if any(_uri(each) == address for each in listed)
    ]
    if len(owners) == 1:
        return owners[0], address
    several = f"several servers list {address!r}: {', '.join(owners)}"
    none = f"no server lists {address!r}"
    raise InterlockError(f"{several if owners else none}; write SERVER:URI")


async def _listed(upstream: Upstream) -> list[Resource | ResourceTemplate]:
    import asyncio  # costs a third of the start-up time, and `--help` does not need it

    both = await asyncio.gather(upstream.list_resources(), upstream.list_resource_templates())
    return [*both[0], *both[1]]


async def of_every_server(
    toolbox: Toolbox, listed: Callable[[Upstream], Awaitable[_T]]
) -> dict[str, _T]:
    """Return the list from each server that works; warn about the other servers."""
    import asyncio

    names = [name for name, status in toolbox.status.items() if status.state == "ok"]
    answers = await asyncio.gather(
        *(listed(toolbox.upstream(name)) for name in names), return_exceptions=True
    )
    found: dict[str, _T] = {}
    for name, answer in zip(names, answers, strict=True):
        if isinstance(answer, InterlockError):
            warn(f"server {name!r}: {answer}")
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found[name] = answer
    return found


def _uri(item: Resource | ResourceTemplate) -> str:
    from interlock.types import Resource

    return item.uri if isinstance(item, Resource) else item.uri_template


def _fields(item: Resource | ResourceTemplate) -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.to_builtins(item)
    return fields
