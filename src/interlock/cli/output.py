"""Shows a turn: the answer on stdout, everything else on stderr.

A terminal shows a spinner while the model works, a line for each tool call with its result and
duration, and the answer as Markdown that grows as it arrives. Elsewhere the answer is the model's
text, unchanged, and tool calls are plain lines that begin with "[TOOL]".
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from interlock.agent import AgentEvent, Compacted, Done, ToolFinished, ToolStarted
from interlock.cli.call_lines import LONGEST_ARGUMENTS, call_line
from interlock.cli.terminal import is_rich, is_terminal, safe, safe_line, say, warn
from interlock.models import ReasoningDelta, TextDelta, Usage

_NOTES = {
    "length": "the answer was cut off at the model's token limit",
    "refusal": "the model refused to answer",
}


def introduce(model: str) -> None:
    """State the limits of the embedded model, which a user may take for a large one."""
    if model.startswith("local:"):
        say(
            "the embedded model only picks tools by words and knows no facts; "
            "for more, use --model anthropic:…, openai:… or ollama:…"
        )


def usage_line(usage: Usage) -> str:
    """Return the tokens of a turn in words."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    return f"tokens: {usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out"


class AnswerView(Protocol):
    """Shows the text of an answer."""

    def add(self, text: str) -> None:
        """Show the next piece of text."""
        ...

    def finish(self) -> None:
        """Complete the text shown so far, and its line."""
        ...


class ActivityView(Protocol):
    """Shows what happens besides the answer."""

    def think(self, thought: str = "") -> None:
        """Show that the model is working, and the next piece of its reasoning."""
        ...

    def start(self, event: ToolStarted) -> None:
        """Show that a tool call started."""
        ...

    def finish(self, event: ToolFinished) -> None:
        """Show the result of a tool call."""
        ...

    def stop(self) -> None:
        """Free the screen; calls that are still running are shown as stopped."""
        ...

    def pause(self) -> None:
        """Free the screen until the next event."""
        ...


class Screen:
    """Shows one turn after another."""

    def __init__(self) -> None:
        self._answer: AnswerView = _PlainAnswer()
        self._activity: ActivityView = _PlainActivity()
        if is_rich(sys.stdout) or is_rich(sys.stderr):
            from interlock.cli import rich_output  # imports rich, which plain output does not need

            if is_rich(sys.stdout):
                self._answer = rich_output.MarkdownAnswer()
            if is_rich(sys.stderr):
                self._activity = rich_output.LiveActivity()
        self._held: list[AgentEvent] | None = None  # events while the screen is held

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Show that a turn starts; free the screen when it ends, also after an error."""
        self._activity.think()
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Complete everything shown, so that other output can follow."""
        self._activity.stop()
        self._answer.finish()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Show nothing, so that a question can be asked; then show what has happened meanwhile."""
        self._answer.finish()
        self._activity.pause()
        self._held = []
        try:
            yield
        finally:
            events, self._held = self._held, None
            for event in events:
                self.show(event)

    def show(self, event: AgentEvent) -> None:
        """Show one event."""
        if self._held is not None:
            self._held.append(event)
            return
        match event:
            case TextDelta():
                self._activity.stop()
                self._answer.add(event.text)
            case ReasoningDelta():
                self._answer.finish()
                self._activity.think(event.text)
            case ToolStarted():
                self._answer.finish()
                self._activity.start(event)
            case ToolFinished():
                self._activity.finish(event)
            case Compacted():
                self._activity.stop()
                count = event.left_out
                say(f"(too long for the model: {count} older messages are cut or left out)")
                self._activity.think()
            case Done():
                self._activity.stop()
                self._answer.finish()
                if event.stop_reason in _NOTES:
                    warn(_NOTES[event.stop_reason])
                elif not event.message.content.strip():
                    say("(the answer is empty)")
                if is_terminal(sys.stderr) and event.usage != Usage():
                    say(usage_line(event.usage))


class _PlainAnswer:
    """Writes the text unchanged, or made safe for a terminal."""

    def __init__(self) -> None:
        self._in_line = False
        self._on_terminal = is_terminal(sys.stdout)

    def add(self, text: str) -> None:
        if text:
            sys.stdout.write(safe(text) if self._on_terminal else text)
            sys.stdout.flush()
            self._in_line = not text.endswith("\n")

    def finish(self) -> None:
        if self._in_line:
            self._in_line = False
            sys.stdout.write("\n")
            sys.stdout.flush()


class _PlainActivity:
    """Prints lines that a program can parse."""

    def think(self, thought: str = "") -> None:
        """Print nothing."""

    def start(self, event: ToolStarted) -> None:
        say(f"[TOOL] {call_line(event.address, event.arguments)}")

    def finish(self, event: ToolFinished) -> None:
        outcome = "failed" if event.is_error else "ok"
        result = safe_line(event.result, LONGEST_ARGUMENTS)
        say(f"[TOOL] {safe_line(event.address)} {outcome} in {event.duration:.2f} s: {result}")

    def stop(self) -> None:
        """Print nothing."""

    def pause(self) -> None:
        """Print nothing."""
