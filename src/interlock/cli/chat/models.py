"""`interlock models`: list the usable models, what other models need, and what was learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from interlock.cli import config_option
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_json, emit_table, say

if TYPE_CHECKING:
    from interlock.models.choosing import ListedModel


@click.command()
@click.argument("provider", default="")
@click.option("--forget", metavar="MODEL", help="Forget what was learned about a model.")
@config_option.json_option
def models(provider: str, forget: str | None, as_json: bool) -> None:
    """List the models for --model: what each can do, and what it needs.

    Lists the default model of each provider, and the models of local servers; other models of a
    provider work, too. With PROVIDER, lists all models of one provider. A file works as well:
    local:PATH.gguf. "Context" is the length of the longest conversation, in tokens.

    What a provider's refusals have taught is shown below, with the provider's reason. It is
    forgotten after 30 days. Aliases come from `interlock settings`.

    \b
    Example:
      interlock models
      interlock models ollama
      interlock models --forget openai:gpt-6-luna
    """
    from interlock.cli.chat import settings
    from interlock.models import learned
    from interlock.models.choosing import available, models_of, used_before

    if forget is not None:
        name = settings.load().name_of(forget)
        was_known = learned.forget(name)
        say(f"forgot what was learned of {name}" if was_known else f"nothing learned of {name}")
        return
    found = run(models_of(provider) if provider else available())
    others = [] if provider else used_before(found)
    if as_json:
        emit_json([*found, *others])
        return
    emit_table((each.name, each.problem or "ready", _abilities(each)) for each in found)
    _emit_lessons([*found, *others])
    aliases = settings.load().aliases
    if aliases and not provider:
        emit()
        emit_table((name, f"alias of {model}") for name, model in aliases.items())


def _emit_lessons(models: Sequence[ListedModel]) -> None:
    lines = [(each.name, text) for each in models for text in each.learned]
    if lines:
        emit()
        emit("Learned from refusals:")
        emit_table(lines)


def _abilities(model: ListedModel) -> str:
    context = (f"context {model.context:,}",) if model.context else ()
    return ", ".join((*model.can, *context))
