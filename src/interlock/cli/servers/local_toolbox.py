"""Opens the servers for commands that make one request: `call`, `read` and `prompt`."""

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
from interlock.observing import environment_context
from interlock.toolbox import Toolbox


def command_caller() -> Caller:
    """Return the caller of a command; its trace continues that of the program that started it."""
    return Caller(surface="cli", trace_context=environment_context())


@asynccontextmanager
async def open_toolbox(
    config: Config, server: str | None, spinner: Spinner, *, yes: bool = False
) -> AsyncIterator[Toolbox]:
    """Open the configured servers, under the policy for the person at the terminal.

    Args:
        config: The configuration.
        server: The name in the file of the only server to start; None starts all servers.
        spinner: The command's spinner, which pauses while the person is asked.
        yes: Whether calls run without asking the person.
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
            if config.path or config.variable:
                completion.remember(toolbox)
            yield toolbox
