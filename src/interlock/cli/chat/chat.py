"""`interlock chat`: answer one prompt, or open a conversation."""

from __future__ import annotations

import os
import selectors
import stat
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from interlock.cli import completion, config_option
from interlock.cli.chat import settings
from interlock.cli.chat.settings import tool_search_option
from interlock.cli.servers import inputs, server_option
from interlock.cli.signals import run
from interlock.cli.terminal import is_terminal, say, warn
from interlock.cli.utf8_command import Utf8Command, prose
from interlock.text.surrogates import repair_cut

if TYPE_CHECKING:
    from interlock.agent import AgentEvent
    from interlock.cli.chat.terminal_chat import ChatOptions
    from interlock.config import Config
    from interlock.messages import Attachment
    from interlock.store import Conversation

SILENCE = 3.0  # seconds; with a PROMPT, a pipe that stays empty for so long is ignored


@click.command(cls=Utf8Command)
@click.argument("prompt", required=False, callback=prose)
@click.option(
    "--model",
    shell_complete=completion.models,
    metavar="PROVIDER:NAME",
    help="anthropic:…, openai:…, gemini:…, ollama:…, local:FILE.gguf, claude-code, "
    "local or an alias; by default INTERLOCK_MODEL, else the model of `interlock settings`, "
    "else the first model available.",
)
@server_option.server_option
@config_option.config_option
@config_option.root_option
@click.option(
    "--conversation",
    metavar="ID",
    shell_complete=completion.conversations,
    help="Continue this conversation; the beginning of its id is enough.",
)
@click.option("-c", "--continue", "latest", is_flag=True, help="Continue the latest conversation.")
@click.option("-s", "--system", metavar="TEXT", callback=prose, help="Instructions for the model.")
@click.option(
    "-a",
    "--attach",
    "paths",
    metavar="FILE",
    multiple=True,
    type=click.Path(allow_dash=True, path_type=Path),
    help="Send an image, a PDF or a text with the first message; - is stdin. Repeatable.",
)
@click.option(
    "-o",
    "--option",
    "wishes",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set an option of the model, such as temperature=0.2 or max_tokens=500. Repeatable.",
)
@click.option("--no-tools", is_flag=True, help="Start no servers.")
@tool_search_option
@click.option(
    "--yes", is_flag=True, help="Run tools that may change something without asking for each call."
)
@click.option("--json", "as_json", is_flag=True, help="Print each event of the answer as JSON.")
def chat(
    prompt: str | None,
    model: str | None,
    given: str | None,
    config: Path | None,
    roots: tuple[Path, ...],
    conversation: str | None,
    latest: bool,
    system: str | None,
    paths: tuple[Path, ...],
    wishes: tuple[str, ...],
    no_tools: bool,
    tool_search: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Talk to a model that uses your tools.

    With PROMPT, or with text piped in, prints one answer on stdout and everything else on
    stderr. With both, the model gets the prompt and then the text. Without either, opens a
    conversation; /help lists its commands. Tools that only read run at once. You are asked before
    any other call.

    \b
    Example:
      interlock chat "What time is it in Asia/Tokyo?"
      git diff | interlock chat --no-tools 'Write a commit message.'
      interlock chat -a report.pdf -a chart.png 'Do these agree?'
      interlock chat --conversation k3f
      interlock chat --server notes.py 'What do my notes say about milk?'
    """
    _check_beginning(system, conversation, latest=latest)
    files = _attached(paths)
    prompt = _with_piped(prompt, paths)
    found = _servers(given, config, roots, no_tools=no_tools)
    options: ChatOptions = {
        "model": model,
        "conversation": conversation,
        "latest": latest,
        "system": system or "",
        "wishes": settings.wishes(wishes, tool_search),
    }
    if prompt is None:
        if as_json:
            raise click.UsageError("--json is for one answer; give a PROMPT, or pipe text in")
        from interlock.cli.chat.repl import run_repl

        run(run_repl(found, files, yes=yes, **options))
        return
    run(_answer(prompt, files, found, yes=yes, as_json=as_json, **options))


def _servers(
    given: str | None, config: Path | None, roots: tuple[Path, ...], *, no_tools: bool
) -> Config | None:
    if given is None:
        return None if no_tools else inputs.answered(config_option.load(config, roots=roots))
    if no_tools:
        raise click.UsageError("--server and --no-tools exclude each other")
    return server_option.only(given, config, roots=roots)[1]


def _check_beginning(system: str | None, conversation: str | None, *, latest: bool) -> None:
    if conversation and latest:
        raise click.UsageError("--conversation and --continue name two conversations; keep one")
    if system and (conversation or latest):
        raise click.UsageError("--system starts a conversation; this one has begun already")


def _attached(paths: tuple[Path, ...]) -> list[Attachment]:
    if not paths:
        return []
    from interlock import attachments

    files = []
    for path in paths:
        if path != Path("-"):
            files.append(attachments.load(path))
        elif is_terminal(sys.stdin) or sys.stdin is None:
            raise click.UsageError("-a - reads stdin; pipe a file in")
        else:
            files.append(
                attachments.checked("stdin", sys.stdin.buffer.read(attachments.MAX_FILE + 1))
            )
    attachments.check_all(files)
    return files


def _with_piped(prompt: str | None, paths: tuple[Path, ...]) -> str | None:
    """Return the prompt with the text on stdin; None to open a conversation."""
    if not is_terminal(sys.stdin) and Path("-") not in paths:
        if prompt is None:
            prompt = _piped()
        elif prompt.strip() and not _is_silent() and (piped := _piped()).strip():
            prompt = f"{prompt}\n\n{piped}"
    if prompt is not None and not prompt.strip():
        raise click.UsageError("the prompt is empty; give a PROMPT, or pipe text in")
    return prompt


def _is_silent() -> bool:
    """Return whether stdin is an open pipe into which nothing is written.

    A parent process often leaves such a pipe as stdin, and reading from it would never end.
    """
    try:
        number = sys.stdin.fileno()
        mode = os.fstat(number).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or not a file of the operating system
        return False
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(number, selectors.EVENT_READ)
        if selector.select(SILENCE):
            return False
    warn(f"nothing came on stdin for {SILENCE:g} s, so it is not read; close it with </dev/null")
    return True


def _piped() -> str:
    if sys.stdin is None:
        return ""
    content = repair_cut(sys.stdin.buffer.read())
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(
            f"the text piped in is not UTF-8 (byte {error.start}); -a - sends a file from stdin"
        ) from None


async def _answer(
    prompt: str,
    files: list[Attachment],
    config: Config | None,
    *,
    yes: bool,
    as_json: bool,
    **options: Unpack[ChatOptions],
) -> None:
    from interlock.cli.chat.terminal_chat import open_terminal_chat

    async with (
        open_terminal_chat(config, yes=yes, **options) as opened,
        aclosing(opened.chat.ask(prompt, files)) as events,
    ):
        async for event in events:
            if as_json:
                _print_event(event, opened.chat.log.conversation)
            else:
                opened.screen.show(event)
    stored = opened.chat.log.conversation
    if stored is not None and is_terminal(sys.stderr):
        say(f"continue with: interlock chat --conversation {stored.id}")


def _print_event(event: AgentEvent, conversation: Conversation | None) -> None:
    """Print an event as JSON, as the chat page receives it but without the turn's ids."""
    from interlock.agent import Done
    from interlock.cli.terminal import emit_json_line
    from interlock.web.chat.events import fields_of

    fields = fields_of(event)
    if isinstance(event, Done):
        fields = {
            "type": "complete",
            "content": event.message.content,
            "usage": event.usage,
            "stop_reason": event.stop_reason,
            "conversation_id": conversation.id if conversation is not None else None,
        }
    if fields is not None:
        emit_json_line(fields)
