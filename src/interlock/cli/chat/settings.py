"""`interlock settings`: show and change the user's settings for models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from interlock.cli import completion, config_option
from interlock.cli.terminal import emit_json, emit_table, say, warn

if TYPE_CHECKING:
    from interlock.chat import ModelWishes
    from interlock.config.settings import Settings


tool_search_option = click.option(
    "--tool-search",
    type=click.Choice(["auto", "on", "off"]),
    help="Whether the model searches for tools instead of reading all definitions; by default "
    "that of `interlock settings`, else auto: with 100 tools or 10,000 tokens of definitions.",
)


@click.group(invoke_without_command=True)
@config_option.json_option
@click.pass_context
def settings(context: click.Context, as_json: bool) -> None:
    """Show the settings of models: the default model, options, aliases and prices.

    They are in settings.json in your config folder. Options of commands and INTERLOCK_MODEL
    override them.

    \b
    Example:
      interlock settings
      interlock settings set model anthropic:claude-sonnet-5-5
      interlock settings set aliases.fast openai:gpt-6-luna
      interlock settings set options.temperature 0.2
      interlock settings unset model
    """
    if context.invoked_subcommand is not None:
        return
    from interlock.config.settings import default_path
    from interlock.models.model_name import public_name

    found = _public(load())
    if as_json:
        emit_json({**msgspec.structs.asdict(found), "path": str(default_path())})
        return
    emit_table(_rows(found))
    say(f"file: {default_path()}{'' if found.path else ' (does not exist yet)'}")
    if name := os.environ.get("INTERLOCK_MODEL"):
        say(f"INTERLOCK_MODEL overrides the default model here: {public_name(name)}")


def _rows(found: Settings) -> list[tuple[str, str]]:
    rows = [("model", found.model or "the first one available: see `interlock models`")]
    rows.append(("toolSearch", found.tool_search.mode))
    rows += [(f"options.{name}", _text(value)) for name, value in found.options.items()]
    rows += [(f"aliases.{name}", model) for name, model in found.aliases.items()]
    for model, each in found.models.items():
        rows += [(f"{model} {name}", _text(value)) for name, value in each.options.items()]
        if each.price is not None:
            cached = "" if each.price.cached is None else f", {each.price.cached:g} cached"
            price = f"{each.price.input:g} in, {each.price.output:g} out{cached}"
            rows.append((f"{model} price", f"{price}, for a million tokens"))
    return rows


def _public(found: Settings) -> Settings:
    """Return a copy of the settings without the passwords in model URLs."""
    from interlock.models.model_name import public_name

    return msgspec.structs.replace(
        found,
        model=public_name(found.model),
        aliases={alias: public_name(name) for alias, name in found.aliases.items()},
        models={public_name(name): each for name, each in found.models.items()},
    )


@settings.command("set")
@click.argument("name", shell_complete=completion.setting_names)
@click.argument("value", shell_complete=completion.setting_values)
def set_(name: str, value: str) -> None:
    """Set model, toolSearch, options.NAME or aliases.NAME.

    \b
    Example:
      interlock settings set options.temperature 0.2
    """
    from interlock.config.settings import change

    change(name, _value(value) if name.startswith("options.") else value)


@settings.command()
@click.argument("name", shell_complete=completion.setting_names)
def unset(name: str) -> None:
    """Remove a setting.

    \b
    Example:
      interlock settings unset aliases.fast
    """
    from interlock.config.settings import change

    change(name, None)


# For commands


def load() -> Settings:
    """Read the user's settings; warn of unknown members.

    Raises:
        ConfigError: The file is invalid.
    """
    from interlock.config import settings as file

    found = file.load()
    for warning in found.warnings:
        warn(warning)
    return found


def wishes(given: Sequence[str] = (), tool_search: str | None = None) -> ModelWishes:
    """Return the user's settings, overridden by the command's options.

    Args:
        given: Options of models in the form NAME=VALUE.
        tool_search: The mode of the search for tools; None for that of the settings.

    Raises:
        UsageError: An option has no value.
        ConfigError: The settings file is invalid.
    """
    from interlock.chat import ModelWishes

    options = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise click.UsageError(f"-o {each} has no value: write NAME=VALUE")
        options[name] = _value(value)
    found = load()
    if tool_search is not None:
        search = msgspec.structs.replace(found.tool_search, mode=tool_search)
        found = msgspec.structs.replace(found, tool_search=search)
    return ModelWishes(found, options)


def _value(text: str) -> Any:
    """Decode a text that is JSON; return any other text unchanged."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
