"""`interlock prompts` and `interlock prompt`: texts that servers prepare for a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interlock.cli import completion, config_option
from interlock.cli.server_status import started, warn_of_broken
from interlock.cli.servers import inputs, server_option
from interlock.cli.servers.call import format_block, texts_of
from interlock.cli.servers.resources import chosen, of_every_server
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_json, emit_lines, say, working
from interlock.cli.utf8_command import Utf8Command

if TYPE_CHECKING:
    from interlock.config import Config, ServerConfig
    from interlock.types import Prompt


@click.command()
@click.argument("server", required=False, shell_complete=completion.servers)
@config_option.config_option
@config_option.json_option
def prompts(server: str | None, config: Path | None, as_json: bool) -> int:
    """List the prompts of all servers, or of one: address, arguments and description.

    \b
    Example:
      interlock prompts
      interlock prompts git --json
    """
    return run(_prompts(chosen(config_option.load(config), server), as_json))


async def _prompts(servers: Mapping[str, ServerConfig], as_json: bool) -> int:
    import msgspec

    async with started(servers) as toolbox:
        found = await of_every_server(toolbox, lambda upstream: upstream.list_prompts())
        rows = [(name, each) for name, listed in found.items() for each in listed]
        if as_json:
            emit_json([{"server": name, **msgspec.to_builtins(each)} for name, each in rows])
        else:
            emit_lines(
                (f"{name}:{each.name}", _usage(each), each.description or each.title or "")
                for name, each in rows
            )
            if not rows:
                say("no prompts")
        warn_of_broken(toolbox.status.values())
        return 0


def _usage(prompt: Prompt) -> str:
    """Return a prompt's arguments as the user types them; optional arguments are in brackets."""
    shown = (
        f"{each.name}=…" if each.required else f"[{each.name}=…]" for each in prompt.arguments or ()
    )
    return " ".join(shown) or "-"


@click.command(cls=Utf8Command)
@click.argument("address", metavar="[SERVER:]PROMPT")
@click.argument("pairs", metavar="[KEY=VALUE]...", nargs=-1)
@server_option.server_option
@config_option.config_option
@config_option.root_option
@config_option.json_option
def prompt(
    address: str,
    pairs: tuple[str, ...],
    given: str | None,
    config: Path | None,
    roots: tuple[Path, ...],
    as_json: bool,
) -> int:
    """Print the messages of a prompt, such as for piping them into `interlock chat`.

    \b
    Example:
      interlock prompt git:review branch=main
      interlock prompt git:review branch=main | interlock chat
      interlock prompt --server notes.py review name=milk
    """
    if given is not None:
        key, only = server_option.only(given, config, roots=roots)
        return run(_prompt(only, key, key, address, texts_of(pairs), as_json))
    server, colon, name = address.partition(":")
    if not (server and colon and name):
        raise click.UsageError(
            f"{address!r} is not a prompt's address; write SERVER:PROMPT, or "
            "--server COMMAND|URL|FILE"
        )
    loaded = config_option.load(config, roots=roots)
    key, _ = config_option.find(loaded, server)
    return run(_prompt(inputs.answered(loaded, [key]), key, server, name, texts_of(pairs), as_json))


async def _prompt(
    config: Config, key: str, server: str, name: str, arguments: dict[str, str], as_json: bool
) -> int:
    from interlock.cli.servers.local_toolbox import command_caller, open_toolbox

    with working(f"{server}:{name}") as spinner:
        async with open_toolbox(config, key, spinner) as toolbox:
            result = await toolbox.get_prompt(server, name, arguments, caller=command_caller())
    if as_json:
        emit_json(result.messages)
        return 0
    roles = {each.role for each in result.messages}
    for each in result.messages:
        text = format_block(each.content)
        emit(text if roles == {"user"} else f"{each.role}: {text}")
    return 0
