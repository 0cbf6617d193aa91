"""The `interlock` command: arguments -> one library call -> text. One file per command group.

Data goes to stdout, everything else to stderr. Exit codes: 0; 1 for errors; 2 for wrong usage;
128 + n after signal n (130 is Ctrl-C). A traceback means a bug in interlock.
"""

from __future__ import annotations

import difflib
import errno
import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

import click

from interlock import __version__, build
from interlock.cli.terminal import complain, safe_line, say
from interlock.errors import InterlockError, MissingExtra

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# The commands' help texts, so that `--help` and completion need not import the commands.
_COMMANDS = {
    "chat": ("chat.chat", "Talk to a model that uses your tools."),
    "claude": ("chat.claude", "Let Claude Code use the configured servers."),
    "tools": (
        "servers.tools",
        "List every tool by its address, with its server's state; or describe one.",
    ),
    "call": ("servers.call", "Call a tool and print its result."),
    "resources": (
        "servers.resources",
        "List the resources of all servers, or of one: address, type and name.",
    ),
    "read": (
        "servers.resources",
        "Print a resource: its text, or its bytes if stdout is a file or a pipe.",
    ),
    "prompts": (
        "servers.prompts",
        "List the prompts of all servers, or of one: address, arguments and description.",
    ),
    "prompt": (
        "servers.prompts",
        "Print the messages of a prompt, such as for piping them into `interlock chat`.",
    ),
    "servers": ("servers.servers", "Edit and check the file of servers, and log in to them."),
    "openapi": ("servers.openapi", "Look at OpenAPI documents, and at the tools made of them."),
    "models": ("chat.models", "List the models for --model: what each can do, and what it needs."),
    "settings": (
        "chat.settings",
        "Show the settings of models: the default model, options, aliases and prices.",
    ),
    "serve": (
        "gateway.serve",
        "Serve the configured servers as one MCP endpoint that is safe to share.",
    ),
    "web": ("chat.web", "Open the chat in the browser, for you alone on this machine."),
    "keys": (
        "gateway.keys",
        "Create, list, rotate and revoke the API keys of the gateway's users.",
    ),
    "clients": (
        "gateway.clients",
        "List, block and create the OAuth clients of a gateway, and end their access.",
    ),
    "people": ("gateway.people", "Erase what a gateway's database contains of a person."),
    "lock": ("gateway.lock", "Accept or reject the definitions that servers offer."),
    "plugins": ("gateway.plugins", "List plugins, and install or remove them for users."),
    "credentials": (
        "gateway.credentials",
        "List, set and delete the credentials of users for servers.",
    ),
    "explain": (
        "gateway.explain",
        "Show whether a call would be allowed, and why: every check with its result.",
    ),
    "approvals": ("gateway.approvals", "List, approve and deny the calls that wait for a person."),
    "audit": (
        "gateway.audit",
        "List and verify the audit trail, whether a gateway is running or not.",
    ),
    "db": (
        "gateway.db",
        "Back up, restore, upgrade, check and move the database, and replace its key.",
    ),
    "conversations": (
        "chat.conversations",
        "List, search, show, rename, copy, delete and export conversations.",
    ),
    "run": ("servers.run", "Serve the Server or Gateway of a Python FILE, on stdin and stdout."),
    "dev": ("chat.dev", "Open the inspector on the server of a Python FILE while you write it."),
    "install": (
        "servers.install",
        "Enter servers into Claude Code, Claude Desktop, Cursor or VS Code.",
    ),
    "uninstall": ("servers.install", "Remove a server that `interlock install` has entered."),
    "hook": (
        "chat.hook",
        "Decide about a tool call by the policy and record it, as a hook of Claude Code.",
    ),
    "token": ("servers.token", "Print the access token for URL, refreshed if it has expired."),
    "completion": (
        "completion",
        "Print the script that completes commands, servers, tools, arguments and models.",
    ),
    "doctor": (
        "doctor",
        "Check versions, files, servers, logins, processes, keys, model and database.",
    ),
}
_HUNG_UP = 128 + signal.SIGHUP
_TRACED = frozenset(("serve", "chat", "web", "claude", "call", "read", "prompt", "run"))
# Seconds that the last export may take: less than the 3 and 1 of the docs, with the threads' end.
SERVE_EXPORT = 2.5
COMMAND_EXPORT = 0.8


class _Commands(click.Group):
    """A group that imports a command only when it is used, so that `--help` starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"interlock.cli.{module}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in _COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=help)
            for name, (_, help) in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], _COMMANDS, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"unknown command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


def _show_version(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
    if is_given and not ctx.resilient_parsing:
        click.echo(f"interlock {build.described(__version__)}")
        ctx.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and the commit, and exit.",
)
@click.pass_context
def interlock(ctx: click.Context) -> None:
    """Connect any model to any tool.

    \b
    Example:
      interlock servers add time mcp-server-time
      interlock chat "What time is it in Asia/Tokyo?"
    """
    command = ctx.invoked_subcommand
    if command in _TRACED and any(name.startswith("OTEL_") for name in os.environ):
        from interlock.telemetry.running import running

        timeout = SERVE_EXPORT if command == "serve" else COMMAND_EXPORT
        ctx.with_resource(running(command, os.environ, timeout=timeout))


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        # Characters that the terminal's encoding lacks are escaped instead of raising an error.
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # TextIO has none
    sys.exit(_exit_code())


def _exit_code() -> int:
    try:
        code = interlock.main(prog_name="interlock", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        say(error.format_message())
        return 2
    except click.UsageError as error:
        complain(_usage(error))
        return 2
    except click.ClickException as error:
        complain(error.format_message())
        return 1
    except InterlockError as error:
        complain(str(error))
        for note in getattr(error, "__notes__", ()):  # for people; models get no notes
            say(safe_line(note))
        return 1
    except ModuleNotFoundError as error:
        from interlock.store import NEEDED

        if error.name not in NEEDED:
            raise
        complain(str(MissingExtra("the gateway's database", "serve,chat")))
        return 1
    except (KeyboardInterrupt, click.Abort):
        return 128 + signal.SIGINT
    except OSError as error:
        return _no_output(error)
    return code if isinstance(code, int) else 0


def _usage(error: click.UsageError) -> str:
    message = error.format_message().rstrip(".")
    if message.endswith("?"):  # the message names what is meant
        return message
    command = error.ctx.command_path if error.ctx else "interlock"
    return f"{message}: see `{command} --help`"


def _no_output(error: OSError) -> int:
    """Return the exit code if stdout is closed or the disk is full; raise any other error."""
    if error.errno not in (errno.EPIPE, errno.EIO, errno.ENOSPC):
        raise error
    # At exit, Python writes the rest of its buffer. Send it to /dev/null, so that this cannot fail.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    if error.errno == errno.EIO:  # the terminal was closed
        return _HUNG_UP
    if error.errno == errno.ENOSPC:
        complain(f"cannot write the output: {error.strerror}")
    return 1
