"""A turn as a person sees it: the answer on stdout, everything else on stderr.

On a terminal a spinner shows that the model thinks, a line tells of each tool call with its
result and time, and the answer is Markdown that grows as it comes. Elsewhere the answer is the
model's text, unchanged, and talk is plain lines that begin with "[TOOL]".
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from interlock.agent import AgentEvent, Done, ToolFinished, ToolStarted
from interlock.cli.call_lines import LONGEST_ARGUMENTS, call_line
from interlock.cli.terminal import is_rich, is_terminal, safe, safe_line, say, warn
from interlock.models import ReasoningDelta, TextDelta

_NOTES = {
    "length": "the answer was cut off at the model's limit of tokens",
    "refusal": "the model refused to answer",
}


class Answer(Protocol):
    """Where the text of an answer goes."""

    def add(self, text: str) -> None:
        """Show the next piece."""
        ...

    def finish(self) -> None:
        """End what has been shown so far, and its line."""
        ...


class Talk(Protocol):
    """Where it is told what happens besides the answer."""

    def think(self, thought: str = "") -> None:
        """Show that the model is at work, and what it thinks aloud."""
        ...

    def start(self, event: ToolStarted) -> None:
        """Show that a tool runs."""
        ...

    def finish(self, event: ToolFinished) -> None:
        """Show what a tool gave."""
        ...

    def pause(self) -> None:
        """Leave the screen to others; calls that still run are not waited for any more."""
        ...


class Screen:
    """Shows one turn after the other."""

    def __init__(self) -> None:
        self._answer: Answer = _PlainAnswer()
        self._talk: Talk = _PlainTalk()
        if is_rich(sys.stdout) or is_rich(sys.stderr):
            from interlock.cli import rich_output  # rich, only for those who see it

            if is_rich(sys.stdout):
                self._answer = rich_output.MarkdownAnswer()
            if is_rich(sys.stderr):
                self._talk = rich_output.LiveTalk()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Prepare for a turn, and leave the screen in order however it ends."""
        self._talk.think()
        try:
            yield
        finally:
            self.rest()

    def rest(self) -> None:
        """Leave the screen in order for others."""
        self._talk.pause()
        self._answer.finish()

    def show(self, event: AgentEvent) -> None:
        """Show what happens."""
        match event:
            case TextDelta():
                self._talk.pause()
                self._answer.add(event.text)
            case ReasoningDelta():
                self._answer.finish()
                self._talk.think(event.text)
            case ToolStarted():
                self._answer.finish()
                self._talk.start(event)
            case ToolFinished():
                self._talk.finish(event)
            case Done():
                self._talk.pause()
                self._answer.finish()
                if event.stop_reason in _NOTES:
                    warn(_NOTES[event.stop_reason])
                elif not event.message.content.strip():
                    say("(the model said nothing)")


class _PlainAnswer:
    """The text as it comes."""

    def __init__(self) -> None:
        self._in_line = False
        self._for_person = is_terminal(sys.stdout)

    def add(self, text: str) -> None:
        if text:
            sys.stdout.write(safe(text) if self._for_person else text)
            sys.stdout.flush()
            self._in_line = not text.endswith("\n")

    def finish(self) -> None:
        if self._in_line:
            self._in_line = False
            sys.stdout.write("\n")
            sys.stdout.flush()


class _PlainTalk:
    """Lines that a program can find."""

    def think(self, thought: str = "") -> None:
        """Show nothing: progress is for people."""

    def start(self, event: ToolStarted) -> None:
        say(f"[TOOL] {call_line(event.address, event.arguments)}")

    def finish(self, event: ToolFinished) -> None:
        how = "failed" if event.is_error else "ok"
        result = safe_line(event.result, LONGEST_ARGUMENTS)
        say(f"[TOOL] {safe_line(event.address)} {how} in {event.duration:.2f} s: {result}")

    def pause(self) -> None:
        """Show nothing."""
