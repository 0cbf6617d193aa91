"""`interlock claude`: run Claude Code with the configured servers and their policy."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from interlock.cli import config_option
from interlock.cli.servers import inputs
from interlock.cli.signals import on_interrupt, run
from interlock.cli.terminal import complain, is_terminal, say
from interlock.cli.utf8_command import Utf8Command, prose
from interlock.errors import CapabilityError, InterlockError, ModelInterrupted
from interlock.text.surrogates import repair_text

if TYPE_CHECKING:
    from interlock.claude import ClaudeAnswer, ClaudeCode, ClaudeEvent
    from interlock.cli.chat.output import Screen
    from interlock.client import ClientOptions
    from interlock.config import Config
    from interlock.gateway.local_calls import LocalCalls
    from interlock.models import Model
    from interlock.toolbox import Toolbox

MODES = ("default", "acceptEdits", "plan", "bypassPermissions")
COMMANDS = {"/quit": "leave, as Ctrl-D does"}


@click.command(cls=Utf8Command)
@click.argument("prompt", required=False, callback=prose)
@config_option.config_option
@config_option.root_option
@click.option("--mode", type=click.Choice(MODES), default="default", help="Permission mode.")
@click.option("--model", metavar="NAME", help="The model by Claude Code's name: opus, sonnet, ….")
@click.option("--session", metavar="ID", help="Continue this session.")
@click.option("--no-tools", is_flag=True, help="Start no servers.")
@click.option("--yes", is_flag=True, help="Run every call without asking.")
@config_option.json_option
def claude(
    prompt: str | None,
    config: Path | None,
    roots: tuple[Path, ...],
    mode: str,
    model: str | None,
    session: str | None,
    no_tools: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Let Claude Code use the configured servers.

    With PROMPT, prints one answer on stdout and everything else on stderr. Without it, opens a
    conversation. --json prints every event as one line of JSON.

    Tools that only read run at once. You are asked before any other call, Claude Code's own tools
    included.

    \b
    Example:
      interlock claude "What time is it in Asia/Tokyo?"
      interlock claude --session 4452e4c0-6c6b-4b5a-9d3e-0a4c1b6a7a11
    """
    if prompt is not None and not prompt.strip():
        raise click.UsageError("the prompt is empty; give a PROMPT")
    if prompt is None and (as_json or not is_terminal(sys.stdin)):
        raise click.UsageError("the PROMPT is missing, and a conversation needs a terminal")
    found = None if no_tools else inputs.answered(config_option.load(config, roots=roots))
    return run(_main(prompt, found, as_json=as_json, yes=yes, mode=mode, model=model, id=session))


async def _main(
    prompt: str | None,
    config: Config | None,
    *,
    as_json: bool,
    yes: bool,
    mode: str,
    model: str | None,
    id: str | None,
) -> int:
    from interlock.claude import ClaudeCode
    from interlock.claude.decisions import allow_all
    from interlock.cli.chat.output import Screen
    from interlock.cli.questions import TerminalQuestions
    from interlock.cli.server_status import warn_of_broken
    from interlock.cli.terminal_prompt import TerminalApproval, TerminalPrompt
    from interlock.config import Config
    from interlock.gateway.local_calls import local_calls

    config = config or Config()
    screen = Screen()
    person = TerminalPrompt(nullcontext if as_json else screen.held)
    approval = TerminalApproval(person, yes=yes)
    questions = TerminalQuestions(person, config, _no_model)
    options = {"mode": mode, "model": model, "resume": id}
    with screen.turn():
        async with (
            local_calls(config, approval) as calls,
            _opened(calls, questions.handlers) as toolbox,
            ClaudeCode(toolbox, permissions=allow_all, around=calls.layers, **options) as opened,  # type: ignore[arg-type]
        ):
            screen.release()
            warn_of_broken(opened.status.values())
            if prompt is None:
                await _converse(opened, screen)
                return 0
            answer = await _show(opened, prompt, None if as_json else screen)
    if answer.is_error:
        complain(answer.reason)
    if not as_json and is_terminal(sys.stderr):
        say(f"continue with: interlock claude --session {answer.session}")
    return int(answer.is_error)


@asynccontextmanager
async def _opened(
    calls: LocalCalls, handlers: Callable[[str], ClientOptions]
) -> AsyncIterator[Toolbox]:
    """Open a toolbox; wait for slow servers only as long as other commands do."""
    from interlock.cli.server_status import IDLE_TIMEOUT
    from interlock.cli.terminal import working
    from interlock.toolbox import Toolbox

    toolbox = Toolbox(
        calls.servers,
        around=calls.layers,
        handlers=handlers,
        results=calls.results,
        pins=calls.pins,
    )
    try:
        with working("starting servers"):
            await toolbox.open(idle_timeout=IDLE_TIMEOUT if len(calls.servers) > 1 else None)
        yield toolbox
    finally:
        await toolbox.close()


def _no_model() -> Model:
    raise CapabilityError("the model of Claude Code does not answer servers")


async def _converse(opened: ClaudeCode, screen: Screen) -> None:
    import asyncio

    from interlock.cli.chat.repl import line_editor

    editor = line_editor(COMMANDS)
    say(f"interlock · Claude Code {opened.version} · /quit")
    while True:
        try:
            # The editor handles Ctrl-C only as a key, because `signals` handles SIGINT.
            text = repair_text(await editor.prompt_async(handle_sigint=False)).strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text == "/quit":
            return
        if not text:
            continue
        turn = asyncio.create_task(_show(opened, text, screen))
        with on_interrupt(turn.cancel):
            try:
                answer = await turn
            except InterlockError as error:
                complain(str(error))
                return  # Claude Code has ended
            except asyncio.CancelledError:
                if not turn.cancelled():
                    raise
                say("stopped")
            else:
                if answer.is_error:
                    complain(answer.reason)
        say("")


async def _show(opened: ClaudeCode, prompt: str, screen: Screen | None) -> ClaudeAnswer:
    from interlock.claude import ClaudeDone, ClaudeNotice, ClaudeToolProgress, Retrying

    with nullcontext() if screen is None else screen.turn():
        async with aclosing(opened.stream(prompt)) as events:
            async for event in events:
                if screen is None:
                    click.echo(_as_json(event))
                elif isinstance(event, Retrying):
                    say(f"the model is busy; retry {event.attempt} in {event.seconds:.0f} s")
                elif not isinstance(event, ClaudeToolProgress | ClaudeNotice):
                    screen.show(event)
                if isinstance(event, ClaudeDone):
                    return event.answer
    raise ModelInterrupted("the answer ended without its last event")


def _as_json(event: ClaudeEvent) -> str:
    """Return an event as one line of JSON; its type is its class name in snake case."""
    name = type(event).__name__.removeprefix("Claude")
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return msgspec.json.encode({"type": kind, **msgspec.structs.asdict(event)}).decode()
