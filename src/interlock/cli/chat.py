"""`interlock chat`: one question, or a conversation."""

from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from interlock.cli import config_option
from interlock.cli.signals import run
from interlock.cli.terminal import is_terminal, say
from interlock.cli.utf8_command import Utf8Command

if TYPE_CHECKING:
    from interlock.config import Config


@click.command(cls=Utf8Command)
@click.argument("prompt", required=False)
@click.option(
    "--model",
    metavar="PROVIDER:NAME",
    help="anthropic:…, openai:…, deepseek:…, ollama:… or local; by default INTERLOCK_MODEL, "
    "else the first model available.",
)
@config_option.config_option
@click.option(
    "--conversation", metavar="ID", help="Continue this one; the beginning of its id is enough."
)
@click.option("--no-tools", is_flag=True, help="Start no servers.")
@click.option(
    "--yes", is_flag=True, help="Run tools that may change something without asking for each call."
)
def chat(
    prompt: str | None,
    model: str | None,
    config: Path | None,
    conversation: str | None,
    no_tools: bool,
    yes: bool,
) -> None:
    """Talk to a model that uses your tools.

    With PROMPT, or with text piped in, prints one answer on stdout and everything else on
    stderr. Without either, opens a conversation; /help lists its commands.

    Tools that only read run at once. Before any other call you are asked.

    \b
    Example:
      interlock chat "What time is it in Asia/Tokyo?"
      git diff | interlock chat --no-tools --model local
      interlock chat --conversation k3f
    """
    if prompt is None and not is_terminal(sys.stdin):
        prompt = _piped()
    if prompt is not None and not prompt.strip():
        raise click.UsageError("the prompt is empty; give a PROMPT, or pipe text in")
    found = None if no_tools else config_option.load(config)
    if prompt is None:
        from interlock.cli.repl import run_repl

        run(run_repl(found, model=model, conversation=conversation, yes=yes))
    else:
        run(_answer(prompt, found, model=model, conversation=conversation, yes=yes))


def _piped() -> str:
    if sys.stdin is None:
        return ""
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the text piped in is not UTF-8 (byte {error.start})") from None


async def _answer(
    prompt: str,
    config: Config | None,
    *,
    model: str | None,
    conversation: str | None,
    yes: bool,
) -> None:
    from interlock.chat import open_chat
    from interlock.cli.approval import TerminalApproval
    from interlock.cli.output import Screen, introduce
    from interlock.cli.server_status import warn_of_broken
    from interlock.cli.terminal import warn
    from interlock.policy import Policy, enforce

    screen = Screen()
    approval = TerminalApproval(screen, yes=yes)
    around = [] if config is None else [enforce(Policy.for_local_user(config), approval)]
    servers = None if config is None else config.servers
    with screen.turn():
        async with open_chat(
            servers, model=model, conversation=conversation, warn=warn, around=around
        ) as opened:
            introduce(opened.model.name)
            if opened.toolbox is not None:
                warn_of_broken(opened.toolbox.status.values())
            async with aclosing(opened.ask(prompt)) as events:
                async for event in events:
                    screen.show(event)
    stored = opened.log.conversation
    if stored is not None and is_terminal(sys.stderr):
        say(f"continue with: interlock chat --conversation {stored.id}")
