"""`interlock completion`, and completion of the names that commands take as arguments.

Completion starts no servers: it offers the tools that a command listed last.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from click.shell_completion import CompletionItem, get_completion_class

from interlock.cli.terminal import emit
from interlock.errors import InterlockError

if TYPE_CHECKING:
    from interlock.config.settings import Settings
    from interlock.toolbox import Toolbox

MAX_CONVERSATIONS = 50
_VARIABLE = "_INTERLOCK_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")

_Tools = dict[str, dict[str, list[str]]]  # server -> tool -> names of its arguments


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes commands, servers, tools, arguments and models.

    Let your shell run it at its start: put eval "$(interlock completion bash)" into ~/.bashrc, or
    the same with zsh into ~/.zshrc.

    \b
    Example:
      interlock completion bash
      interlock completion fish | source
    """
    from interlock.cli import interlock

    found = get_completion_class(shell)
    if found is None:  # unreachable: click supports all three shells
        raise click.UsageError(f"no completion for {shell}")
    script = found(interlock, {}, "interlock", _VARIABLE).source()
    if shell == "bash":  # without this, bash splits server:tool into three words
        script = f"COMP_WORDBREAKS=${{COMP_WORDBREAKS//:}}\n{script}"
    emit(script)


# What commands complete


def servers(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a server."""
    return _items(_servers(ctx), incomplete)


def addresses(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the address of a tool."""
    if ctx.params.get("given"):
        return []  # `--server` names a server that was not started yet
    known, names = _known(), _servers(ctx)
    tools = [f"{server}:{tool}" for server in names for tool in known.get(server, ())]
    return _items(tools or [f"{name}:" for name in names], incomplete)


def arguments(ctx: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of an argument of the tool that precedes it."""
    server, _, tool = str(ctx.params.get("address") or "").partition(":")
    names = _known().get(server, {}).get(tool, [])
    given = {pair.partition("=")[0] for pair in ctx.params.get("pairs") or ()}
    return _items([f"{name}=" for name in names if name not in given], incomplete)


def models(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a model that is available now."""
    import asyncio

    from interlock.models.choosing import available

    found = asyncio.run(available())
    names = [each.name for each in found if not each.problem]
    return _items([*_settings().aliases, *names], incomplete)


def setting_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a setting."""
    found = _settings()
    names = [*(f"options.{each}" for each in found.options or ("temperature", "max_tokens"))]
    names += [f"aliases.{each}" for each in found.aliases] or ["aliases."]
    return _items(["model", "toolSearch", *names], incomplete)


def setting_values(
    ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a model, or a mode of the search for tools."""
    name = str(ctx.params.get("name") or "")
    if name == "toolSearch":
        return _items(["auto", "on", "off"], incomplete)
    is_option = name.startswith("options.")
    return [] if is_option else models(ctx, parameter, incomplete)


def _settings() -> Settings:
    from interlock.config.settings import Settings, load

    with suppress(InterlockError):
        return load()
    return Settings()


def conversations(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the id of a conversation."""
    import asyncio

    from interlock.store import ConversationStore

    async def latest() -> list[CompletionItem]:
        async with ConversationStore.open() as store:
            found = await store.list(MAX_CONVERSATIONS)
        return [
            CompletionItem(each.id, help=each.title)
            for each in found
            if each.id.startswith(incomplete)
        ]

    with suppress(InterlockError):  # a shell cannot show an error here
        return asyncio.run(latest())
    return []


def _items(texts: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(text) for text in texts if text.startswith(incomplete)]


def _servers(ctx: click.Context) -> list[str]:
    from interlock.cli import config_option

    with suppress(InterlockError):
        found, _ = config_option.in_force(ctx.params.get("config"))
        every = found.servers
        return [each.namespace or name for name, each in every.items()]
    return []


# Known tools


def remember(toolbox: Toolbox) -> None:
    """Store the names of all tools and their arguments for the next completion."""
    from interlock.schema.annotations import Hints

    known = _known()
    seen: _Tools = {}
    for entry in toolbox.tools:
        schema = entry.tool.input_schema
        names = list((Hints(schema).merged(schema) or {}).get("properties", ()))
        seen.setdefault(entry.server, {})[entry.tool.name] = names
    if all(known.get(server) == tools for server, tools in seen.items()):
        return
    from interlock import durable

    with suppress(OSError, durable.NotSynced):  # then completion only offers older names
        file = _file()
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        durable.replace(file, msgspec.json.encode({**known, **seen}))


def _known() -> _Tools:
    try:
        return msgspec.json.decode(_file().read_bytes(), type=_Tools)
    except (OSError, msgspec.DecodeError):
        return {}


def _file() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("interlock") / "tools.json"
