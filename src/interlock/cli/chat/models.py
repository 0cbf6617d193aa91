"""`interlock models`: list the usable models, and what other models need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from interlock.cli import config_option
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_json, emit_table

if TYPE_CHECKING:
    from interlock.models.choosing import ListedModel


@click.command()
@config_option.json_option
def models(as_json: bool) -> None:
    """List the models for --model: what each can do, and what it needs.

    Lists the default models of Anthropic, OpenAI and DeepSeek; their other models work, too. So
    does a file: local:PATH.gguf. "Context" is the length of the longest conversation, in tokens.
    Aliases come from `interlock settings`.

    \b
    Example:
      interlock models
    """
    from interlock.cli.chat import settings
    from interlock.models.choosing import available

    aliases = settings.load().aliases
    found = run(available())
    if as_json:
        emit_json(found)
        return
    emit_table((each.name, each.problem or "ready", _abilities(each)) for each in found)
    if aliases:
        emit()
        emit_table((name, f"alias of {model}") for name, model in aliases.items())


def _abilities(model: ListedModel) -> str:
    context = (f"context {model.context:,}",) if model.context else ()
    return ", ".join((*model.can, *context))
