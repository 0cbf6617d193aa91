"""The conversation of `interlock chat` on a terminal.

Ctrl-C stops an answer or clears the line; Ctrl-D quits. Typed lines are stored in a history file
that only the user can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import click

from interlock import __version__, aio, attachments
from interlock.chat import Chat
from interlock.cli.chat.terminal_chat import ChatOptions, TerminalChat, open_terminal_chat
from interlock.cli.server_status import warn_of_broken
from interlock.cli.servers.call import format_block, texts_of
from interlock.cli.servers.resources import format_contents
from interlock.cli.servers.tools import rows
from interlock.cli.signals import on_interrupt
from interlock.cli.terminal import complain, in_columns, safe_line, say, unechoed, warn, width
from interlock.config import Config
from interlock.errors import InterlockError, MissingExtra
from interlock.messages import Attachment, UserMessage
from interlock.text.surrogates import repair_text

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyBindings

COMMANDS = {
    "/tools": "list the tools",
    "/model": "show the model; /model PROVIDER:NAME continues with another one",
    "/attach": "/attach FILE … sends files with the next message: images, PDFs, texts",
    "/read": "/read SERVER:URI QUESTION sends the question with a resource",
    "/prompt": "/prompt SERVER:NAME KEY=VALUE … sends a prompt of a server; so does /SERVER:NAME …",
    "/edit": "change your last message, and send it again",
    "/undo": "take back your last message and its answer",
    "/new": "start another conversation",
    "/help": "show this help",
    "/quit": "leave, as Ctrl-D does",
}
KEYS = """\
Enter sends; Alt-Enter, or a \\ at the end, starts another line.
Ctrl-C stops an answer or clears the line.
A line that starts with a space is sent unchanged, even if a / follows."""


async def run_repl(
    config: Config | None,
    files: Sequence[Attachment] = (),
    *,
    yes: bool,
    **options: Unpack[ChatOptions],
) -> None:
    """Read lines and show answers until the user leaves.

    Args:
        config: The servers and their policy; see `open_terminal_chat`.
        files: Files to send with the first message.
        yes: Whether to run every call without asking.
        options: Options of `open_chat`.

    Raises:
        MissingExtra: The line editor is not installed.
        InterlockError: The same errors as `open_chat`.
    """
    editor = line_editor(COMMANDS)
    async with open_terminal_chat(config, yes=yes, **options) as opened:
        from interlock.cli.chat.repl_completion import ReplCompleter

        editor.completer = ReplCompleter(COMMANDS, opened.chat, options["wishes"].settings)
        opened.screen.release()
        say(_greeting(opened.chat))
        await _Repl(opened, files).run(editor)


class _Repl:
    def __init__(self, opened: TerminalChat, files: Sequence[Attachment]) -> None:
        self._files = list(files)  # files to send with the next message
        self._chat = opened.chat
        self._screen = opened.screen
        self._approval = opened.approval
        self._states = self._current_states()
        self._edited: UserMessage | None = None  # the message that the next line replaces

    async def run(self, editor: PromptSession[str]) -> None:
        while True:
            draft = "" if self._edited is None else attachments.split(self._edited.content)[0]
            try:
                # The editor handles Ctrl-C only as a key, because `signals` handles SIGINT.
                text = await editor.prompt_async(default=draft, handle_sigint=False)
            except KeyboardInterrupt:
                self._edited = None
                continue
            except EOFError:
                return
            if text.strip() == "/quit":
                return
            if not text.startswith("/attach "):  # a file name may have any bytes
                text = repair_text(text)
            edited, self._edited = self._edited, None
            try:
                await (self._handle(text) if edited is None else self._replace(edited, text))
            except InterlockError as error:
                complain(str(error))

    async def _handle(self, text: str) -> None:
        command, _, rest = text.strip().partition(" ")
        if not command:
            return
        if not text.startswith("/"):
            await self._ask(text.strip())
        elif command == "/tools":
            self._list_tools()
        elif command == "/model":
            await self._model(rest.strip())
        elif command == "/attach":
            self._attach(rest.strip())
        elif command == "/read":
            await self._read(rest.strip())
        elif command == "/prompt":
            await self._prompt(rest.strip())
        elif command == "/edit":
            self._edit()
        elif command == "/undo":
            await self._undo()
        elif ":" in command:
            await self._prompt(text.strip()[1:])
        elif command == "/new":
            await self._chat.start_conversation()
            self._approval.forget()
            say("new conversation")
        elif command == "/help":
            say("\n".join(f"{name:8} {text}" for name, text in COMMANDS.items()))
            say(KEYS)
        else:
            name = safe_line(command, 40)
            say(f"unknown command {name}; /help lists them; start with a space to send the line")

    async def _ask(self, text: str) -> None:
        turn = asyncio.create_task(self._show_turn(text))
        with unechoed(), on_interrupt(turn.cancel):
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled() or aio.is_cancelled():
                    raise
                say("stopped")
        self._warn_of_changes()
        say("")

    def _current_states(self) -> dict[str, tuple[str, str]]:
        toolbox = self._chat.toolbox
        found = toolbox.status.values() if toolbox else ()
        return {each.name: (each.state, each.reason) for each in found}

    def _warn_of_changes(self) -> None:
        before, self._states = self._states, self._current_states()
        for name, (state, reason) in self._states.items():
            if before[name] != (state, reason):
                warn(f"server {name!r} is {state}{': ' if reason else ''}{reason}")

    async def _show_turn(self, text: str) -> None:
        with self._screen.turn():
            files, self._files = self._files, []
            async with aclosing(self._chat.ask(text, files)) as events:
                async for event in events:
                    self._screen.show(event)

    def _edit(self) -> None:
        self._edited = self._chat.last_question
        if self._edited is None:
            say("no message to change")

    async def _replace(self, edited: UserMessage, text: str) -> None:
        if not text.strip():
            return
        await self._chat.undo()
        self._files = [*edited.attachments, *self._files]
        await self._ask(text.strip() + attachments.split(edited.content)[1])

    async def _undo(self) -> None:
        last = self._chat.last_question
        if last is None:
            say("no message to take back")
            return
        await self._chat.undo()
        say(f"took back: {safe_line(last.content, 60)}")
        say("effects of tools are not undone; the earlier conversation is unchanged")

    def _list_tools(self) -> None:
        toolbox = self._chat.toolbox
        listed = rows(toolbox) if toolbox is not None else []
        if not listed:
            say("no tools; add a server with `interlock servers add` or `interlock servers import`")
        shown = [(address, description) for address, _, description in listed]
        for line in in_columns(shown, width(sys.stderr)):
            say(line)
        if toolbox is not None:
            warn_of_broken(toolbox.status.values())

    def _attach(self, line: str) -> None:
        if not line:
            say("write /attach FILE …; quote a name with blanks")
            return
        try:
            paths = shlex.split(line)
        except ValueError as error:  # a quote that is not closed
            say(f"cannot read the line: {error}")
            return
        files = [*self._files, *(attachments.load(Path(each)) for each in paths)]
        attachments.check_all(files)
        self._files = files
        say(f"with the next message: {', '.join(map(attachments.described, files))}")

    async def _read(self, line: str) -> None:
        address, _, question = line.partition(" ")
        server, colon, uri = address.partition(":")
        if self._chat.toolbox is None or not (colon and uri):
            say("write /read SERVER:URI QUESTION; `interlock resources` lists the addresses")
            return
        if self._is_unknown(server):
            return
        result = await self._chat.toolbox.read_resource(server, uri, caller=self._chat.caller)
        contents = "\n\n".join(map(format_contents, result.contents))
        await self._ask(f"{question.strip()}\n\nResource {address}:\n{contents}".strip())

    async def _prompt(self, line: str) -> None:
        address, arguments = "", {}
        try:
            address, *pairs = shlex.split(line) or [""]
            arguments = texts_of(pairs)
        except (ValueError, click.UsageError) as error:  # a quote that is not closed, or no "="
            address = ""
            say(f"cannot read the line: {safe_line(str(error), 80)}")
        server, colon, name = address.partition(":")
        if self._chat.toolbox is None or not (colon and name):
            say("write /prompt SERVER:NAME KEY=VALUE …; `interlock prompts` lists them")
            return
        if self._is_unknown(server):
            return
        caller = self._chat.caller
        result = await self._chat.toolbox.get_prompt(server, name, arguments, caller=caller)
        text = "\n\n".join(format_block(each.content) for each in result.messages)
        say(text)
        await self._ask(text)

    def _is_unknown(self, server: str) -> bool:
        known = list(self._states)
        if server not in known:
            say(f"no server {safe_line(repr(server), 40)}; the servers are {', '.join(known)}")
        return server not in known

    async def _model(self, name: str) -> None:
        if name:
            await self._chat.change_model(name)
        say(f"model {safe_line(self._chat.model.name)}")


def _greeting(chat: Chat) -> str:
    parts = [f"interlock {__version__}", safe_line(chat.model.name)]
    if chat.toolbox is not None:
        parts.append(f"{len(chat.toolbox.tools)} tools")
    if (stored := chat.log.conversation) is not None:
        parts.append(f"{len(chat.messages)} messages of {safe_line(stored.title, 40)!r}")
    return " · ".join([*parts, "/help"])


# The line editor


def line_editor(commands: Mapping[str, str]) -> PromptSession[str]:
    """Return the line editor of a conversation, which completes `commands`.

    Raises:
        MissingExtra: The editor is not installed.
    """
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from prompt_toolkit.output import create_output
    except ModuleNotFoundError as error:
        raise MissingExtra("a conversation on the terminal", "chat") from error
    completer = WordCompleter(list(commands), meta_dict=dict(commands), sentence=True)
    return PromptSession(
        "> ",
        multiline=True,
        prompt_continuation="  ",
        key_bindings=_keys(),
        history=_history(),
        completer=completer,
        complete_while_typing=False,
        # Show the prompt on the terminal even if stdout, to which answers go, is a file.
        output=create_output(always_prefer_tty=True),
    )


def _keys() -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def _send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


def _history() -> History:
    from platformdirs import user_data_path
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    class Quiet(FileHistory):
        """A history that ignores write errors, such as a full disk."""

        def store_string(self, string: str) -> None:
            with contextlib.suppress(OSError):
                super().store_string(string)

    path = user_data_path("interlock") / "history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        warn(f"the input history is not stored: {path}: {error.strerror}")
        return InMemoryHistory()
    return Quiet(str(path))
