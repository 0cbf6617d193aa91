"""The servers of a command that makes one request: `call`, `read` and `prompt`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlock.calls import Caller
from interlock.cli import completion
from interlock.cli.questions import TerminalQuestions
from interlock.cli.terminal import Spinner
from interlock.cli.terminal_prompt import TerminalApproval, TerminalPrompt
from interlock.config import Config
from interlock.gateway.local_calls import local_calls
from interlock.toolbox import Toolbox

CALLER = Caller(surface="cli")


@asynccontextmanager
async def open_toolbox(
    config: Config, server: str | None, spinner: Spinner, *, yes: bool = False
) -> AsyncIterator[Toolbox]:
    """Open the servers of a file, with the policy for the person at the terminal.

    Args:
        config: The configuration.
        server: The only server to start, by its name in the file; None for all.
        spinner: Pauses while the person is asked.
        yes: Whether calls run although the policy asks about them.
    """
    prompt = TerminalPrompt(spinner.held)
    # Without a gateway's policy, the person has approved a call by typing it.
    approval = TerminalApproval(prompt, yes=yes or config.gateway is None)
    async with local_calls(config, approval) as calls:
        servers = calls.servers if server is None else {server: calls.servers[server]}
        questions = TerminalQuestions(prompt, config)
        handlers = questions.handlers
        async with Toolbox(
            servers, around=calls.layers, handlers=handlers, pins=calls.pins
        ) as toolbox:
            completion.remember(toolbox)
            yield toolbox
