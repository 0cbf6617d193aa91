"""`interlock models`: which models could be used, and what the others need."""

from __future__ import annotations

import click

from interlock.cli import config_option
from interlock.cli.signals import run
from interlock.cli.terminal import emit_json, emit_table


@click.command()
@config_option.json_option
def models(as_json: bool) -> None:
    """List the models for --model: those that are ready, and what the others need.

    Of Anthropic, OpenAI and DeepSeek it is the default model; every other one of theirs works, too.

    \b
    Example:
      interlock models
    """
    from interlock.models.choose import available

    found = run(available())
    if as_json:
        emit_json(found)
    else:
        emit_table((each.name, each.problem or "ready") for each in found)
